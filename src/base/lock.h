/* A small futex lock with a rank, an owner, and a freeze for fork.
 *
 * Algorithm: three states (free, held, held with waiters) after Ulrich Drepper, "Futexes Are
 * Tricky", mutex 3. Ranks: a thread takes locks in rising rank only; debug builds check it. Fork:
 * the forking thread holds the lock over clone(), but libc takes its stdio locks in between, which
 * a thread that waits here may hold. So nobody ever waits for a frozen lock: lock_acquire returns
 * false and the caller takes its lock-free way round. A state of its own says so: were it that of a
 * held lock, a thread that announces itself late, and then goes away, would let another one fall
 * asleep that announced itself before the freeze. Not recursive, not fair, no system call
 * unless contended.
 */
#ifndef CAIRN_BASE_LOCK_H
#define CAIRN_BASE_LOCK_H

#include "base/compiler.h"

struct lock {
    uint32_t state;      /* atomic: 0 free, 1 held, 2 held and waited for, 3 frozen */
    uint32_t frozen;     /* atomic, written by the holder: 1 between lock_freeze and lock_thaw */
    uintptr_t owner;     /* atomic, written by the holder: its thread identity, 0 when free */
    uint32_t rank;       /* const after init, below 16 */
    bool held_at_freeze; /* holder: the forking thread held it already, interrupted by a signal */
    bool freezing;       /* holder: from the freeze to the thaw */
    uint32_t nested;     /* holder: forks of signal handlers that interrupted these two */
};

/* True when held; false when the lock is frozen for a fork in another thread. Pairs with
 * lock_release. */
bool lock_acquire(struct lock *lock) __attribute__((warn_unused_result));
void lock_release(struct lock *lock);
bool lock_is_mine(const struct lock *lock);

/* Before fork: takes the lock, unless this thread was interrupted while it held it, and freezes it.
 * Pairs with lock_thaw, in the parent and in the child, where this thread is the only one. A signal
 * handler may fork anywhere between the two, so they nest; the outermost thaw counts. */
void lock_freeze(struct lock *lock);
void lock_thaw(struct lock *lock);

/* The holder's, between the two: nobody was in the middle of what the lock protects. */
bool lock_is_frozen_whole(const struct lock *lock);

#endif
