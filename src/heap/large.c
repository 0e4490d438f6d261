/* The choice between the two kinds of large blocks (large.h), and their resizing. The page layer
 * does the work.
 *
 * Runs of an arena are cheap to take and to give, without a system call while the cap is not
 * exceeded. Up to RUN_CACHE_SHORT_PAGES they have the lengths of the run cache, so that a freed run
 * serves other blocks; longer ones pack to a page. Mappings grow by moving page tables. So a block
 * below HUGE_MIN_BYTES is a run, except that a large block that has to move while it grows beyond
 * GROWING_MAX_BYTES becomes a mapping with some spare addresses, because it will probably grow
 * again. A freed mapping is kept for the next block that grows (page/kept_mappings.h). If the
 * system refuses a mapping, the arenas may still have a run.
 *
 * In full hardened builds every block is a guarded mapping. If the system refuses it, a block below
 * HUGE_MIN_BYTES becomes a run without guards. */
#include "heap/large.h"

#include "base/alone.h"
#include "base/bits.h"
#include "heap/hooks.h"
#include "heap/private_state.h"
#include "heap/slab_lists.h"
#include "heap/thread_heap.h"
#include "os/memory.h"

enum {
    HUGE_MIN_BYTES = 32 << 20,
    HUGE_ALIGNMENT_BYTES = 4 << 20, /* above this an arena would need too much slack */
    GROWING_MAX_BYTES = 1 << 20,    /* above this a block that grows becomes a mapping */
};

/* Notes the requested size of a new block, if there is one. Returns: `span`. */
static struct span *large_note_asked(struct span *span, size_t size_bytes)
{
    if (span)
        span->mark = 0; /* the header may still have the mark of another block */
    if (config_guarded_blocks && span)
        span->asked_bytes = size_bytes;
    return span;
}

static struct span *large_take(size_t size_bytes, size_t alignment_bytes)
{
    if (alignment_bytes > PTRDIFF_MAX || size_bytes > PTRDIFF_MAX - alignment_bytes)
        return NULL;
    pages_tick();
    bool huge = size_bytes >= HUGE_MIN_BYTES || alignment_bytes > HUGE_ALIGNMENT_BYTES;
    if (config_guarded_blocks) {
        struct span *span = pages_map_guarded(size_bytes, alignment_bytes, 0);
        if (span || huge)
            return span;
    } else if (huge) {
        struct span *span = pages_map_huge(size_bytes, alignment_bytes);
        /* At an address-space limit only the arenas may have addresses left. */
        if (unlikely(span == NULL))
            span = pages_take_free(large_pages(size_bytes), alignment_bytes);
        return span;
    }
    return pages_take(large_pages(size_bytes), alignment_bytes);
}

struct span *large_allocate(size_t size_bytes, size_t alignment_bytes)
{
    return large_note_asked(large_take(large_least(size_bytes, alignment_bytes), alignment_bytes),
                            size_bytes);
}

struct span *large_allocate_kept(size_t size_bytes, size_t alignment_bytes)
{
    struct heap *heap = thread_heap;
    if (config_guarded_blocks || size_bytes > RUN_CACHE_SHORT_PAGES * PAGE_BYTES ||
        heap == &no_heap)
        return NULL;
    return run_cache_take(&heap->runs, large_pages(larger_of(size_bytes, 1)), alignment_bytes);
}

struct span *large_allocate_mapped(size_t size_bytes, size_t alignment_bytes)
{
    if (config_guarded_blocks || likely(size_bytes < HUGE_MIN_BYTES) ||
        alignment_bytes > PAGE_BYTES || size_bytes > PTRDIFF_MAX)
        return NULL;
    pages_tick();
    return large_note_asked(pages_map_kept(size_bytes), size_bytes);
}

bool large_free(struct span *span, const void *block)
{
    uint8_t kind = load_relaxed(&span->tag);
    if (unlikely((kind != SPAN_LARGE && kind != SPAN_HUGE) ||
                 !run_cache_mark(span, block, load_relaxed(&span->pages), kind)))
        return false;
    if (unlikely(load_relaxed(&span->owner) != 0))
        private_heap_lose_large(span);
    if (unlikely(span->mark != 0))
        free_hooked(span, span->base);
    struct heap *heap = thread_heap;
    if (config_guarded_blocks && kind == SPAN_HUGE)
        pages_give_guarded(span);
    else if (kind == SPAN_HUGE)
        pages_give_huge(span);
    else if (config_guarded_blocks || unlikely(heap == &no_heap))
        pages_give(span);
    else if (!run_cache_put(&heap->runs, span))
        return true;
    pages_tick();
    if (heap != &no_heap)
        heap_note_call(heap);
    return true;
}

/* The kind of the block, whether it is locked or not. */
static uint8_t large_kind_of(const struct span *span)
{
    uint8_t tag = load_relaxed(&span->tag);
    return tag == SPAN_RESIZED ? (uint8_t)load_relaxed(&span->mail_state) : tag;
}

