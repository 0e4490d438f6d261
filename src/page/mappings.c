/* Huge blocks, fork runs and void slabs: see mappings.h and page.h.
 *
 * A huge block has one mapping, so that growing it moves page tables, not bytes. Only its first
 * page is in the page map.
 * Threads: a span belongs to the owner of the block. Counters are atomic. */
#include "page/mappings.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "os/memory.h"
#include "page/grow.h"
#include "page/kept_mappings.h"
#include "page/limits.h"
#include "page/state.h"

#include <string.h>

/* A table of spans in use, of fixed length. */
struct span_table {
    struct span **places; /* atomic: spans in use, else NULL */
    size_t count;         /* const: number of places */
};

/* Adds a span to a table in place of NULL, or removes one.
 * Returns: false when no place of the table has `before`. */
static bool span_table_replace(const struct span_table *table, struct span *before,
                               struct span *after)
{
    for (size_t i = 0; i < table->count; i++) {
        struct span *seen = before;
        if (load_relaxed(&table->places[i]) == before &&
            compare_swap_acq_rel(&table->places[i], &seen, after))
            return true;
    }
    return false;
}

static void span_table_each(const struct span_table *table, span_visit *visit, void *context)
{
    for (size_t i = 0; i < table->count; i++) {
        /* acquire: pairs with span_table_replace */
        struct span *span = load_acquire(&table->places[i]);
        unsigned tag = span ? load_relaxed(&span->tag) : (unsigned)SPAN_NONE;
        /* the base of a slab is one block early */
        size_t before = tag >= SPAN_SLAB ? span->size_bytes : 0;
        if (tag >= SPAN_LARGE)
            visit(span, span->base + before, context);
    }
}

/* Maps a run with unmapped addresses behind it, if there are enough, so that an overflow faults.
 * The kernel aligns a mapping to huge pages if its length is a multiple of theirs. */
static char *mapping_with_gap(size_t size_bytes)
{
    size_t gap_bytes = size_bytes % HUGE_PAGE_BYTES == 0 ? HUGE_PAGE_BYTES : os_page_size();
    char *run = os_map(size_bytes + gap_bytes);
    if (run == NULL)
        return os_map(size_bytes);
    (void)os_unmap(run + size_bytes, gap_bytes); /* a refusal costs addresses */
    return run;
}

/* Maps a run with any alignment: cuts an aligned piece out of a larger reservation. At least a page
 * of it is unmapped behind the run. */
static char *mapping_aligned(size_t size_bytes, size_t alignment_bytes)
{
    if (alignment_bytes <= os_page_size())
        return mapping_with_gap(size_bytes);
    char *start = os_reserve(size_bytes + alignment_bytes);
    if (start == NULL)
        return NULL;
    char *run = (char *)align_up((uintptr_t)start, alignment_bytes);
    if (os_commit(run, size_bytes) != 0) {
        os_unmap(start, size_bytes + alignment_bytes);
        return NULL;
    }
    size_t lead = (size_t)(run - start);
    if (lead > 0)
        os_unmap(start, lead);
    os_unmap(run + size_bytes, alignment_bytes - lead);
    return run;
}

static size_t mapping_bytes(size_t pages) { return align_up(pages << PAGE_SHIFT, os_page_size()); }

/* Makes the span of a mapping and covers its first `covered_bytes` by the page map.
 * Returns: NULL when out of memory, or when `run` is NULL; then nothing is mapped. */
static struct span *mapping_describe(char *run, size_t pages, unsigned side_units,
                                     size_t covered_bytes)
{
    if (run == NULL)
        return NULL;
    struct span *span = header_take(shard_own(), side_units);
    if (span && page_map_cover(run, covered_bytes) == 0) {
        span->base = run;
        span->pages = (uint32_t)pages;
        store_relaxed(&span->dirty_pages, (size_t)0);
        return span;
    }
    os_unmap(run, mapping_bytes(pages));
    if (span)
        header_return(span);
    return NULL;
}

