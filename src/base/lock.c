/* The futex lock: see lock.h. */
#include "base/lock.h"

#include "base/alone.h"
#include "base/atomic.h"
#include "base/check.h"
#include "base/host.h"
#include "base/test_delay.h"

enum { FREE = 0, HELD = 1, WAITED = 2, FROZEN = 3 };

/* Ranks of the locks that this thread holds, one bit each; only in debug builds. */
static __thread uint16_t held_ranks;

/* Not 0 while this thread takes, holds or releases a lock: a signal handler that forks may
 * interrupt it at any point of that. */
static __thread uint8_t engaged;

/* Tries to take the lock.
 * Returns: the state before: FREE when the lock was taken. */
static uint32_t lock_try_take(struct lock *lock, uint32_t as)
{
    uint32_t seen = FREE;
    if (likely(process_is_single_threaded()) && load_relaxed(&lock->state) == FREE) {
        store_relaxed(&lock->state, as);
        __atomic_signal_fence(__ATOMIC_ACQUIRE); /* a signal handler may fork from here on */
        return FREE;
    }
    /* acquire: pairs with release in lock_release */
    (void)compare_swap_acq_rel(&lock->state, &seen, as);
    return seen;
}

static void lock_note_acquired(struct lock *lock)
{
    store_relaxed(&lock->owner, thread_identity());
    if (config_debug) {
        check_internal(held_ranks >> lock->rank == 0);
        held_ranks |= (uint16_t)(1u << lock->rank);
    }
}

bool lock_spin(const uint32_t *state, unsigned *pauses)
{
    while (*pauses <= LOCK_PAUSES_MAX) {
        for (unsigned i = 0; i < *pauses; i++)
            pause_processor();
        *pauses *= 2;
        test_delay();
        uint32_t seen = load_relaxed(state);
        if (seen != HELD && seen != WAITED)
            return true;
    }
    return false;
}

bool lock_acquire(struct lock *lock)
{
    store_relaxed(&engaged, (uint8_t)(engaged + 1));
    for (unsigned pauses = 1;;) {
        uint32_t seen = lock_try_take(lock, pauses <= LOCK_PAUSES_MAX ? HELD : WAITED);
        if (seen == FREE)
            break;
        if (seen == FROZEN) {
            store_relaxed(&engaged, (uint8_t)(engaged - 1));
            return false;
        }
        if (lock_spin(&lock->state, &pauses))
            continue;
        /* Never waits for a frozen lock: that is another state, both for this compare and swap
         * and for the kernel's comparison. */
        seen = HELD;
        if (compare_swap_acq_rel(&lock->state, &seen, (uint32_t)WAITED) || seen == WAITED) {
            test_delay();
            host_wait(&lock->state, WAITED);
        }
    }
    lock_note_acquired(lock);
    return true;
}

bool lock_try_acquire(struct lock *lock)
{
    store_relaxed(&engaged, (uint8_t)(engaged + 1));
    if (lock_try_take(lock, HELD) == FREE) {
        lock_note_acquired(lock);
        return true;
    }
    store_relaxed(&engaged, (uint8_t)(engaged - 1));
    return false;
}

/* Ends what lock_acquire has noted of this thread. */
static void lock_note_left(const struct lock *lock)
{
    if (config_debug)
        held_ranks &= (uint16_t)~(1u << lock->rank);
    store_relaxed(&engaged, (uint8_t)(engaged - 1));
}

void lock_release(struct lock *lock)
{
    store_relaxed(&lock->owner, (uintptr_t)0);
    /* release: pairs with the acquire of the next holder */
    if (likely(process_is_single_threaded()))
        store_release(&lock->state, (uint32_t)FREE);
    else if (exchange_acq_rel(&lock->state, (uint32_t)FREE) == WAITED)
        host_wake(&lock->state, 1);
    lock_note_left(lock);
}

bool lock_is_mine(const struct lock *lock)
{
    return load_relaxed(&lock->owner) == thread_identity();
}

/* A signal may interrupt any two steps of a freeze or thaw, and its handler may fork. The handler's
 * freeze and thaw leave each word as the last step has written it, or the next step writes it
 * again. */
void lock_begin_freeze(struct lock *lock)
{
    if (lock_is_mine(lock) && lock->freezing) {
        lock->nested++;
        return;
    }
    /* Interrupted after the lock was taken and before the owner was stored, or after the owner
     * was cleared and before the lock was released. Then no owner is recorded. Only a program of
     * one thread may fork in a signal handler, so the holder is this thread. */
    bool interrupted =
        engaged != 0 && load_relaxed(&lock->state) != FREE && load_relaxed(&lock->owner) == 0;
    bool held = interrupted || lock_is_mine(lock);
    while (!held && !lock_acquire(lock)) {
        test_delay();
        /* another thread forks, and needs nothing from this one */
        host_wait(&lock->state, FROZEN);
    }
    store_release(&lock->freezing, true);
    store_release(&lock->held_at_freeze, held);
    /* From here on the lock does not count as held: this thread freezes the next lock. */
    if (!held)
        lock_note_left(lock);
}

void lock_end_freeze(struct lock *lock)
{
    test_delay();
    /* Wakes all threads, whatever the state is: a thread that a release has woken may find the
     * lock frozen and leave, and then no other thread would wake the next one. */
    exchange_acq_rel(&lock->state, (uint32_t)FROZEN);
    host_wake(&lock->state, UINT32_MAX);
}

bool lock_is_frozen(const struct lock *lock)
{
    return load_acquire(&lock->state) == FROZEN; /* acquire: pairs with lock_thaw */
}

bool lock_is_frozen_whole(const struct lock *lock)
{
    return !lock->held_at_freeze && lock->nested == 0;
}

void lock_begin_thaw(struct lock *lock)
{
    if (lock->nested > 0)
        return;
    store_release(&lock->state, (uint32_t)HELD);
    test_delay();
    /* Wakes the threads that wait to fork. None of them sleeps when lock_release wakes one thread,
     * so it wakes one that waits for the lock. */
    host_wake(&lock->state, UINT32_MAX);
}

void lock_end_thaw(struct lock *lock)
{
    if (lock->nested > 0) {
        lock->nested--;
        return;
    }
    bool held = lock->held_at_freeze;
    store_release(&lock->freezing, false);
    if (held) {
        store_release(&lock->state, (uint32_t)HELD);
    } else {
        store_relaxed(&engaged, (uint8_t)(engaged + 1));
        lock_release(lock);
    }
}
