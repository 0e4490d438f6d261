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

/* Not 0 while this thread takes or releases a lock: a signal handler that forks may interrupt it at
 * any point of that. */
static __thread uint8_t engaged;

static void lock_engage(void) { store_relaxed(&engaged, (uint8_t)(engaged + 1)); }

static void lock_disengage(void) { store_relaxed(&engaged, (uint8_t)(engaged - 1)); }

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

static void lock_note_rank(const struct lock *lock)
{
    if (!config_debug)
        return;
    check_internal(held_ranks >> lock->rank == 0);
    held_ranks |= (uint16_t)(1u << lock->rank);
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

/* Takes the lock, of any rank.
 * Returns: false when another thread has frozen it for a fork. */
inline_always bool lock_take(struct lock *lock)
{
    lock_engage();
    for (unsigned pauses = 1;;) {
        uint32_t seen = lock_try_take(lock, pauses <= LOCK_PAUSES_MAX ? HELD : WAITED);
        if (seen == FREE)
            break;
        if (seen == FROZEN) {
            lock_disengage();
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
    store_relaxed(&lock->owner, thread_identity());
    lock_disengage();
    return true;
}

bool lock_acquire(struct lock *lock)
{
    bool taken = lock_take(lock);
    if (taken)
        lock_note_rank(lock);
    return taken;
}

bool lock_try_acquire(struct lock *lock)
{
    lock_engage();
    bool taken = lock_try_take(lock, HELD) == FREE;
    if (taken) {
        store_relaxed(&lock->owner, thread_identity());
        lock_note_rank(lock);
    }
    lock_disengage();
    return taken;
}

void lock_acquire_after_fork(struct lock *lock)
{
    while (!lock_take(lock)) {
        test_delay();
        host_wait(&lock->state, FROZEN);
    }
}

void lock_release(struct lock *lock)
{
    unsigned rank = lock->rank;
    lock_engage();
    store_relaxed(&lock->owner, (uintptr_t)0);
    /* release: pairs with the acquire of the next holder */
    if (likely(process_is_single_threaded()))
        store_release(&lock->state, (uint32_t)FREE);
    else if (exchange_acq_rel(&lock->state, (uint32_t)FREE) == WAITED)
        host_wake(&lock->state, 1);
    if (config_debug)
        held_ranks &= (uint16_t)~(1u << rank);
    lock_disengage();
}

bool lock_is_mine(const struct lock *lock)
{
    return load_relaxed(&lock->owner) == thread_identity();
}

/* Wakes all threads that wait for a change of the state. */
static void lock_wake_all(struct lock *lock)
{
    test_delay();
    if (!process_is_single_threaded())
        host_wake(&lock->state, UINT32_MAX);
}

/* Whether this thread was interrupted after it took the lock and before the owner was stored, or
 * after the owner was cleared and before the lock was released. Then no owner is recorded. Only a
 * program of one thread may fork in a signal handler, so the holder is this thread. */
static bool lock_is_interrupted(const struct lock *lock)
{
    return engaged != 0 && load_relaxed(&lock->state) != FREE && load_relaxed(&lock->owner) == 0;
}

/* A signal may interrupt any two steps of a freeze or thaw, and its handler may fork. The handler's
 * freeze and thaw leave each word as the last step has written it, or the next step writes it
 * again. */
void lock_freeze(struct lock *lock)
{
    bool held = lock_is_mine(lock) || lock_is_interrupted(lock);
    if (held && lock->freezing) {
        lock->nested++;
    } else {
        if (!held)
            lock_acquire_after_fork(lock);
        store_release(&lock->freezing, true);
        store_release(&lock->held_at_freeze, held);
    }
    test_delay();
    /* Wakes all threads, whatever the state is: a thread that a release has woken may find the
     * lock frozen and leave, and then no other thread would wake the next one. */
    exchange_acq_rel(&lock->state, (uint32_t)FROZEN);
    lock_wake_all(lock);
}

bool lock_is_frozen(const struct lock *lock)
{
    return load_acquire(&lock->state) == FROZEN; /* acquire: pairs with lock_thaw */
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
    store_release(&lock->state, (uint32_t)HELD);
    /* None of the woken threads sleeps when lock_release wakes one thread, so it wakes one that
     * waits for the lock. */
    lock_wake_all(lock);
    if (!held)
        lock_release(lock);
}
