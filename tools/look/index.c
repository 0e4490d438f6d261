// Indexes all live blocks and all other memory of Cairn by address.
#include "look.h"

#include <stdlib.h>
#include <string.h>

static void add_range(struct address_range **ranges, size_t *count, size_t *most, uint64_t start,
                      uint64_t bytes)
{
    *ranges = with_room(*ranges, *count, most, sizeof **ranges);
    (*ranges)[(*count)++] = (struct address_range){start, start + bytes};
}

static void add_own(struct index *index, uint64_t start, uint64_t bytes)
{
    add_range(&index->own, &index->own_count, &index->own_most, start, bytes);
}

static struct block_span *add_span(struct index *index, uint64_t start, uint64_t bytes,
                                   uint64_t slots)
{
    index->spans =
        with_room(index->spans, index->span_count, &index->span_most, sizeof *index->spans);
    while (index->slots + slots > index->slots_most) {
        size_t most = index->slots_most ? 2 * index->slots_most : 64 * 1024;
        index->live = take_memory(index->live, most / 8);
        memset((char *)index->live + index->slots_most / 8, 0, (most - index->slots_most) / 8);
        index->slots_most = most;
    }
    struct block_span *span = &index->spans[index->span_count++];
    *span = (struct block_span){start, bytes, bytes, slots, index->slots, false, false};
    index->slots += slots;
    return span;
}

static void set_live(struct index *index, size_t slot)
{
    index->live[slot / 64] |= (uint64_t)1 << slot % 64;
}

// Adds the mapping that contains a piece of metadata: such mappings contain nothing else
// (src/page/meta.h). `last` is the range that the previous address of this kind was in.
static void add_metadata(struct look *look, struct index *index, uint64_t address,
                         struct address_range *last)
{
    if (address >= last->start && address < last->end)
        return;
    const struct mapping *mapping = look->target->pid ? mapping_of(look->target, address) : NULL;
    const struct segment *segment = look->target->pid ? NULL : segment_of(look->target, address);
    if (mapping && mapping->path[0] != '/')
        *last = (struct address_range){mapping->start, mapping->end};
    else if (segment)
        *last = (struct address_range){segment->start, segment->start + segment->bytes};
    else
        return;
    uint64_t page_map = address_of(look->library->page.page_map);
    // The page map of a static program is in its data segment.
    bool is_data = page_map >= last->start && page_map < last->end;
    spend(look->target, index->own_count);
    for (size_t i = 0; i < index->own_count && !is_data; i++)
        if (last->start >= index->own[i].start && last->end <= index->own[i].end)
            return;
    if (is_data)
        return;
    add_own(index, last->start, last->end - last->start);
    add_range(&index->metadata, &index->metadata_count, &index->metadata_most, last->start,
              last->end - last->start);
}

static void see_slab(struct look *look, const struct span_view *view, struct index *index)
{
    static struct slab_slots slots;
    if (!read_slots(look, view, &slots))
        return;
    struct block_span *span = add_span(index, view->start, view->bytes, slots.count);
    span->slot_bytes = slots.size_bytes;
    span->is_empty_blocks =
        !view->packed && view->size_class == look->library->heap.zero_size_class;
    for (uint64_t i = 0; i < slots.count; i++)
        if (slots.states[i] == SLOT_IS_LIVE)
            set_live(index, span->first + i);
}

static void see(struct look *look, const struct span_view *view, void *context)
{
    static struct address_range headers, behind;
    struct index *index = context;
    if (index->span_count == 0)
        headers = behind = (struct address_range){0, 0};
    add_metadata(look, index, view->header, &headers);
    if (view->kind == SPAN_IS_SLAB) {
        add_metadata(look, index, view->side, &behind);
        see_slab(look, view, index);
    } else if (view->kind == SPAN_IS_LARGE || view->kind == SPAN_IS_HUGE) {
        set_live(index, add_span(index, view->start, view->bytes, 1)->first);
    } else if (view->kind == SPAN_IS_RUN) {
        add_range(&index->runs, &index->run_count, &index->run_most, view->start, view->bytes);
    }
    if (view->kind == SPAN_IS_HUGE || view->kind == SPAN_IS_REVOKED)
        add_range(&index->apart, &index->apart_count, &index->apart_most, view->start, view->bytes);
}

