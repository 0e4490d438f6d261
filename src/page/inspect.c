/* Statistics of the page layer, walks over its spans, the search for messages, the verifier, and
 * the part of the description for readers outside the process (base/layout.h).
 * Threads: any. Walks read headers atomically while other threads change them. */
#include "base/bits.h"
#include "base/check.h"
#include "base/layout.h"
#include "page/arena.h"
#include "page/free_spans.h"
#include "page/kept_mappings.h"
#include "page/limits.h"
#include "page/purge.h"
#include "page/revoked.h"
#include "page/state.h"

void pages_read_stats(struct page_stats *stats)
{
    size_t free_pages, dirty_pages;
    shards_count_free(&free_pages, &dirty_pages);
    /* exact, too, although the counts of pages_state are not */
    size_t counted = limits_counted_pages() + load_relaxed(&pages_state.free_pages) - free_pages +
                     dirty_pages - load_relaxed(&pages_state.dirty_pages);
    size_t kept = pages_kept_outside() << PAGE_SHIFT;
    *stats = (struct page_stats){
        .reserved_bytes = (load_relaxed(&pages_state.reserved_pages) << PAGE_SHIFT) + kept,
        .committed_bytes = (load_relaxed(&pages_state.committed_pages) << PAGE_SHIFT) + kept,
        .free_bytes = (free_pages << PAGE_SHIFT) + kept,
        .dirty_bytes = (dirty_pages << PAGE_SHIFT) + kept,
        .huge_bytes = load_relaxed(&pages_state.huge_pages) << PAGE_SHIFT,
        .huge_count = load_relaxed(&pages_state.huge_count),
        .meta_bytes = load_relaxed(&meta_total_bytes),
        .purged_bytes =
            (load_relaxed(&pages_state.purged_pages) + load_relaxed(&pages_state.part_pages))
            << PAGE_SHIFT,
        .purges = load_relaxed(&pages_state.purges) + load_relaxed(&pages_state.part_purges),
        .swept_bytes = load_relaxed(&pages_state.swept_pages) << PAGE_SHIFT,
        .counted_bytes = counted << PAGE_SHIFT,
        .refusals = load_relaxed(&pages_state.refusals),
        .intervals = load_relaxed(&pages_state.intervals),
        .interval_start_ms = load_relaxed(&pages_state.interval_start_ms),
        .pressed = load_relaxed(&pages_state.pressed),
    };
}

/* The length of the run of a span in pages. Another thread may change it meanwhile; then the walk
 * passes over other pages than it would otherwise. */
not_instrumented static no_inline size_t inspect_span_pages(const struct span *span)
{
    unsigned tag = load_relaxed(&span->tag);
    return tag >= SPAN_SLAB ? pages_state.shapes[tag - SPAN_SLAB].pages
                            : load_relaxed(&span->pages);
}

/* Calls `visit` for the spans in use of one arena from `page` on, in at most `*steps` steps. A page
 * without an entry is on its way between spans and is skipped alone, as are pages inside anything
 * that changes during the walk.
 * Returns: the page where the walk continues; `pages` of the arena at its end. */
static size_t inspect_arena_walk(struct arena *arena, size_t page, size_t *steps, span_visit *visit,
                                 void *context)
{
    size_t frontier = load_relaxed(&arena->frontier);
    for (; page < frontier && *steps != 0; --*steps) {
        char *start = arena->base + (page << PAGE_SHIFT);
        struct span *span = page_map_find(start);
        unsigned tag = load_relaxed(&span->tag);
        size_t pages =
            tag == SPAN_NONE || tag == SPAN_MOVING ? 1 : larger_of(inspect_span_pages(span), 1);
        if (tag >= SPAN_LARGE)
            visit(span, start, context);
        page += pages;
    }
    return page < frontier ? page : arena->pages;
}

bool pages_each_part(size_t *at, size_t spans, span_visit *visit, void *context)
{
    size_t before = 0; /* pages of earlier arenas */
    for (size_t i = 0; i < arena_count(); i++) {
        struct arena *arena = arenas_added[i];
        if (*at < before + arena->pages) {
            size_t page = inspect_arena_walk(arena, *at - before, &spans, visit, context);
            *at = before + page;
            if (page < arena->pages)
                return false;
        }
        before += arena->pages;
    }
    return true;
}

void pages_each(span_visit *visit, void *context)
{
    size_t at = 0;
    (void)pages_each_part(&at, SIZE_MAX, visit, context);
    pages_each_outside(visit, context);
}

/* Only the first page of a large block is in the page map, so this searches backwards. */
struct span *pages_search(const void *address, char **start)
{
    uintptr_t page = (uintptr_t)address >> PAGE_SHIFT;
    for (; page_map_reaches(page << PAGE_SHIFT); page--) {
        /* skips an empty region at once; below the first the number wraps, which ends the loop */
        if (load_relaxed(&page_map.root[page / REGION_PAGES]) == 0)
            page = align_down(page, REGION_PAGES);
        else if (page_map_holds(page << PAGE_SHIFT))
            break;
    }
    struct span *span = page_map_find((void *)(page << PAGE_SHIFT));
    unsigned tag = load_relaxed(&span->tag);
    bool slab = tag >= SPAN_SLAB; /* each page of a slab is in the map */
    size_t pages = slab ? 1 : load_relaxed(&span->pages);
    if (tag < SPAN_LARGE || tag == SPAN_GUARDED || tag == SPAN_REVOKED ||
        ((uintptr_t)address >> PAGE_SHIFT) - page >= pages)
        return NULL;
    while (slab && page_map_find((void *)((page - 1) << PAGE_SHIFT)) == span)
        page--;
    *start = (char *)(page << PAGE_SHIFT);
    return span;
}