/* Makes a run in a mapping of its own, zero. */
static struct span *mapping_take(size_t pages, size_t alignment_bytes, unsigned side_units,
                                 size_t covered_bytes)
{
    char *run = mapping_aligned(mapping_bytes(pages), alignment_bytes);
    return mapping_describe(run, pages, side_units, covered_bytes);
}

static void mapping_give(struct span *span)
{
    os_unmap(span->base, mapping_bytes(span->pages));
    header_return(span);
}

enum { FORK_RUNS_MAX = 1024, VOID_SLABS_MAX = config_zero_size_blocks ? 1024 : 1 };
static struct span *fork_run_places[FORK_RUNS_MAX];
static struct span *void_slab_places[VOID_SLABS_MAX];
static const struct span_table fork_runs = {fork_run_places, FORK_RUNS_MAX};
static const struct span_table void_slabs = {void_slab_places, VOID_SLABS_MAX};

void pages_each_outside(span_visit *visit, void *context)
{
    if (load_relaxed(&pages_state.fork_run_pages) != 0)
        span_table_each(&fork_runs, visit, context);
    span_table_each(&void_slabs, visit, context);
}

struct span *fork_run_take(size_t pages, size_t alignment_bytes, unsigned side_units)
{
    if (!limits_admit_hard(pages))
        return NULL;
    struct span *span = mapping_take(pages, alignment_bytes, side_units, pages << PAGE_SHIFT);
    if (span == NULL)
        return NULL;
    fetch_add_relaxed(&pages_state.fork_run_pages, pages);
    (void)span_table_replace(&fork_runs, NULL, span);
    return span;
}

void fork_run_give(struct span *span)
{
    (void)span_table_replace(&fork_runs, span, NULL);
    fetch_sub_relaxed(&pages_state.fork_run_pages, (size_t)span->pages);
    mapping_give(span);
}

struct span *pages_take_zero_size_slab(unsigned class)
{
    const struct slab_shape *shape = &pages_state.shapes[class];
    struct span *span = mapping_describe(os_reserve(mapping_bytes(shape->pages)), shape->pages,
                                         shape->side_units, (size_t)shape->pages << PAGE_SHIFT);
    if (span == NULL)
        return NULL;
    if (!span_table_replace(&void_slabs, NULL, span)) {
        mapping_give(span);
        return NULL;
    }
    store_relaxed(&span->tag, (uint8_t)(SPAN_SLAB + class));
    page_map_set(span->base, shape->pages, span);
    return span;
}

void pages_give_zero_size_slab(struct span *span)
{
    const struct slab_shape *shape = &pages_state.shapes[slab_class(span)];
    span_table_replace(&void_slabs, span, NULL);
    page_map_set(span->base, shape->pages, NULL);
    span->pages = shape->pages;
    mapping_give(span);
}

bool pages_make_room(size_t size_bytes, size_t alignment_bytes)
{
    size_t bytes = align_up(size_bytes, os_page_size());
    if (bytes >> PAGE_SHIFT > load_relaxed(&pages_state.committed_pages))
        return false;
    size_t slack = alignment_bytes > os_page_size() ? alignment_bytes : 0;
    char *start = os_reserve(bytes + slack);
    if (start == NULL)
        return false;
    os_unmap(start, bytes + slack);
    return grow_make_room((bytes + sizeof(struct page_leaf)) >> PAGE_SHIFT, false);
}

