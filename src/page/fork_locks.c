/* The locks and the list of those that fork has to hold: see fork_locks.h.
 *
 * Invariant: the list is whole whenever its own lock, that of `list`, is free. The fork handlers
 * take that first, then every lock of the list; nobody else holds two, so the order does not
 * matter. Handlers are registered with the first watch and stay.
 */
#include "page/fork_locks.h"

#include "base/atomic.h"
#include "base/host.h"
#include "os/os.h"

enum { FREE = 0, HELD = 1, WAITED = 2 };
enum { SPIN_LIMIT = 100, TRY_LIMIT = 1000 };

static struct fork_lock list = {.next = &list, .prev = &list};
static bool registered; /* lock: list */
/* Of this thread, one within the other: a signal handler may fork while this thread is between its
 * handlers. The outermost takes and releases; the child of an inner one still has the rest of the
 * outer one before it. */
static thread_local_word uint16_t forks;

static uint32_t generation; /* atomic: forks from the first process to this one */

static bool acquire_within(struct fork_lock *lock, int tries)
{
    uint32_t seen = FREE;
    for (int spins = 0; spins < tries; spins++, seen = FREE) {
        if (compare_swap_acq_rel(&lock->state, &seen, (uint32_t)HELD)) /* acquire: with release */
            return true;
        pause_processor();
    }
    return false;
}

bool fork_lock_try(struct fork_lock *lock) { return acquire_within(lock, TRY_LIMIT); }

void fork_lock_acquire(struct fork_lock *lock)
{
    if (acquire_within(lock, SPIN_LIMIT))
        return;
    /* acquire: pairs with fork_lock_release */
    while (exchange_acq_rel(&lock->state, (uint32_t)WAITED) != FREE)
        host_wait(&lock->state, WAITED);
}

void fork_lock_release(struct fork_lock *lock)
{
    /* release: pairs with the next holder's acquire */
    if (exchange_acq_rel(&lock->state, (uint32_t)FREE) == WAITED)
        host_wake(&lock->state, 1);
}

static void before_fork(void)
{
    if (forks++ != 0)
        return;
    fork_lock_acquire(&list);
    for (struct fork_lock *entry = list.next; entry != &list; entry = entry->next)
        fork_lock_acquire(entry);
}

static void in_parent(void)
{
    if (--forks != 0)
        return;
    for (struct fork_lock *entry = list.next; entry != &list; entry = entry->next)
        fork_lock_release(entry);
    fork_lock_release(&list);
}

/* The waiters are in the parent. */
static void in_child(void)
{
    store_relaxed(&generation, generation + 1);
    if (--forks != 0)
        return;
    for (struct fork_lock *entry = list.next; entry != &list; entry = entry->next)
        store_release(&entry->state, (uint32_t)FREE);
    store_release(&list.state, (uint32_t)FREE);
}

uint32_t fork_lock_process(void) { return load_relaxed(&generation); }

int fork_lock_watch(struct fork_lock *lock)
{
    fork_lock_acquire(&list);
    int error = registered ? 0 : os_fork_register(before_fork, in_parent, in_child);
    registered = error == 0;
    if (error == 0) {
        lock->next = &list;
        lock->prev = list.prev;
        list.prev->next = lock;
        list.prev = lock;
    }
    fork_lock_release(&list);
    return error;
}

void fork_lock_unwatch(struct fork_lock *lock)
{
    fork_lock_acquire(&list);
    lock->next->prev = lock->prev;
    lock->prev->next = lock->next;
    fork_lock_release(&list);
}
