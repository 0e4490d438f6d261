/* The list of locks that fork has to hold: see fork_locks.h.
 *
 * Invariant: the list is complete and whole whenever its own lock, `list_lock`, is free. The fork
 * handlers hold that first, then every lock of the list; nobody else holds two of them.
 * Handlers are registered with the first watch, and stay.
 */
#include "region/fork_locks.h"

#include "base/atomic.h"
#include "os/os.h"

enum { LIST_RANK = 0 };

static struct fork_lock list = {.lock = {.rank = LIST_RANK}, .next = &list, .prev = &list};
static bool registered; /* lock: list */

static void before_fork(void)
{
    lock_freeze(&list.lock);
    for (struct fork_lock *entry = list.next; entry != &list; entry = entry->next)
        lock_freeze(&entry->lock);
}

static void after_fork(void)
{
    for (struct fork_lock *entry = list.next; entry != &list; entry = entry->next)
        lock_thaw(&entry->lock);
    lock_thaw(&list.lock);
}

void fork_lock_acquire(struct fork_lock *lock)
{
    /* Frozen: another thread forks just now, which takes as long as the kernel needs to copy the
     * process. There is nothing else to do meanwhile. */
    while (!lock_acquire(&lock->lock))
        os_sleep_ms(1);
}

void fork_lock_release(struct fork_lock *lock) { lock_release(&lock->lock); }

int fork_lock_watch(struct fork_lock *lock)
{
    fork_lock_acquire(&list);
    int error = registered ? 0 : os_fork_register(before_fork, after_fork, after_fork);
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