static void see_guarded(struct look *look, uint64_t block, uint64_t bytes, bool live, void *context)
{
    (void)look;
    if (live)
        set_live(context, add_span(context, block, bytes ? bytes : 1, 1)->first);
}

static void add_arenas(struct look *look, struct index *index)
{
    const struct page_layout *page = &look->library->page;
    uint64_t count = 0;
    (void)read_small(look->target, address_of(page->arena_count), &count, sizeof count);
    for (uint64_t i = 0; i < count && i < page->arena_limit; i++) {
        uint64_t arena, base, pages;
        if (!read_small(look->target, address_of(page->arenas) + 8 * i, &arena, 8) ||
            !read_field(look->target, arena, page->arena_base, &base) ||
            !read_field(look->target, arena, page->arena_pages, &pages))
            continue;
        add_own(index, base, pages << page->page_shift);
    }
}

static void add_guarded(struct look *look, struct index *index)
{
    const struct guarded_layout *guarded = &look->library->guarded;
    uint64_t pool = address_of(guarded->pool), start = 0, slot_bytes = 0, headers = 0;
    struct address_range last = {0, 0};
    if (read_field(look->target, pool, guarded->pool_slots, &headers) && headers != 0)
        add_metadata(look, index, headers, &last);
    if (read_field(look->target, pool, guarded->pool_start, &start) && start != 0 &&
        read_field(look->target, pool, guarded->pool_slot_bytes, &slot_bytes))
        add_own(index, start, slot_bytes * guarded->slot_count);
    walk_guarded(look, see_guarded, index);
}

// Adds a table of Cairn that contains addresses of blocks without keeping them alive.
static void add_record(struct index *index, uint64_t start, uint64_t bytes)
{
    add_own(index, start, bytes);
    add_range(&index->metadata, &index->metadata_count, &index->metadata_most, start, bytes);
}

// Adds the profiler's table, and the trace's tables of blocks and stacks.
static void add_records(struct look *look, struct index *index)
{
    const struct library_layout *root = &look->library->root;
    const struct profile_layout *profile = &look->library->profile;
    uint64_t table = 0, caches = 0;
    if (read_field(look->target, address_of(profile->state), profile->state_table, &table) &&
        table != 0)
        add_record(index, table, profile->frames_at + (uint64_t)8 * profile->frame_count);
    add_record(index, address_of(root->trace_lanes), root->trace_lanes_bytes);
    if (read_small(look->target, address_of(root->trace_stack_caches), &caches, sizeof caches) &&
        caches != 0)
        add_record(index, caches, root->trace_stack_caches_bytes);
}

static int by_start(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right; // both structs begin with their start
    return *a < *b ? -1 : *a > *b;
}

void make_index(struct look *look, struct index *index)
{
    memset(index, 0, sizeof *index);
    add_arenas(look, index);
    walk_spans(look, see, index);
    add_guarded(look, index);
    add_records(look, index);
    for (size_t i = 0; i < index->apart_count; i++)
        add_own(index, index->apart[i].start, index->apart[i].end - index->apart[i].start);
    sort(index->spans, index->span_count, sizeof *index->spans, by_start);
    sort(index->own, index->own_count, sizeof *index->own, by_start);
    sort(index->metadata, index->metadata_count, sizeof *index->metadata, by_start);
}

void free_index(struct index *index)
{
    free(index->spans);
    free(index->live);
    free(index->runs);
    free(index->own);
    free(index->metadata);
    free(index->apart);
    memset(index, 0, sizeof *index);
}

int64_t block_at(const struct index *index, uint64_t address, struct block_span **found)
{
    size_t low = 0, high = index->span_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (index->spans[middle].start <= address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return NO_BLOCK;
    struct block_span *span = &index->spans[low - 1];
    uint64_t slot = (address - span->start) / span->slot_bytes;
    if (slot >= span->slots)
        return NO_BLOCK;
    size_t number = span->first + slot;
    if ((index->live[number / 64] >> number % 64 & 1) == 0)
        return NO_BLOCK;
    *found = span;
    return (int64_t)number;
}