struct span *pages_map_huge(size_t size_bytes, size_t alignment_bytes)
{
    size_t pages = align_up(size_bytes, os_page_size()) >> PAGE_SHIFT;
    if (pages > UINT32_MAX || !limits_claim_mapping(pages))
        return NULL;
    struct span *span = mapping_take(pages, alignment_bytes, 0, PAGE_BYTES);
    if (unlikely(span == NULL) && kept_mapping_purge(SIZE_MAX) != 0)
        span = mapping_take(pages, alignment_bytes, 0, PAGE_BYTES);
    if (unlikely(span == NULL) && pages_make_room(size_bytes, alignment_bytes))
        span = mapping_take(pages, alignment_bytes, 0, PAGE_BYTES);
    if (span == NULL) {
        limits_unclaim_mapping(pages);
        return NULL;
    }
    store_relaxed(&span->zero, true);
    store_relaxed(&span->tag, (uint8_t)SPAN_HUGE);
    page_map_set_page(span->base, span);
    fetch_add_relaxed(&pages_state.huge_count, (size_t)1);
    /* as many pages as are kept nevertheless are no reason to keep more */
    cap_note_taken(pages - smaller_of(pages, kept_mapping_pages()));
    limits_heed_growth(0);
    return span;
}

size_t pages_growing_bytes(size_t size_bytes)
{
    size_t bytes = size_bytes + size_bytes / 8;
    return bytes < HUGE_PAGES_FROM_BYTES ? bytes : align_up(bytes, HUGE_PAGE_BYTES);
}

struct span *pages_map_growing(size_t size_bytes)
{
    struct span *span = pages_map_kept(size_bytes);
    if (span == NULL)
        span = pages_map_huge(pages_growing_bytes(size_bytes), PAGE_BYTES);
    if (span)
        span->grew = true;
    return span;
}

void pages_give_huge(struct span *span)
{
    page_map_set_page(span->base, NULL);
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    if (config_kept_mappings && kept_mapping_put(span))
        return;
    fetch_sub_relaxed(&pages_state.huge_pages, (size_t)span->pages);
    fetch_sub_relaxed(&pages_state.huge_count, (size_t)1);
    mapping_give(span);
}

/* Asks for huge pages for all of the mapping: the kernel moves only a mapping with equal properties
 * from its start to its end. The block is counted already. */
static void mapping_ask_for_huge_pages(struct span *span)
{
    if (limits_admit_huge_pages(0))
        (void)os_huge_pages(span->base, mapping_bytes(span->pages), true);
}

/* If the program does not fill the block after all, the process becomes larger by an eighth. */
void pages_expect_filled(struct span *span)
{
    if (!config_fences && load_relaxed(&span->zero) &&
        load_relaxed(&pages_state.huge_pages) <= limits_counted_pages() / 8)
        mapping_ask_for_huge_pages(span);
}

/* Whether a block that grows may have huge pages. Such a block was filled up to its old end and
 * continues there, so it has at most one huge page too early. Not if most of the block is new. */
static bool mapping_grows_into_huge_pages(size_t old_bytes, size_t new_bytes)
{
    if (likely(new_bytes < HUGE_PAGES_FROM_BYTES) || new_bytes > 3 * old_bytes)
        return false;
    /* A growing block asks for huge pages if it has this length, or if this much memory is counted
     * for each such block: each may have one huge page too early. */
    size_t much = 4 * HUGE_PAGES_FROM_BYTES;
    size_t fronts = load_relaxed(&pages_state.huge_count) + 1; /* 1: the end of the arenas */
    return new_bytes >= much || limits_counted_pages() << PAGE_SHIFT >= fronts * much;
}

/* Moves the mapping to addresses that the kernel chooses. The leaves of the page map for any place
 * are prepared before anything moves, so that free finds the block after any failure.
 * Returns: false when the system refuses; then nothing has changed. */
