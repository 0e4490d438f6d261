/* Large blocks: see large.h. The page layer does the work; here stands which of its two kinds a
 * block becomes.
 *
 * Runs of an arena are cheap to get and to give (no system call while the dirty cap lasts) and pack
 * to a page; mappings grow by moving page tables. So a block is a run up to HUGE_MIN_BYTES, but one
 * that has to move while it grows becomes a mapping above GROWING_MOST_BYTES, with some address
 * space to spare: it is likely to grow on. What it leaves is kept for the next one that grows
 * (page/room.h). Where the system gives no mapping the arenas may have a run.
 *
 * In full hardened builds every block is a guarded mapping; where the system gives none, what fits
 * becomes a run without guards all the same.
 */
#include "heap/large.h"

#include "base/alone.h"
#include "base/bits.h"
#include "heap/frozen.h"
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

/* The span serves a request of so many bytes. */
static struct span *note_asked(struct span *span, size_t size_bytes)
{
    if (span)
        span->until = 0; /* a header's last use may have left it; see profiling.h */
    if (config_guarded_blocks && span)
        span->asked_bytes = size_bytes;
    return span;
}

/* That of no heap stays empty. */
static uintptr_t *growth_of(struct heap *heap) { return &heap->runs.places[RUN_CACHE_GROWTH]; }

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
        /* Arenas keep their addresses, so at a limit there may be none but theirs. */
        return likely(span != NULL) ? span
                                    : pages_take_free(large_pages(size_bytes), alignment_bytes);
    }
    if (growth_is_kept(growth_of(thread_heap))) /* it may do, or be part of it */
        (void)growth_empty(growth_of(thread_heap));
    struct span *span = pages_take(large_pages(size_bytes), alignment_bytes);
    if (unlikely(span == NULL) && heaps_empty_run_caches())
        span = pages_take(large_pages(size_bytes), alignment_bytes);
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
    return run_cache_take(&heap->runs, large_pages(size_bytes));
}

/* What grew is kept to grow again, a short one for nothing else: no malloc asks for its length. */
static no_inline bool keep_grown(struct heap *heap, struct span *span)
{
    span->grew = false;
    if (growth_put(growth_of(heap), span))
        return run_cache_is_due(&heap->runs);
    if (span->pages > MEDIUM_MOST >> PAGE_SHIFT)
        return run_cache_put(&heap->runs, span);
    pages_give(span);
    return true;
}

/* Keeps it or gives it to the pages. Whether it is time to ask what is due by age. */
static bool keep(struct heap *heap, struct span *span)
{
    return config_growth && span->grew ? keep_grown(heap, span) : run_cache_put(&heap->runs, span);
}

void *large_malloc_long(size_t size_bytes, void *(*slow)(size_t))
{
    struct span *span = large_allocate_kept(size_bytes);
    return span ? span->base : slow(size_bytes);
}

bool large_free(struct span *span, const void *block)
{
    if (!config_guarded_blocks && large_is_plain(span) &&
        run_cache_keep_long(&thread_heap->runs, span, block))
        return true;
    uint8_t kind = load_relaxed(&span->tag);
    if (unlikely((kind != SPAN_LARGE && kind != SPAN_HUGE) ||
                 !run_cache_mark(span, block, load_relaxed(&span->pages), kind)))
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
    else if (!keep(heap, span))
        return true;
    heaps_tick();
    return true;
}

/* What post says may be written by two, and both write the same: who swaps the tag holds it. */
bool large_hold(struct span *span, const void *block)
{
    uint8_t kind = load_relaxed(&span->tag);
    if (unlikely(kind != SPAN_LARGE && kind != SPAN_HUGE))
        return false;
    store_relaxed(&span->post, large_resized(kind));
    return likely(alone_or_compare_swap(&span->tag, &kind, (uint8_t)SPAN_RESIZED)) &&
           span->base == block;
}

/* Held or not. */
static uint8_t kind_of(const struct span *span)
{
    uint8_t tag = load_relaxed(&span->tag);
    return tag == SPAN_RESIZED ? (uint8_t)load_relaxed(&span->post) : tag;
}

/* Release: pairs with the swap of whoever frees it. */
void large_let_go(struct span *span) { store_release(&span->tag, kind_of(span)); }

/* Into its room, or with it into free pages behind that. Here and below what is due by age is asked
 * before the page layer is: a program may do nothing else for long. */
static bool extend(struct span *span, size_t pages)
{
    size_t before = span->pages;
    uintptr_t *growth = growth_of(thread_heap);
    span->grew = true;
    if (growth_extend(growth, span, pages))
        return true;
    heaps_tick();
    bool joined = growth_join(growth, span);
    bool fits = pages_extend(span, pages);
    if (joined && !fits)
        growth_cut(growth, span, before);
    return fits;
}

/* With its room: what gives pages up does not grow. */
static bool shrink(struct span *span, size_t pages)
{
    heaps_tick();
    (void)growth_join(growth_of(thread_heap), span);
    return pages_shrink(span, pages);
}

