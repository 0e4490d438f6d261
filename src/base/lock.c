/* The futex lock: see lock.h. */
#include "base/lock.h"

#include "base/atomic.h"
#include "base/check.h"
#include "base/host.h"
#include "base/test_delay.h"

enum { FREE = 0, HELD = 1, WAITED = 2, FROZEN = 3 };
enum { SPIN_LIMIT = 100 };

/* Ranks held by this thread, one bit each; only debug builds look. */
static __thread uint16_t held_ranks;

/* Set while this thread takes, holds or releases a lock: a signal handler that forks may stand
 * anywhere within. */
static __thread uint16_t engaged;

static bool try_take(struct lock *lock, uint32_t as)
{
    uint32_t expected = FREE;
    return compare_swap_acq_rel(&lock->state, &expected,
                                as); /* acquire: pairs with release in lock_release */
}

static void note_acquired(struct lock *lock)
{
    store_relaxed(&lock->owner, thread_identity());
    if (config_debug) {
        check_internal(held_ranks >> lock->rank == 0);
        held_ranks |= (uint16_t)(1u << lock->rank);
    }
}

bool lock_acquire(struct lock *lock)
{
    store_relaxed(&engaged, (uint16_t)(engaged + 1));
    for (int spins = 0; !try_take(lock, spins < SPIN_LIMIT ? HELD : WAITED); spins++) {
        if (load_acquire(&lock->frozen)) {
            store_relaxed(&engaged, (uint16_t)(engaged - 1));
            return false;
        }
        pause_processor();
        test_delay();
        if (spins < SPIN_LIMIT)
            continue;
        /* Not while it is frozen: the state is another one then, for the compare and swap here as
         * for the kernel's comparison. */
        uint32_t seen = HELD;
        if (compare_swap_acq_rel(&lock->state, &seen, (uint32_t)WAITED) || seen == WAITED) {
            test_delay();
            host_wait(&lock->state, WAITED);
        }
    }
    note_acquired(lock);
    return true;
}

void lock_release(struct lock *lock)
{
    if (config_debug)
        held_ranks &= (uint16_t)~(1u << lock->rank);
    store_relaxed(&lock->owner, (uintptr_t)0);
    /* release: pairs with the acquire of the next holder */
    if (exchange_acq_rel(&lock->state, (uint32_t)FREE) == WAITED)
        host_wake(&lock->state, 1);
    store_relaxed(&engaged, (uint16_t)(engaged - 1));
}

bool lock_is_mine(const struct lock *lock)
{
    return load_relaxed(&lock->owner) == thread_identity();
}

/* A signal may come between any two steps here, and its handler fork: what a step has written, the
 * handler's freeze and thaw leave as it was, or the next step writes it again. */
void lock_freeze(struct lock *lock)
{
    if (lock_is_mine(lock) && lock->freezing) {
        lock->nested++;
    } else {
        /* Interrupted between taking the lock and noting it, or between forgetting and releasing
         * it: nobody is noted, and in a program of one thread, the only kind that may fork in a
         * handler, nobody else can be meant. */
        bool interrupted =
            engaged != 0 && load_relaxed(&lock->state) != FREE && load_relaxed(&lock->owner) == 0;
        bool held = interrupted || lock_is_mine(lock);
        while (!held &&
               !lock_acquire(lock)) /* another thread forks just now; it needs nothing of ours */
            pause_processor();
        store_release(&lock->freezing, true);
        store_release(&lock->held_at_freeze, held);
    }
    store_release(&lock->frozen, 1u);
    test_delay();
    /* Whatever the state says: a thread that a release woke may find the lock frozen and go away,
     * and there is nobody then but us to wake the next. */
    exchange_acq_rel(&lock->state, (uint32_t)FROZEN);
    host_wake(&lock->state, UINT32_MAX);
}

bool lock_is_frozen_whole(const struct lock *lock)
{
    return !lock->held_at_freeze && lock->nested == 0;
}

void lock_thaw(struct lock *lock)
{
    if (lock->nested > 0) {
        lock->nested--;
        return;
    }
    bool held = lock->held_at_freeze;
    store_release(&lock->freezing, false);
    store_release(&lock->frozen, 0u);
    if (held)
        store_release(&lock->state, (uint32_t)HELD);
    else
        lock_release(lock);
}
