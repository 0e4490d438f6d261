/* A small futex lock with a rank, an owner, and a freeze for fork.
 *
 * Algorithm: three states (free, held, held with waiters) after Ulrich Drepper, "Futexes Are
 * Tricky", mutex 3. Not recursive, not fair, no system call unless the lock is contended or frozen.
 * A thread that finds the lock held reads it a few times, with pauses that double, before it
 * tries again; after that it sleeps.
 *
 * Ranks: lock_acquire takes locks in rising rank only; debug builds check it.
 *
 * Fork: the forking thread holds the lock over clone(). Between, libc takes its stdio locks,
 * which a thread that waits for this lock may hold. So the heap never waits for a frozen lock to
 * do its work: lock_acquire returns false, and the caller uses its lock-free alternative. Frozen is
 * a state of its own. If it had the value of a held lock, a thread that announces itself late
 * and then does not wait could make another thread fall asleep that announced itself before the
 * freeze. Only a thread that forks, too, or calls lock_acquire_after_fork, waits for the end of a
 * freeze; each thaw wakes all of these.
 */
#ifndef CAIRN_BASE_LOCK_H
#define CAIRN_BASE_LOCK_H

#include "base/compiler.h"

/* A lock, statically initialised with its rank. */
struct lock {
    uint32_t state;      /* atomic: 0 free, 1 held, 2 held and waited for, 3 frozen */
    uintptr_t owner;     /* atomic, written by the holder: its thread identity, 0 when free */
    uint32_t rank;       /* const after init, below 16 */
    bool held_at_freeze; /* holder: the forking thread held it already, interrupted by a signal */
    bool freezing;       /* holder: true from the freeze to the thaw */
    uint32_t nested;     /* holder: forks of signal handlers from the freeze to the thaw */
};

/* Takes the lock. Acquire: pairs with lock_release.
 * Returns: false when another thread has frozen the lock for a fork. */
bool lock_acquire(struct lock *lock) __attribute__((warn_unused_result));

/* Takes the lock. Waits for the end of a fork, too, so the caller may hold no lock that fork takes
 * in between. The rank is not checked. Acquire: pairs with lock_release. */
void lock_acquire_after_fork(struct lock *lock);

/* Takes the lock if it is free. Acquire: pairs with lock_release.
 * Returns: false when it is held or frozen. */
bool lock_try_acquire(struct lock *lock) __attribute__((warn_unused_result));

/* Releases the lock and wakes one waiting thread.
 * Locking: lock held. */
void lock_release(struct lock *lock);

/* The most pauses between two reads of lock_spin. */
enum { LOCK_PAUSES_MAX = 64 };

/* Waits for the end of a hold: reads the state of a lock while it is 1, held, or 2, held and waited
 * for, with pauses between that double from `*pauses` to LOCK_PAUSES_MAX. A waiting thread only
 * reads, because a compare-and-swap takes the cache line from the holder, which needs it to release
 * the lock, and from all other waiting threads.
 * Returns: false when the pauses are over and the lock is held. */
bool lock_spin(const uint32_t *state, unsigned *pauses);

/* Whether the calling thread holds the lock. */
bool lock_is_mine(const struct lock *lock);

/* Before fork: takes the lock, unless this thread was interrupted while it held it, and freezes
 * it. A signal handler may fork at any point from the freeze to the thaw, so they nest; the
 * outermost thaw counts. */
void lock_freeze(struct lock *lock);

/* After fork: ends the freeze, in the parent and in the child, where this thread is the only one.
 */
void lock_thaw(struct lock *lock);

/* Whether the lock is frozen, approximately.
 * Threads: any. */
bool lock_is_frozen(const struct lock *lock);

/* Whether no thread was changing the protected data when the lock was frozen.
 * Threads: the forking thread, from lock_freeze to lock_thaw. */
bool lock_is_frozen_whole(const struct lock *lock);

#endif
