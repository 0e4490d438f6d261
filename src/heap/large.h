/* Large blocks: requests above MEDIUM_REQUEST_MAX. A block is a run of pages of an arena, or from
 * HUGE_MIN_BYTES on a mapping of its own. Blocks with an alignment of more than a page, which slabs
 * do not have, may be as small as a page.
 * Threads: any thread may free a block. A free and a resize exchange the tag of the span, so one of
 * two threads that do so at the same time fails. */
#ifndef CAIRN_HEAP_LARGE_H
#define CAIRN_HEAP_LARGE_H

#include "heap/run_cache.h"
#include "heap/thread_heap.h"

/* The number of pages of a new block for `size_bytes`: a length of the run cache, except in full
 * hardened builds, where a block has its exact number. */
inline_always size_t large_pages(size_t size_bytes)
{
    size_t pages = (size_bytes + PAGE_BYTES - 1) >> PAGE_SHIFT;
    return config_guarded_blocks ? pages : run_round(pages);
}

/* Whether a run may stay when its block gets another size: it has the number of pages for that
 * size, or is a short run of which at least three quarters are filled. */
inline_always bool large_suits(const struct span *span, size_t size_bytes)
{
    size_t pages = span->pages;
    size_t bytes = pages << PAGE_SHIFT;
    return large_pages(size_bytes) == pages ||
           (!config_guarded_blocks && pages > RUN_EXACT_PAGES && pages <= RUN_CACHE_SHORT_PAGES &&
            size_bytes <= bytes && size_bytes > bytes / 4 * 3);
}

/* The smallest number of bytes that a block for the request may have. */
inline_always size_t large_least(size_t size_bytes, size_t alignment_bytes)
{
    return larger_of(size_bytes, alignment_bytes > PAGE_BYTES ? 1 : (size_t)MEDIUM_REQUEST_MAX + 1);
}

/* Allocates a block. The requested `size_bytes` may be small if the alignment is large.
 * Returns: NULL when out of memory. */
struct span *large_allocate(size_t size_bytes, size_t alignment_bytes);

/* Frees a block.
 * Returns: false, with nothing changed, when another thread freed it at the same time. */
bool large_free(struct span *span, const void *block);

/* Takes a kept run of this thread for a block of that size and alignment, with undefined content.
 * Returns: NULL when none is kept. Threads: owner only. */
struct span *large_allocate_kept(size_t size_bytes, size_t alignment_bytes);

/* Takes a kept mapping (page/kept_mappings.h) for a block that need not read zero.
 * Returns: NULL when none fits. */
struct span *large_allocate_mapped(size_t size_bytes, size_t alignment_bytes);

/* Serves a malloc from the runs of its length in the run cache, or calls `slow`. */
inline_always void *large_malloc(size_t size_bytes, void *(*slow)(size_t))
{
    if (config_guarded_blocks || size_bytes > RUN_CACHE_SHORT_PAGES * PAGE_BYTES)
        return slow(size_bytes);
    size_t length = run_length((size_bytes + PAGE_BYTES - 1) >> PAGE_SHIFT);
    struct span *span = run_cache_take_first(&thread_heap->runs, length);
    return likely(span != NULL) ? span->base : slow(size_bytes);
}

/* Frees a block in a cycle of one short length, which belongs to no private heap and has no mark.
 * Returns: false when `pointer` is no such block, or large_free has to be called. */
inline_always bool large_free_short(const void *pointer, struct span *span)
{
    if (config_guarded_blocks)
        return false;
    struct run_cache *runs = &thread_heap->runs;
    span = run_cache_guess(runs, span);
    return span->tag == SPAN_LARGE && load_relaxed(&span->owner) == 0 && span->mark == 0 &&
           span->base == pointer && run_cache_keep_short(runs, span, pointer);
}

/* Locks a block that other threads may free or resize: its tag is SPAN_RESIZED until large_unlock.
 * Returns: false, with nothing changed, when another thread has freed or locked it. */
bool large_lock(struct span *span, const void *block);
void large_unlock(struct span *span);

/* Resizes a block in place or, if it `may_move`, a mapping by moving its page tables.
 * Returns: the block's address, or NULL when neither is possible.
 * Locking: large_lock held, where other threads may free the block. */
void *large_resize(struct span *span, size_t size_bytes, bool may_move);

/* Whether the span may be that of a block with this size and alignment. Exact to a quarter for
 * short runs of more than 8 pages (run_cache.h) and for mappings, which have spare pages if they
 * grew; otherwise to a page; in full hardened builds to a byte. */
bool large_matches(const struct span *span, size_t size_bytes, size_t alignment_bytes);

/* Allocates the destination of a large block that grows and has to move.
 * Returns: NULL when out of memory. */
struct span *large_allocate_growing(size_t size_bytes);

#endif
