/* The soft and the hard limit: what they count, and what is done before one would be exceeded.
 *
 *   counted = pages of arenas in use + free pages not purged + pages of huge blocks
 *             + pages kept outside the arenas + pages of runs taken during a fork
 *             - swept pages: pages inside slabs that were purged
 *
 * A run counts as a whole from when it is taken, touched or not. Purged free pages do not count, so
 * each take is checked, not only the growth of arenas. Metadata does not count.
 *
 * The heap records for each slab which of its pages are swept. The sum over all slabs is
 * `swept_pages`:
 *   a slab is swept       by the thread that holds its use word at PURGED: first the sum, then
 *                         the bits of the slab
 *   it becomes current    by the holder of its heap: first the bits, then, if admitted, the sum
 *   it is given back      by its owner: its pages leave the sum before the run becomes free, so no
 *                         page is subtracted twice. The pages of the slab count as dirty, like the
 *                         rest of the run, because a late store may have made a page resident again
 *
 * In the child of a fork the slabs of other threads stay as they are, and their swept pages stay
 * without memory. Each such slab has a block that was free at the fork, so it never becomes empty
 * (heap/thread_heap.h). A fork between two of these steps leaves the child a sum that is too large
 * by the pages of one slab, never one that is too small.
 *
 * Above the soft limit all free memory is purged. The hard limit applies to each take, which is
 * admitted under the page lock (state.h). If a take would exceed it, first the necessary amount of
 * free memory is purged; if that is not enough, the take is refused. Swept pages count again
 * without admission when their slab is given back; then pages_heed_limits purges free memory. While
 * another thread forks there is no lock: threads that take at the same moment may exceed the limit
 * by what they take.
 * Locking: none held, for functions that claim, enforce, heed, purge, give or wait. */
#ifndef CAIRN_PAGE_LIMITS_H
#define CAIRN_PAGE_LIMITS_H

#include "base/compiler.h"

size_t limits_counted_pages(void);

/* Whether `pages` more pages may be in huge pages of 2 MiB: the option is HUGE_PAGES_AUTO, the
 * system is not short of memory, and no limit is near. Near the limit of a control group the kernel
 * itself provides small pages. */
bool limits_admit_huge_pages(size_t pages);

/* Purges all free memory if `pages` more pages would exceed the soft limit. */
void limits_enforce_soft(size_t pages);

/* Does this, and unmaps kept mappings before the process becomes larger than ever. Called before an
 * arena grows by `pages`, and with 0 after a claimed mapping was made, which has no memory yet. */
void limits_heed_growth(size_t pages);

/* How often a take is checked again after limits_purge_for_hard. */
enum { LIMIT_TRIES = 3 };

/* Calls the function of pages_on_refusal. */
bool limits_give_kept(void);

/* Waits a millisecond for other threads that purge, of which `*waited` counts.
 * Returns: false if none purges, or after a tenth of a second. */
bool limits_wait_for_purges(unsigned *waited);

/* Whether `pages` more pages stay within the hard limit. If not, the caller releases the lock,
 * calls limits_purge_for_hard and checks again, at most LIMIT_TRIES times.
 * Locking: page lock held if there is a hard limit, except while another thread forks. */
bool limits_admit_hard(size_t pages);

/* Purges free memory until `pages` more pages are within the hard limit.
 * Returns: false when the memory in use alone exceeds the limit; then the take is refused. */
bool limits_purge_for_hard(size_t pages);

/* Counts the pages of a mapping before it is made. Returns: false when the hard limit refuses. */
bool limits_claim_mapping(size_t pages);

/* Ends the count of pages of a mapping that was not made, or was shortened. */
void limits_unclaim_mapping(size_t pages);

#endif
