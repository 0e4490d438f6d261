/* Large blocks: see large.h. The page layer does the work; here stands which of its two kinds a
 * block becomes.
 *
 * Runs of an arena are cheap to get and to give (no system call while the dirty cap lasts) and pack
 * to a page; mappings grow by moving page tables. So a block is a run up to HUGE_MIN_BYTES, but one
 * that has to move while it grows becomes a mapping above GROWING_MOST_BYTES, with some address
 * space to spare: it is likely to grow on. What it leaves is kept for the next one that grows
 * (page/room.h).
 *
 * In full hardened builds every block is a guarded mapping; where the system gives none, what fits
 * becomes a run without guards all the same.
 */
#include "heap/large.h"

#include "base/bits.h"
#include "heap/program_limit.h"
#include "heap/program_notes.h"
#include "heap/tick.h"
#include "heap/tracing.h"
#include "os/os.h"

enum {
    HUGE_MIN_BYTES = 32 << 20,
    HUGE_ALIGNMENT_BYTES = 4 << 20, /* an arena would have to hold the slack */
    GROWING_MOST_BYTES = 1 << 20,   /* of a growing block that is a run */
};

static size_t pages_for(size_t size_bytes) { return (size_bytes + PAGE_BYTES - 1) >> PAGE_SHIFT; }

/* The span serves a request of so many bytes. */
static struct span *note_asked(struct span *span, size_t size_bytes)
{
    if (span)
        span->until = 0; /* a header's last use may have left it; see profiling.h */
    if (config_guarded_blocks && span)
        span->asked_bytes = size_bytes;
    return span;
}

static struct span *take(size_t size_bytes, size_t alignment_bytes)
{
    if (size_bytes > PTRDIFF_MAX || alignment_bytes > PTRDIFF_MAX / 2 + 1 ||
        size_bytes + alignment_bytes > PTRDIFF_MAX)
        return NULL;
    heaps_tick();
    bool huge = size_bytes >= HUGE_MIN_BYTES || alignment_bytes > HUGE_ALIGNMENT_BYTES;
    if (config_guarded_blocks) {
        struct span *span = pages_map_guarded(size_bytes, alignment_bytes, 0);
        if (span || huge)
            return span;
    } else if (huge) {
        struct span *span = pages_map_huge(size_bytes, alignment_bytes);
        if (unlikely(span == NULL) && heaps_empty_run_caches())
            span = pages_map_huge(size_bytes, alignment_bytes);
        return span;
    }
    struct span *span = pages_take(pages_for(size_bytes), alignment_bytes);
    if (unlikely(span == NULL) && heaps_empty_run_caches())
        span = pages_take(pages_for(size_bytes), alignment_bytes);
    if (span && span->zero && thread_heap != &no_heap)
        (void)run_cache_empty(&thread_heap->runs); /* as slab_make */
    return span;
}

struct span *large_allocate(size_t size_bytes, size_t alignment_bytes)
{
    return note_asked(take(larger_of(size_bytes, MEDIUM_MOST + 1), alignment_bytes), size_bytes);
}

struct span *large_allocate_kept(size_t size_bytes)
{
    struct heap *heap = thread_heap;
    if (config_guarded_blocks || size_bytes > RUN_CACHE_MAX_PAGES * PAGE_BYTES || heap == &no_heap)
        return NULL;
    return run_cache_take(&heap->runs, pages_for(size_bytes));
}

bool large_free(struct span *span)
{
    uint8_t kind = load_relaxed(&span->tag);
    if (unlikely((kind != SPAN_LARGE && kind != SPAN_HUGE) ||
                 !compare_swap_acq_rel(&span->tag, &kind, (uint8_t)SPAN_KEPT)))
        return false;
    if (unlikely(load_relaxed(&span->owner) != 0))
        program_lose_large(span);
    if (unlikely(span->until != 0))
        heap_forget_marked_span(span);
    struct heap *heap = thread_heap;
    if (config_guarded_blocks && kind == SPAN_HUGE)
        pages_give_guarded(span);
    else if (kind == SPAN_HUGE)
        pages_give_huge(span);
    else if (config_guarded_blocks || unlikely(heap == &no_heap))
        pages_give(span);
    else if (!run_cache_put(&heap->runs, span))
        return true;
    heaps_tick();
    return true;
}

static void *resize(struct span *span, size_t size_bytes, bool may_move)
{
    size_t pages = pages_for(size_bytes);
    if (span->tag == SPAN_HUGE && config_guarded_blocks)
        return pages == span->pages || pages_resize_guarded(span, size_bytes, may_move) ? span->base
                                                                                        : NULL;
    if (span->tag == SPAN_HUGE) {
        bool keeps = pages <= span->pages && pages >= span->pages - span->pages / 4;
        bool has_spare = pages > span->pages && load_relaxed(&span->owner) == 0;
        if (!keeps && !pages_extend_huge(span, pages) &&
            !pages_resize_huge(span, size_bytes + (has_spare ? size_bytes / 8 : 0), may_move) &&
            (pages < span->pages || !pages_resize_huge(span, size_bytes, may_move)))
            return pages <= span->pages ? span->base : NULL;
        return span->base;
    }
    bool in_place = pages == span->pages ||
                    (pages < span->pages ? pages_shrink(span, pages) : pages_extend(span, pages));
    return in_place ? span->base : NULL;
}

static void *resize_counted(struct span *span, size_t size_bytes, bool may_move)
{
    if (size_bytes <= MEDIUM_MOST || size_bytes > PTRDIFF_MAX)
        return NULL;
    size_t counted = 0;
    bool is_counted = unlikely(load_relaxed(&span->owner) != 0); /* a first-class heap's */
    if (is_counted && !program_begin_resize(span, pages_for(size_bytes), &counted))
        return NULL;
    void *block = resize(span, size_bytes, may_move);
    if (is_counted)
        program_end_resize(span, counted);
    if (config_guarded_blocks && block)
        span->asked_bytes = size_bytes;
    return block;
}

void *large_resize(struct span *span, size_t size_bytes)
{
    return resize_counted(span, size_bytes, true);
}

bool large_resize_in_place(struct span *span, size_t size_bytes)
{
    return resize_counted(span, size_bytes, false) != NULL;
}

bool large_matches(const struct span *span, size_t size_bytes)
{
    if (config_guarded_blocks)
        return size_bytes == span->asked_bytes;
    size_t bytes = (size_t)span->pages << PAGE_SHIFT;
    size_t spare = span->tag == SPAN_HUGE ? bytes / 4 + PAGE_BYTES : 0;
    size_t least = larger_of(size_bytes, MEDIUM_MOST + 1);
    return size_bytes <= bytes && align_up(least, os_page_size()) + spare >= bytes;
}

/* What gets no mapping of its own becomes a block like others. */
static struct span *take_growing(size_t size_bytes)
{
    struct span *span = NULL;
    bool has_spare = size_bytes <= PTRDIFF_MAX / 2;
    if (config_guarded_blocks && has_spare)
        span = pages_map_guarded(size_bytes, PAGE_BYTES, size_bytes / 8);
    else if (has_spare && size_bytes > GROWING_MOST_BYTES)
        span = pages_map_growing(size_bytes);
    if (span && span->zero) /* else its pages are there */
        pages_expect_filled(span);
    return span ? span : take(size_bytes, PAGE_BYTES);
}

struct span *large_allocate_growing(size_t size_bytes)
{
    return note_asked(take_growing(size_bytes), size_bytes);
}
