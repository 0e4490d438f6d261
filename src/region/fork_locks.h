/* Locks of region allocators that are held over fork, so that what they guard is whole in the
 * child. They are taken in the order in which they were watched; see base/lock.h for freezing.
 */
#ifndef CAIRN_REGION_FORK_LOCKS_H
#define CAIRN_REGION_FORK_LOCKS_H

#include "base/lock.h"

struct fork_lock {
    struct lock lock;       /* the allocator's */
    struct fork_lock *next; /* lock: fork_locks.c */
    struct fork_lock *prev; /* lock: fork_locks.c */
};

/* From now on fork holds the lock. The memory stays until it is unwatched. 0 or a negative errno. */
int fork_lock_watch(struct fork_lock *lock);
void fork_lock_unwatch(struct fork_lock *lock);

/* Waits while another thread forks, too. The holder calls nothing that waits. */
void fork_lock_acquire(struct fork_lock *lock);
void fork_lock_release(struct fork_lock *lock);

#endif
