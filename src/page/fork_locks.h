/* Locks of heaps and allocators that fork holds, so that what they guard is whole in the child.
 *
 * Algorithm: three states (free, held, held and waited for) after Ulrich Drepper, "Futexes Are
 * Tricky", mutex 3. Beside base/lock.h, because there are any number of these, of one rank, and the
 * forking thread holds them all: base/lock.h tells an interrupted holder from a stranger by what a
 * thread holds, and so must find none of these there. A thread that holds one takes no other of
 * them, nothing of lower rank than the page layer's, and makes no system call but the page layer's.
 *
 * A waiting thread waits until the fork is over. If it holds a lock meanwhile that fork itself
 * takes (stdio's), neither goes on: so the public headers ask not to.
 */
#ifndef CAIRN_PAGE_FORK_LOCKS_H
#define CAIRN_PAGE_FORK_LOCKS_H

#include "base/compiler.h"

struct fork_lock {
    uint32_t state;         /* atomic: 0 free, 1 held, 2 held and waited for */
    struct fork_lock *next; /* lock: the list's, see fork_locks.c */
    struct fork_lock *prev; /* lock: the list's */
};

/* From now on fork holds the lock. Its memory stays until it is unwatched. 0 or a negative errno.
 */
int fork_lock_watch(struct fork_lock *lock);
void fork_lock_unwatch(struct fork_lock *lock);

/* Tells a child of fork from its parent, once a lock was watched: its generation. */
uint32_t fork_lock_process(void);

void fork_lock_acquire(struct fork_lock *lock); /* pairs with fork_lock_release */
bool fork_lock_try(struct fork_lock *lock);     /* likewise; false: it was held for some time */
void fork_lock_release(struct fork_lock *lock);

#endif
