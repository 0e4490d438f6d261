/* The limits: what counts, and what is done before one would be passed.
 *
 *   counted = pages of arenas in use + free ones not given back + huge ones + those apart
 *             - swept ones: pages inside slabs that were given back
 *
 * A run counts whole from when it is taken, touched or not. Free pages that were given back do not
 * count, so what matters is each take, not only the growth of arenas. Metadata does not count.
 *
 * The heap keeps, in each slab, which of its pages are swept; the sum of all is `swept_pages`:
 *
 *   a slab is swept          who holds its use word at PURGED: the sum first, then the slab's bits
 *   it becomes current       its heap's holder: the bits first, then, admitted, the sum
 *   it goes to the bins      page lock: they leave the sum as the run becomes free, so no page is
 *                            missing twice. As free ones they are dirty, like the rest of the run,
 *                            for a store that came late may have brought a page back
 *
 * In the child of a fork the slabs of other threads stay as they are, and their swept pages with no
 * memory: each has a block that was free at the fork, so such a slab never goes (frozen.h). And a
 * fork between two steps leaves the child a sum that is too large by the pages of a slab, never one
 * that is smaller than the bits of its slabs.
 *
 * Above the soft limit all free memory goes back. The hard limit is never passed: what is taken is
 * admitted under the page lock, where all takers meet; first so much free memory goes back as is
 * needed, then the take is refused. While another thread forks there is no lock: then the counts
 * are read as they are, and threads that take at once may pass the limit by what they take.
 */
#ifndef CAIRN_PAGE_BOUND_H
#define CAIRN_PAGE_BOUND_H

#include "base/compiler.h"

/* What counts, now. */
size_t counted_pages(void);

/* Whether so many pages more may be huge ones, in fact: HUGE_PAGES_AUTO, and no limit is near. */
bool huge_pages_fit(size_t pages);

/* Purges all free memory when so many pages more would pass the soft limit. No lock held. */
void heed_soft_limit(size_t pages);

/* After what counts may have grown: the same, and where more would count than ever before, room
 * goes back instead, and for runs of arenas free pages, too: those that were too short or of other
 * lengths, at most twice the peak (a quarter of it in a process with threads) and 16 MiB more a
 * second. Not for a mapping, which is seldom filled at once. Most of what was taken just now is not
 * touched yet. No lock held. With fences (room.h) only the first. */
void heed_growth(bool of_runs);

/* Whether so many pages more stay within the hard limit: page lock. If not, what is needed is
 * purged, with no lock held, and then it is asked again, a few times; false when that cannot do. */
enum { LIMIT_TRIES = 3 };
bool hard_limit_admits(size_t pages);
bool purge_for_hard_limit(size_t pages);

/* Counts pages of a mapping that is to be made; given up, or counted otherwise by then. No lock
 * held. False when the hard limit refuses. */
bool huge_claim(size_t pages);
void huge_unclaim(size_t pages);

#endif