static void *resize_mapping(struct span *span, size_t size_bytes, bool may_move)
{
    size_t pages = large_pages(size_bytes);
    bool keeps = config_guarded_blocks
                     ? pages == span->pages
                     : pages <= span->pages && pages >= span->pages - span->pages / 4;
    if (keeps)
        return span->base;
    heaps_tick();
    if (config_guarded_blocks)
        return pages_resize_guarded(span, size_bytes, may_move) ? span->base : NULL;
    bool has_spare = pages > span->pages && load_relaxed(&span->owner) == 0;
    if (!pages_extend_huge(span, pages) &&
        !pages_resize_huge(span, size_bytes + (has_spare ? size_bytes / 8 : 0), may_move) &&
        (pages < span->pages || !pages_resize_huge(span, size_bytes, may_move)))
        return pages <= span->pages ? span->base : NULL;
    return span->base;
}

static void *resize(struct span *span, size_t size_bytes, bool may_move)
{
    size_t pages = large_pages(size_bytes);
    if (kind_of(span) == SPAN_HUGE)
        return resize_mapping(span, size_bytes, may_move);
    bool in_place =
        pages == span->pages || (pages < span->pages ? shrink(span, pages) : extend(span, pages));
    return in_place ? span->base : NULL;
}

static void *resize_counted(struct span *span, size_t size_bytes, bool may_move)
{
    if (!large_serves(span, size_bytes) || size_bytes > PTRDIFF_MAX)
        return NULL;
    size_t counted = 0;
    bool is_counted = unlikely(load_relaxed(&span->owner) != 0); /* a first-class heap's */
    if (is_counted && !program_begin_resize(span, large_pages(size_bytes), &counted))
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
    if (large_is_short(span))
        return size_bytes > GROWTH_LEAST_BYTES && large_pages(size_bytes) == span->pages;
    size_t bytes = (size_t)span->pages << PAGE_SHIFT;
    size_t spare = span->tag == SPAN_HUGE ? bytes / 4 + PAGE_BYTES : 0;
    size_t least = larger_of(size_bytes, MEDIUM_MOST + 1);
    return size_bytes <= bytes && align_up(least, os_page_size()) + spare >= bytes;
}

/* The front of a run that is not in use, where there is none in use nor kept. */
static struct span *take_with_room(uintptr_t *growth, size_t pages)
{
    struct span *span = take(GROWTH_NEW_PAGES * PAGE_BYTES, PAGE_BYTES);
    if (span && !pages_holds(span->base)) { /* made while another thread forks */
        pages_give(span);
        return NULL;
    }
    if (span)
        growth_cut(growth, span, pages);
    return span;
}

/* The end of its last page is for nothing until it grows on. */
static bool fills_pages(size_t size_bytes)
{
    size_t bytes = align_up(size_bytes, PAGE_BYTES);
    return size_bytes >= bytes - bytes / GROWTH_WASTE;
}

struct span *large_allocate_with_room(size_t size_bytes)
{
    if (!config_growth || thread_heap == &no_heap || size_bytes <= GROWTH_LEAST_BYTES ||
        size_bytes > GROWTH_MOST_PAGES * PAGE_BYTES || !fills_pages(size_bytes))
        return NULL;
    size_t pages = large_pages(size_bytes);
    uintptr_t *growth = growth_of(thread_heap);
    struct span *span = growth_take(growth, pages);
    if (span == NULL && size_bytes > GROWTH_MAKES_BYTES && pages < GROWTH_NEW_PAGES &&
        load_relaxed(growth) == 0)
        span = take_with_room(growth, pages);
    if (span)
        span->grew = true;
    return note_asked(span, size_bytes);
}

/* Nothing of the arenas will serve this thread's growing block any more. */
static struct span *map_growing(size_t size_bytes)
{
    (void)growth_empty(growth_of(thread_heap));
    return pages_map_growing(size_bytes);
}

/* What gets no mapping of its own becomes a block like others. */
static struct span *take_growing(size_t size_bytes)
{
    struct span *span = NULL;
    bool has_spare = size_bytes <= PTRDIFF_MAX / 2;
    if (config_guarded_blocks && has_spare)
        span = pages_map_guarded(size_bytes, PAGE_BYTES, size_bytes / 8);
    else if (has_spare && size_bytes > GROWING_MOST_BYTES)
        span = map_growing(size_bytes);
    else
        span = large_allocate_kept(size_bytes);
    if (span && span->zero) /* else its pages are there */
        pages_expect_filled(span);
    return span ? span : take(size_bytes, PAGE_BYTES);
}

struct span *large_allocate_growing(size_t size_bytes)
{
    struct span *span = large_allocate_with_room(size_bytes);
    if (span)
        return span;
    span = take_growing(size_bytes);
    if (span && span->tag == SPAN_LARGE)
        span->grew = true;
    return note_asked(span, size_bytes);
}
