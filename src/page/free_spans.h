/* Free spans of the arenas: split, and merged by boundary tags in the page map.
 *
 * Slabs come and go with the same lengths, often those of a whole thread at once. To merge their
 * runs and to cut them again is most of what that costs. So a slab's run is put into the bins as it
 * is, loose, and merged with its neighbours only when a run of a length that is not there would
 * take memory that is not there, or when memory goes back to the system; and when there are many.
 *
 * Invariant: behind each arena's frontier the spans lie gapless, no two free ones side by side but
 * for loose ones (and those whose memory is being purged); a free span's first and last pages map
 * to it; `until` of a loose one is its place among them, counted from 1, of another free one 0.
 * pages_verify checks it.
 *
 * Threading: all of it under the page lock.
 */
#ifndef CAIRN_PAGE_FREE_SPANS_H
#define CAIRN_PAGE_FREE_SPANS_H

#include "page/span.h"

struct arena;

/* Merges `span`, which lies in `arena` and is in no list, with its free neighbours and puts it into
 * the bins; and takes a free span out of them, so that its neighbours leave it alone. */
void span_release(struct arena *arena, struct span *span);
void span_withdraw(struct span *span);

/* A span that is out of the bins: its memory is purged without the lock, and no more. What other
 * threads have out like that is free again in a fork's child, which those threads are not in. */
void span_begin_purge(struct span *span);
void span_end_purge(struct span *span);
void spans_end_others_purges(void);

/* Whether a free span's `until` is what the invariant says. */
bool span_has_place(const struct span *span);

/* Merges all loose spans with their free neighbours. Whether there were any. */
bool spans_merge(void);

/* For a trim: free spans without memory count as dirty where they share a huge page with others and
 * may be resident with it. */
void spans_mark_rests(void);

/* The free span that begins or ends with the page; NULL if none. */
struct span *span_free_neighbour(const struct arena *arena, const char *page);

/* Takes a run out of the bins; what is left of its span goes back. Two headers are there. NULL if
 * none fits. */
char *range_carve(size_t pages, size_t alignment_pages, size_t *dirty_pages);

/* Lays a new free span over a committed range that is in no one's use. A header is there. */
void range_release(struct arena *arena, char *base, size_t pages, size_t dirty_pages);

/* Does what was deferred while the lock was frozen. Returns the runs that lie in no arena, linked
 * by `next`: for apart_give, once the lock is released. */
struct span *deferred_settle(void);

/* At the end of whatever took dirty pages: what left the bins for a moment, to be cut or merged,
 * was not needed. */
void note_dirty_low(void);

#endif
