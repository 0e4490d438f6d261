/* Free spans of the arenas: bins by length, and splitting and merging by tags in the page map.
 *
 * Algorithm: two-level bins found through a bitmap, after TLSF. Each length below 64 pages has a
 * bin; longer lengths share 16 bins for each doubling. There are two sets of bins: spans that have
 * memory (dirty) and spans that have none (clean). Dirty spans are used first, because their memory
 * exists already.
 *
 * Slabs are freed and taken again with the same few lengths, often all slabs of a thread at once.
 * Merging and cutting their runs would be most of the cost. So the run of a slab is put into the
 * bins as it is: it is *loose*. Loose spans are merged with their neighbours when a request would
 * otherwise need memory that is not resident, and before memory is purged. The number of loose
 * spans is limited.
 *
 * Invariants, checked by pages_verify:
 *   - between the spans before each arena's frontier are only holes, fences, and pages for metadata
 *   - of two adjacent free spans at least one is loose (a span that is being purged is not free)
 *   - the first and the last page of a free span map to it
 *   - `mark` of a loose span is its place among the loose spans, counted from 1; of other free
 *     spans it is 0
 * Locking: shard's lock held, for all functions but free_spans_settle_all. */
#ifndef CAIRN_PAGE_FREE_SPANS_H
#define CAIRN_PAGE_FREE_SPANS_H

#include "page/span.h"

struct arena;
struct page_shard;

void bins_insert(struct span *span);

void bins_remove(struct span *span);

/* Finds a free span of the shard that contains `pages` pages at a multiple of `alignment_pages`, or
 * NULL: the best fit of a bounded search. The span stays in its bin. */
struct span *bins_find(const struct page_shard *shard, size_t pages, size_t alignment_pages);

/* Finds a span of the highest bin of a set, DIRTY or CLEAN, or NULL. It stays in its bin. */
struct span *bins_longest(const struct page_shard *shard, unsigned set);

/* Checks with assertions that bins and bitmaps agree. Returns: the number of pages in all bins. */
size_t bins_verify(const struct page_shard *shard);

/* Merges `span`, a run of `arena` that is in no bin, with its free neighbours and puts the result
 * into the bins. */
void span_release(struct arena *arena, struct span *span);

/* Takes a free span out of the bins and the page map, so that no neighbour merges with it. */
void span_withdraw(struct span *span);

/* Records that this thread purges the memory of a span, which is out of the bins (purge.h). */
void span_begin_purge(struct span *span);

void span_end_purge(struct span *span);

/* In the child of a fork: makes the spans free again that other threads were purging. */
void spans_end_others_purges(struct page_shard *shard);

/* Merges all loose spans with their free neighbours. Returns: whether there were any. */
bool spans_merge(struct page_shard *shard);

/* For a trim: marks parts of free spans as dirty that share a huge page with other spans and may be
 * resident with it (arena_mark_rests). */
void spans_mark_rests(struct page_shard *shard);

/* The free span that begins or ends with the given page. Returns: NULL if there is none. */
struct span *span_free_neighbour(const struct arena *arena, const char *page);

/* Cuts a run of `pages` pages out of a free span, or returns NULL if none fits. The remaining pages
 * return to the bins. The span has memory if `only_dirty`, and otherwise if possible.
 * `*dirty_pages` gets the number of pages of the run that may not read zero. The caller has made
 * sure that two unused headers without a cold area exist. */
char *range_carve(struct page_shard *shard, size_t pages, size_t alignment_pages, bool only_dirty,
                  size_t *dirty_pages);

/* Makes a free span of a committed range that has no owner. The caller has made sure that an unused
 * header without a cold area exists. */
void range_release(struct arena *arena, char *base, size_t pages, size_t dirty_pages);

/* Shortens a span that is out of the bins to the `pages` pages from `start` on. The other pages
 * become free spans.
 * Returns: false without an unused header for each of these; then nothing has changed. */
bool span_cut(struct span *span, char *start, size_t pages);

/* Frees the run `given`, if it is not NULL, and processes the stack of defer(): frees its runs and
 * keeps its headers. */
void free_spans_settle(struct page_shard *shard, struct span *given);

/* Processes the stacks of all shards: maybe no thread uses one again. Locking: none held. */
void free_spans_settle_all(void);

#endif
