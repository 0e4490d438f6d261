/* Growth of the arenas: commits more pages for the bins, makes free ones holes when the system
 * commits no more, and provides pages for metadata when it has no more addresses.
 *
 * With HUGE_PAGES_AUTO huge pages are requested only where memory will be filled from its start to
 * its end: for the growth of a dense heap of some MiB, and for large blocks that grow (mappings.c).
 * Elsewhere a huge page would be resident as a whole once one byte of it was touched.
 *
 * The heap is dense if three quarters of what was added last are blocks of at most a page, which
 * the `fresh_slot` of each slab counts. Longer blocks may be buffers or stacks that the program
 * hardly uses, so they count as untouched, as free pages do. No block is read (decision 50). The
 * system may refuse the request, or have no huge pages; then nothing changes.
 * Threads: any, no lock held. grow_is_touched reads headers that other threads may change: of each
 * only `tag` and, where the header has a cold area, `fresh_slot`, atomically. Such headers serve
 * slabs and free spans, so of the fields in the word of `fresh_slot` they have only `dirty_pages`,
 * which is stored atomically, too. A span that has become another one since the page map was read
 * is counted wrong, by at most its own pages. */
#ifndef CAIRN_PAGE_GROW_H
#define CAIRN_PAGE_GROW_H

#include "base/compiler.h"

#include <stdint.h>

struct page_shard;

/* Commits more pages of an arena of the shard, or of a new one, at least `pages` of them in one
 * run, and frees them into its bins.
 * Returns: 0 or a negative errno: -ENOMEM when the system refuses to commit, -ENOSPC when out of
 * addresses or of metadata, -ENOBUFS without a header, -EAGAIN while the lock is frozen for a
 * fork. */
int pages_grow(struct page_shard *shard, size_t pages);

/* Lets the system commit `pages` other pages, or a growth by as many, in place of free ones: as
 * many free ones, or all, of all shards become holes. Only long ones if many pages are needed.
 * Waits for the pages that another thread is purging if there are no others. Returns: whether to
 * try again. */
bool grow_make_room(size_t pages, bool all);

/* With HUGE_PAGES_AUTO, heaps from this size on ask for huge pages: one is a quarter of it. */
static const size_t HUGE_PAGES_FROM_BYTES = (size_t)8 << 20;

/* The longest growth, in pages, that can be recorded. */
enum { GROW_NOTED_MAX = (1 << 12) - 1 };

/* Records that the heap grew by `pages` pages from `start` on, for no single long run. */
void grow_note(const char *start, size_t pages);

/* Whether three quarters of the last two growths are touched. The last one alone may consist of
 * slabs that were only just opened. */
bool grow_is_touched(void);

/* Takes pages from an arena for ever, zero and between fences.
 * Returns: NULL when no arena has the pages, or while the locks are frozen. */
char *arena_pages_for_metadata(size_t size_bytes);

#endif