static void inspect_arena_verify(struct arena *arena, size_t *free_pages, size_t *dirty_pages)
{
    const struct span *before = NULL; /* the previous span if it is free */
    for (size_t page = 0; page < arena->frontier;) {
        char *start = arena->base + (page << PAGE_SHIFT);
        struct span *span = page_map_find(start);
        bool is_free = span->tag == SPAN_FREE;
        if (is_free) {
            check_internal(span->base == start && span->owner == 0);
            check_internal(shard_of(span) == arena->shard);
            check_internal(before == NULL || before->mark != 0 || span->mark != 0);
            check_internal(page_map_find(start + ((size_t)(span->pages - 1) << PAGE_SHIFT)) ==
                           span);
            check_internal(span->dirty_pages == bitmap_count(arena->dirty, page, span->pages));
            *free_pages += span->pages;
            *dirty_pages += span->dirty_pages;
        }
        before = is_free ? span : NULL;
        /* A slab is in the map by each page, and these entries are written without the lock. So the
         * first entry that the walk reads may be in the middle of the slab. */
        unsigned tag = load_relaxed(&span->tag);
        bool singly = tag == SPAN_NONE || tag == SPAN_MOVING || tag >= SPAN_SLAB;
        page += singly ? 1 : load_relaxed(&span->pages);
        check_internal(page <= arena->frontier);
    }
}

static void inspect_shard_verify(struct page_shard *shard)
{
    if (!shard_acquire(shard))
        return;
    size_t free_pages = 0;
    size_t dirty_pages = 0;
    for (struct arena *arena = shard->arenas; arena; arena = arena->next) {
        check_internal(arena->shard == shard);
        inspect_arena_verify(arena, &free_pages, &dirty_pages);
    }
    check_internal(free_pages == shard->free_pages && dirty_pages == shard->dirty_pages);
    check_internal(bins_verify(shard) == free_pages);
    shard_release(shard);
}

void pages_verify(void)
{
    if (!config_debug)
        return;
    for (unsigned i = 0; i < shard_count(); i++)
        inspect_shard_verify(&page_shards[i]);
    if (!lock_acquire(&pages_state.lock))
        return;
    kept_mapping_verify();
    lock_release(&pages_state.lock);
}

extern const struct page_layout page_layout __attribute__((visibility("hidden")));

const struct page_layout page_layout = {
    .page_map = &page_map,
    .arenas = arenas_added,
    .arena_count = &arenas_count,
    .state = &pages_state,
    .shards = page_shards,
    .meta_bytes = &meta_total_bytes,
    .kept_outside_pages =
        config_guarded_blocks ? &revoked_memory_pages : &pages_state.kept_mapping_pages,
    .page_shift = PAGE_SHIFT,
    .address_bits = ADDRESS_BITS,
    .region_shift = REGION_SHIFT,
    .region_count = REGION_COUNT,
    .map_root = offsetof(struct page_map, root),
    .leaf_entries = offsetof(struct page_leaf, entries),
    .span_bytes = sizeof(struct span),
    .arena_bytes = sizeof(struct arena),
    .arena_limit = ARENA_LIMIT,
    .shard_bytes = sizeof(struct page_shard),
    .shard_limit = SHARDS_MAX,
    .tag_free = SPAN_FREE,
    .tag_moving = SPAN_MOVING,
    .tag_kept = SPAN_KEPT,
    .tag_large = SPAN_LARGE,
    .tag_huge = SPAN_HUGE,
    .tag_run = SPAN_RUN,
    .tag_run_huge = SPAN_RUN_HUGE,
    .tag_guarded = SPAN_GUARDED,
    .tag_revoked = SPAN_REVOKED,
    .tag_slab = SPAN_SLAB,
    .span_owner = layout_field_of(struct span, owner),
    .span_base = layout_field_of(struct span, base),
    .span_fresh_slot = layout_field_of(struct span, fresh_slot),
    .span_size_bytes = layout_field_of(struct span, size_bytes),
    .span_pages = layout_field_of(struct span, pages),
    .span_dirty_pages = layout_field_of(struct span, dirty_pages),
    .span_tag = layout_field_of(struct span, tag),
    .span_capacity = layout_field_of(struct span, capacity),
    .span_next = layout_field_of(struct span, next),
    .span_side_units = layout_field_of(struct span, side_units),
    .arena_base = layout_field_of(struct arena, base),
    .arena_pages = layout_field_of(struct arena, pages),
    .arena_frontier = layout_field_of(struct arena, frontier),
    .arena_hole_pages = layout_field_of(struct arena, hole_pages),
    .arena_begun = layout_field_of(struct arena, begun),
    .shard_free_pages = layout_field_of(struct page_shard, free_pages),
    .shard_dirty_pages = layout_field_of(struct page_shard, dirty_pages),
    .state_committed_pages = layout_field_of(struct page_state, committed_pages),
    .state_purged_pages = layout_field_of(struct page_state, purged_pages),
    .state_purges = layout_field_of(struct page_state, purges),
    .state_huge_pages = layout_field_of(struct page_state, huge_pages),
    .state_huge_count = layout_field_of(struct page_state, huge_count),
    .state_reserved_pages = layout_field_of(struct page_state, reserved_pages),
};
