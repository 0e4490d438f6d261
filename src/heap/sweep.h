/* Sweeps: free pages inside slabs are purged, whichever thread has the slab. A free block contains
 * no metadata, so any thread may purge a page on which no block is in use. The page reads zero when
 * it is used again.
 *
 * Once a decay interval a thread walks over the slabs in the order of their addresses, in parts
 * (sweep_walk). A slab that is aside and has not changed since the walk before gives its free
 * pages. So memory that is freed and used again within an interval stays. Pages that others freed
 * of an idle thread's slabs are given at once. A huge page that Cairn asked for is left whole while
 * less than a quarter of it is free. A walk takes WALK_STEPS steps, half a GiB to 2 GiB of slabs,
 * and the next one continues behind them.
 *
 * The owner takes no lock. The use word of the slab says PURGED from the look at its links until
 * its pages are purged. Meanwhile its owner does not make it current (slab.h), and blocks are
 * handed out of current slabs only. The owner and other threads may free blocks of it: that makes
 * more of its pages free, not fewer.
 *
 * The accesses of a block's last user happen before the purge. The free that marked the block is
 * read with acquire; or it was a free by the owner, whose late stores would only bring back a page
 * without content.
 *
 * `given` holds the pages of a slab that were purged since it was put aside. The system is not
 * called for them again, and they do not count for the limits (page/limits.h).
 *
 * Not swept: current slabs, of which a thread that sleeps has few (heap_look); slabs of blocks of 0
 * bytes, which have no memory; inherited slabs; and slabs of private heaps, which have a lock of
 * their own and can end with blocks in use. The use word of these says ASIDE at no time. */
#ifndef CAIRN_HEAP_SWEEP_H
#define CAIRN_HEAP_SWEEP_H

#include "heap/thread_heap.h"

/* The work that one call may do in a walk: a step counts 1, a purged page counts SWEEP_PAGE_WORK.
 * Between two looks at the work that is left there are SWEEP_PART steps; a visit to one heap counts
 * as many. */
enum { SWEEP_WORK = 2048, SWEEP_PAGE_WORK = 4, SWEEP_PART = 16 };

/* Begins a walk, unless arenas are in huge pages. Threads: one at a time. */
void sweep_begin(void);

/* Continues the walk.
 * Returns: whether a part of it is left. Threads: one at a time.
 * Cost: bounded by `work`; the last neighbours that are purged together may exceed it. */
bool sweep_walk(long work);

/* Purges the free pages of all slabs that are aside. Returns: true if a page was purged.
 * Threads: any. Cost: a look at every slab. */
bool sweep_slabs(void);

/* Purges and counts the free pages of a slab whose use word the caller has changed to PURGED. */
unsigned slab_purge_aside(struct span *slab);

#endif