static bool mapping_move(struct span *span, size_t old_bytes, size_t new_bytes)
{
    bool every_page = load_relaxed(&span->tag) == SPAN_RUN_HUGE;
    size_t covered = every_page ? new_bytes : PAGE_BYTES;
    struct page_map_spares spares;
    if (page_map_prepare(covered, &spares) != 0 &&
        (kept_mapping_purge(SIZE_MAX) == 0 || page_map_prepare(covered, &spares) != 0))
        return false;
    /* Before the move, because afterwards another thread may map the old address. */
    page_map_set_page(span->base, NULL);
    char *place = os_move(span->base, old_bytes, new_bytes);
    if (unlikely(place == NULL) && kept_mapping_purge(SIZE_MAX) != 0)
        place = os_move(span->base, old_bytes, new_bytes);
    if (place) {
        (void)page_map_cover_prepared(place, covered, &spares);
        span->base = place;
    }
    page_map_set_page(span->base, span);
    page_map_drop(&spares);
    return place != NULL;
}

bool pages_resize_huge(struct span *span, size_t size_bytes, bool may_move)
{
    /* a range behind the block would be in the way, or would be behind nothing */
    kept_mapping_join(span);
    span->longer = true; /* until the resize succeeds */
    size_t old_bytes = (size_t)span->pages << PAGE_SHIFT;
    size_t new_bytes = align_up(size_bytes, os_page_size());
    if (new_bytes >> PAGE_SHIFT > UINT32_MAX)
        return false;
    size_t more = new_bytes > old_bytes ? (new_bytes - old_bytes) >> PAGE_SHIFT : 0;
    if (more != 0 && !limits_claim_mapping(more))
        return false;
    /* Growing in place, the block may reach a region that the page map does not cover. Only its
     * first page needs an entry. */
    bool resized = os_resize(span->base, old_bytes, new_bytes) == 0 ||
                   (more != 0 && may_move &&
                    (mapping_move(span, old_bytes, new_bytes) ||
                     (pages_make_room(more << PAGE_SHIFT, PAGE_BYTES) &&
                      mapping_move(span, old_bytes, new_bytes))));
    if (!resized) {
        limits_unclaim_mapping(more);
        return false;
    }
    if (new_bytes < old_bytes)
        limits_unclaim_mapping((old_bytes - new_bytes) >> PAGE_SHIFT);
    store_relaxed(&span->pages, (uint32_t)(new_bytes >> PAGE_SHIFT));
    bool grew = more != 0 && load_relaxed(&span->tag) != SPAN_RUN_HUGE;
    span->grew = span->grew || grew;
    span->longer = false;
    if (grew && !config_fences && mapping_grows_into_huge_pages(old_bytes, new_bytes))
        mapping_ask_for_huge_pages(span);
    if (more != 0) {
        cap_note_taken(more); /* other kept mappings could not serve */
        limits_heed_growth(0);
    }
    return true;
}

void pages_move_bytes(struct span *destination, struct span *source, size_t size_bytes)
{
    enum { STEP_BYTES = 2 * HUGE_PAGE_BYTES };
    for (size_t done = 0; done < size_bytes; done += STEP_BYTES) {
        size_t step = smaller_of(size_bytes - done, STEP_BYTES);
        memcpy(destination->base + done, source->base + done, step);
        char *from = (char *)align_up((uintptr_t)source->base + done, os_page_size());
        char *to = (char *)align_down((uintptr_t)source->base + done + step, os_page_size());
        if (size_bytes > 2 * (size_t)STEP_BYTES && to > from) /* a refusal costs only memory */
            (void)os_purge(from, (size_t)(to - from));
    }
}

struct span *pages_split(struct span *span, size_t pages, bool huge)
{
    struct span *rest = header_take(shard_of(span), 0);
    if (rest == NULL)
        return NULL;
    rest->base = span->base + (pages << PAGE_SHIFT);
    rest->pages = span->pages - (uint32_t)pages;
    store_relaxed(&rest->zero, span->zero);
    rest->grew = span->grew;
    rest->longer = span->longer;
    rest->owner = 0;
    store_relaxed(&rest->tag, load_relaxed(&span->tag));
    store_relaxed(&span->pages, (uint32_t)pages);
    if (huge)
        fetch_add_relaxed(&pages_state.huge_count, (size_t)1);
    return rest;
}
