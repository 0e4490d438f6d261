/* Looking at the page layer: statistics, a walk over all spans, the search behind a message, the
 * verifier. */
#include "base/bits.h"
#include "base/check.h"
#include "page/apart.h"
#include "page/arena.h"
#include "page/bins.h"
#include "page/bound.h"
#include "page/free_spans.h"
#include "page/purge.h"
#include "page/room.h"
#include "page/state.h"
#include "page/void_slab.h"

void pages_read_stats(struct page_stats *stats)
{
    size_t kept = pages_kept_outside() << PAGE_SHIFT;
    *stats = (struct page_stats){
        .reserved_bytes = (load_relaxed(&pages_state.reserved_pages) << PAGE_SHIFT) + kept,
        .committed_bytes = (load_relaxed(&pages_state.committed_pages) << PAGE_SHIFT) + kept,
        .free_bytes = (load_relaxed(&pages_state.free_pages) << PAGE_SHIFT) + kept,
        .dirty_bytes = (load_relaxed(&pages_state.dirty_pages) << PAGE_SHIFT) + kept,
        .huge_bytes = load_relaxed(&pages_state.huge_pages) << PAGE_SHIFT,
        .huge_count = load_relaxed(&pages_state.huge_count),
        .meta_bytes = meta_bytes(),
        .purged_bytes =
            (load_relaxed(&pages_state.purged_pages) + load_relaxed(&pages_state.part_pages))
            << PAGE_SHIFT,
        .purges = load_relaxed(&pages_state.purges) + load_relaxed(&pages_state.part_purges),
        .swept_bytes = load_relaxed(&pages_state.swept_pages) << PAGE_SHIFT,
        .counted_bytes = counted_pages() << PAGE_SHIFT,
        .refusals = load_relaxed(&pages_state.refusals),
        .intervals = load_relaxed(&pages_state.intervals),
        .interval_start_ms = load_relaxed(&pages_state.interval_start_ms),
        .pressed = load_relaxed(&pages_state.pressed),
    };
}

static size_t span_pages(const struct span *span)
{
    unsigned tag = load_relaxed(&span->tag);
    return tag >= SPAN_SLAB ? pages_state.shapes[tag - SPAN_SLAB].pages
                            : load_relaxed(&span->pages);
}

/* Calls `visit` for the spans of one arena that are in use. Pages without an entry are in transit
 * and skipped singly; so is the inside of anything that changes while we walk. */
static bool arena_each(struct arena *arena, span_visit *visit, void *context)
{
    size_t frontier = load_relaxed(&arena->frontier);
    for (size_t page = 0; page < frontier;) {
        char *start = arena->base + (page << PAGE_SHIFT);
        struct span *span = page_map_find(start);
        unsigned tag = load_relaxed(&span->tag);
        size_t pages = tag == SPAN_NONE || tag == SPAN_MOVING ? 1 : larger_of(span_pages(span), 1);
        bool used = tag >= SPAN_LARGE;
        if (used && !visit(span, start, context))
            return false;
        page += pages;
    }
    return true;
}

void pages_each(span_visit *visit, void *context)
{
    for (size_t i = 0; i < arena_count(); i++)
        if (!arena_each(arena_at(i), visit, context))
            return;
    if (apart_each(visit, context) && config_void_blocks)
        (void)void_slabs_each(visit, context);
}

void pages_each_slab(span_visit *visit, void *context)
{
    for (size_t i = 0; i < arena_count(); i++) {
        struct arena *arena = arena_at(i);
        size_t frontier = load_relaxed(&arena->frontier);
        for (size_t page = 0; page < frontier;) {
            char *start = arena->base + (page << PAGE_SHIFT);
            struct span *span = page_map_find(start);
            unsigned tag = load_relaxed(&span->tag);
            if (tag >= SPAN_SLAB && !visit(span, start, context))
                return;
            page += tag >= SPAN_SLAB ? pages_state.shapes[tag - SPAN_SLAB].pages : 1u;
        }
    }
}

