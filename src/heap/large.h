/* Blocks above MEDIUM_MOST: runs of pages of an arena, and above HUGE_MIN_BYTES mappings of their
 * own. Those that grow may be shorter, down to GROWTH_LEAST_BYTES. */
#ifndef CAIRN_HEAP_LARGE_H
#define CAIRN_HEAP_LARGE_H

#include "heap/growth.h"
#include "heap/thread_heap.h"

inline_always size_t large_pages(size_t size_bytes)
{
    return (size_bytes + PAGE_BYTES - 1) >> PAGE_SHIFT;
}

/* Whether the block of such a span may keep it with another size: not what slabs serve, but where
 * it has grown and does not shrink. */
inline_always bool large_serves(const struct span *span, size_t size_bytes)
{
    return size_bytes > MEDIUM_MOST || (config_growth && size_bytes > GROWTH_LEAST_BYTES &&
                                        large_pages(size_bytes) >= span->pages);
}

/* One that a slab's class would have served. */
inline_always bool large_is_short(const struct span *span)
{
    return config_growth && span->tag == SPAN_LARGE && span->pages <= MEDIUM_MOST >> PAGE_SHIFT;
}

/* `size_bytes` as asked for, which may be little where the alignment is large. NULL when memory is
 * out. */
struct span *large_allocate(size_t size_bytes, size_t alignment_bytes);

/* False, and nothing happened, when another thread freed it at the same time. */
bool large_free(struct span *span, const void *block);

/* Likewise, aligned to a page, one that this thread freed just now; NULL when there is none. */
struct span *large_allocate_kept(size_t size_bytes);

/* The same for malloc, whose `slow` is called where there is none. */
void *large_malloc_long(size_t size_bytes, void *(*slow)(size_t));

inline_always void *large_malloc(size_t size_bytes, void *(*slow)(size_t))
{
    if (config_guarded_blocks)
        return slow(size_bytes);
    if (size_bytes > RUN_CACHE_SHORT_PAGES * PAGE_BYTES)
        return large_malloc_long(size_bytes, slow);
    struct span *span = run_cache_take_short(&thread_heap->runs, large_pages(size_bytes));
    return likely(span != NULL) ? span->base : slow(size_bytes);
}

/* No block of a first-class heap, none that grew, and none that somebody wants to hear of. */
inline_always bool large_is_plain(const struct span *span)
{
    return span->tag == SPAN_LARGE && load_relaxed(&span->owner) == 0 && span->until == 0 &&
           !span->grew;
}

/* What large_free does in a cycle of one short length: false, and nothing happened, where the
 * address is not that of a large block, or there is more to do. */
inline_always bool large_free_short(const void *pointer, struct span *span)
{
    if (config_guarded_blocks)
        return false;
    struct run_cache *runs = &thread_heap->runs;
    span = run_cache_guess(runs, span);
    return large_is_plain(span) && span->base == pointer &&
           run_cache_keep_short(runs, span, pointer);
}

/* From here on nobody else may free or resize the block, until it is let go. False when another
 * thread freed it meanwhile, or holds it. */
bool large_hold(struct span *span, const void *block);
void large_let_go(struct span *span);

/* In place or, for mappings, by moving page tables: the block's address after it, NULL when that is
 * not possible. The block is held, where others may free it. */
void *large_resize(struct span *span, size_t size_bytes);

/* The same, but it never moves: whether it has the size. */
bool large_resize_in_place(struct span *span, size_t size_bytes);

/* Whether a block of this size may have this span. Exact to a page, but for mappings that grew,
 * which have room to spare; in full hardened builds to a byte. */
bool large_matches(const struct span *span, size_t size_bytes);

/* A new block for one that grows and has to move: one that will grow cheaply again. The second also
 * of a size that slabs serve; NULL where such a one had no room behind it. */
struct span *large_allocate_growing(size_t size_bytes);
struct span *large_allocate_with_room(size_t size_bytes);

#endif