/* Release: pairs with the swap of a thread that frees the block. */
void large_unlock(struct span *span) { store_release(&span->tag, large_kind_of(span)); }

/* Two threads may write mail_state at the same time, and both write one value: the thread that
 * swaps the tag has locked the block. If the header is another block's by now, that block is
 * unlocked again: its own free is valid. */
bool large_lock(struct span *span, const void *block)
{
    uint8_t kind = load_relaxed(&span->tag);
    if (unlikely(kind != SPAN_LARGE && kind != SPAN_HUGE))
        return false;
    store_relaxed(&span->mail_state, large_resized(kind));
    if (unlikely(!compare_swap_if_threaded(&span->tag, &kind, (uint8_t)SPAN_RESIZED)))
        return false;
    if (likely(span->base == block))
        return true;
    large_unlock(span);
    return false;
}

/* Whether a mapping keeps its length. One that has grown may have an eighth to spare for its next
 * steps; the small tail of any other is not worth a system call. */
static bool large_mapping_suits(const struct span *span, size_t pages)
{
    size_t most_spare = span->grew ? span->pages / 8 : span->pages / 32;
    return config_guarded_blocks ? pages == span->pages
                                 : pages <= span->pages && span->pages - pages <= most_spare;
}

static void *large_resize_mapping(struct span *span, size_t size_bytes, bool may_move)
{
    size_t pages = large_pages(size_bytes);
    if (large_mapping_suits(span, pages))
        return span->base;
    pages_tick();
    if (config_guarded_blocks)
        return pages_resize_guarded(span, size_bytes, may_move) ? span->base : NULL;
    bool has_spare = pages > span->pages && load_relaxed(&span->owner) == 0;
    bool resized = pages_extend_huge(span, pages) ||
                   pages_resize_huge(span, has_spare ? pages_growing_bytes(size_bytes) : size_bytes,
                                     may_move) ||
                   (pages >= span->pages && pages_resize_huge(span, size_bytes, may_move));
    return resized || pages <= span->pages ? span->base : NULL;
}

static void *large_resize_span(struct span *span, size_t size_bytes, bool may_move)
{
    size_t pages = large_pages(size_bytes);
    if (large_kind_of(span) == SPAN_HUGE)
        return large_resize_mapping(span, size_bytes, may_move);
    if (large_suits(span, size_bytes))
        return span->base;
    pages_tick(); /* a program may do nothing else for a long time */
    bool resized = pages < span->pages ? pages_shrink(span, pages) : pages_extend(span, pages);
    return resized ? span->base : NULL;
}

void *large_resize(struct span *span, size_t size_bytes, bool may_move)
{
    if (size_bytes <= MEDIUM_REQUEST_MAX || size_bytes > PTRDIFF_MAX)
        return NULL;
    size_t counted = 0;
    bool is_counted = unlikely(load_relaxed(&span->owner) != 0); /* a block of a private heap */
    if (is_counted && !private_heap_begin_resize(span, large_pages(size_bytes), &counted))
        return NULL;
    void *block = large_resize_span(span, size_bytes, may_move);
    if (is_counted)
        private_heap_end_resize(span, counted);
    if (config_guarded_blocks && block)
        span->asked_bytes = size_bytes;
    return block;
}

bool large_matches(const struct span *span, size_t size_bytes, size_t alignment_bytes)
{
    if (class_of_request(size_bytes, alignment_bytes) != CLASS_COUNT)
        return false;
    if (config_guarded_blocks)
        return size_bytes == span->asked_bytes;
    size_t bytes = (size_t)span->pages << PAGE_SHIFT;
    if (span->tag == SPAN_HUGE) { /* may have grown, or have taken the addresses of one that grew */
        size_t most = align_up(size_bytes, os_page_size()) + bytes / 4 + PAGE_BYTES;
        return size_bytes <= bytes &&
               (span->longer || larger_of(most, pages_growing_bytes(size_bytes)) >= bytes);
    }
    size_t most = align_up(large_least(size_bytes, alignment_bytes), os_page_size());
    return large_suits(span, size_bytes) || (size_bytes <= bytes && most >= bytes);
}

/* If no mapping is available, it is a block like any other. */
struct span *large_allocate_growing(size_t size_bytes)
{
    struct span *span;
    bool has_spare = size_bytes <= PTRDIFF_MAX / 2;
    if (config_guarded_blocks && has_spare)
        span = pages_map_guarded(size_bytes, PAGE_BYTES, size_bytes / 8);
    else if (has_spare && size_bytes > GROWING_MAX_BYTES)
        span = pages_map_growing(size_bytes);
    else
        span = large_allocate_kept(size_bytes, PAGE_BYTES);
    if (span == NULL)
        span = large_take(size_bytes, PAGE_BYTES);
    return large_note_asked(span, size_bytes);
}