struct search {
    const char *address;
    struct span *found;
    char *start;
};

static bool search_visit(struct span *span, char *start, void *context)
{
    struct search *search = context;
    if (search->address < start)
        return false;
    if (search->address < start + (span_pages(span) << PAGE_SHIFT)) {
        search->found = span;
        search->start = start;
    }
    return search->found == NULL;
}

/* A large block outside the arenas is in the page map by its first page alone: looks backwards for
 * it. */
static struct span *search_mapping(uintptr_t address, char **start)
{
    uintptr_t page = address >> PAGE_SHIFT;
    while (page_map_reaches(page << PAGE_SHIFT)) {
        if (load_relaxed(&page_map.root[page / REGION_PAGES]) == 0) {
            page = align_down(page, REGION_PAGES) -
                   1; /* an empty region at once; below the first it wraps, and ends */
            continue;
        }
        if (page_map_holds(page << PAGE_SHIFT)) {
            struct span *span = page_map_find((void *)(page << PAGE_SHIFT));
            unsigned tag = load_relaxed(&span->tag);
            if (tag >= SPAN_SLAB) { /* in the map by each page */
                *start = load_relaxed(&span->base) + load_relaxed(&span->size_bytes);
                return page == address >> PAGE_SHIFT ? span : NULL;
            }
            *start = (char *)(page << PAGE_SHIFT);
            size_t bytes = (size_t)load_relaxed(&span->pages) << PAGE_SHIFT;
            return tag == SPAN_HUGE && address - (page << PAGE_SHIFT) < bytes ? span : NULL;
        }
        page--;
    }
    return NULL;
}

struct span *pages_search(const void *address, char **start)
{
    struct search search = {.address = address};
    struct arena *arena = arena_of(address);
    if (arena == NULL)
        return search_mapping((uintptr_t)address, start);
    arena_each(arena, search_visit, &search);
    *start = search.start;
    return search.found;
}

bool pages_holds(const void *address)
{
    struct arena *arena = arena_of(address);
    return arena && arena_page(arena, address) < load_relaxed(&arena->frontier);
}

/* How far a walk goes that must meet the start of whatever comes next. A slab is in the map by each
 * page, and these entries are written without the lock: the first one seen may be in its midst. */
static size_t pages_to_next(const struct span *span)
{
    unsigned tag = load_relaxed(&span->tag);
    bool singly = tag == SPAN_NONE || tag == SPAN_MOVING || tag >= SPAN_SLAB;
    return singly ? 1 : load_relaxed(&span->pages);
}

static void arena_verify(struct arena *arena, size_t *free_pages, size_t *dirty_pages)
{
    const struct span *before = NULL; /* a free one */
    for (size_t page = 0; page < arena->frontier;) {
        char *start = arena->base + (page << PAGE_SHIFT);
        struct span *span = page_map_find(start);
        bool is_free = span->tag == SPAN_FREE;
        if (is_free) {
            check_internal(span->base == start && span->owner == 0);
            check_internal(before == NULL || before->until != 0 || span->until != 0);
            check_internal(span_has_place(span));
            check_internal(page_map_find(start + ((size_t)(span->pages - 1) << PAGE_SHIFT)) ==
                           span);
            check_internal(span->dirty_pages == bitmap_count(arena->dirty, page, span->pages));
            *free_pages += span->pages;
            *dirty_pages += span->dirty_pages;
        }
        before = is_free ? span : NULL;
        page += pages_to_next(span);
        check_internal(page <= arena->frontier);
    }
}

void pages_verify(void)
{
    if (!config_debug || !lock_acquire(&pages_state.lock))
        return;
    size_t free_pages = 0;
    size_t dirty_pages = 0;
    for (size_t i = 0; i < arena_count(); i++)
        arena_verify(arena_at(i), &free_pages, &dirty_pages);
    check_internal(free_pages == pages_state.free_pages && dirty_pages == pages_state.dirty_pages);
    check_internal(bins_verify() == free_pages);
    room_verify();
    lock_release(&pages_state.lock);
}
