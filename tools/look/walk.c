// Walks the page map of a target in the order of addresses: root, leaves, entries, and the header
// of the span that an entry leads to (src/page/page_map.h, span.h).
#include "look.h"

#include <string.h>

enum { PIECE = 8192 }; // entries read at once

static uint64_t map_at(const struct look *look) { return address_of(look->library->page.page_map); }

static uint64_t region_pages(const struct look *look)
{
    return (uint64_t)1 << (look->library->page.region_shift - look->library->page.page_shift);
}

static uint64_t entries_at(const struct look *look, uint64_t distance)
{
    return map_at(look) + distance + look->library->page.leaf_entries;
}

static bool view_slab(const struct library *library, const unsigned char *bytes, unsigned tag,
                      uint64_t address, struct span_view *span)
{
    const struct page_layout *page = &library->page;
    const struct heap_layout *heap = &library->heap;
    unsigned size_class = tag - page->tag_slab;
    span->kind = SPAN_IS_SLAB;
    span->size_class = size_class;
    span->packed = size_class == heap->packed_class;
    if (!span->packed && size_class >= heap->class_count)
        return false;
    uint64_t pages = span->packed ? heap->packed_pages : library->class_pages[size_class];
    span->bytes = pages << page->page_shift;
    span->owner = field(bytes, page->span_owner);
    span->heap = span->owner & ~(uint64_t)heap->owner_tags;
    span->limit = field(bytes, page->span_fresh_slot);
    span->side = span->header + page->span_bytes;
    span->cold_area = span->side + field(bytes, page->span_side_units) * 64 - heap->cold_area_bytes;
    // Slot numbers start at 1.
    span->start = field(bytes, page->span_base) +
                  (span->packed ? heap->packed_bytes : library->class_bytes[size_class]);
    return address >= span->start && address - span->start < span->bytes;
}

bool view_span(struct look *look, uint64_t header, uint64_t address, struct span_view *span)
{
    const struct page_layout *page = &look->library->page;
    unsigned char bytes[256];
    memset(span, 0, sizeof *span);
    span->header = header;
    spend(look->target, STEPS_OF_WORD);
    if (!read_small(look->target, header, bytes, page->span_bytes)) {
        look->unreadable++;
        return false;
    }
    unsigned tag = (unsigned)field(bytes, page->span_tag);
    bool agrees = true;
    if (tag >= page->tag_slab) {
        agrees = view_slab(look->library, bytes, tag, address, span);
    } else if (tag == page->tag_guarded) {
        span->kind = SPAN_IS_GUARDED;
    } else {
        span->start = field(bytes, page->span_base);
        span->bytes = field(bytes, page->span_pages) << page->page_shift;
        span->dirty_pages = tag == page->tag_free || tag == page->tag_revoked
                                ? field(bytes, page->span_dirty_pages)
                                : 0;
        span->next = tag == page->tag_kept ? field(bytes, page->span_next) : 0;
        span->kind = tag == page->tag_free                               ? SPAN_IS_FREE
                     : tag == page->tag_kept                             ? SPAN_IS_KEPT
                     : tag == page->tag_large                            ? SPAN_IS_LARGE
                     : tag == page->tag_huge                             ? SPAN_IS_HUGE
                     : tag == page->tag_run || tag == page->tag_run_huge ? SPAN_IS_RUN
                     : tag == page->tag_revoked                          ? SPAN_IS_REVOKED
                                                                         : SPAN_KINDS;
        agrees = span->kind != SPAN_KINDS && address >= span->start &&
                 address - span->start < span->bytes;
    }
    uint64_t end = (uint64_t)1 << page->address_bits;
    agrees = agrees && span->start <= end && span->bytes <= end - span->start;
    if (!agrees)
        look->torn++;
    return agrees;
}

// A list ends at the most pages that a heap keeps: the heap may change meanwhile and lead in a
// circle.
void walk_kept(struct look *look, uint64_t heap, span_seen *seen, void *context)
{
    const struct library *library = look->library;
    uint64_t places[1024], torn = look->torn;
    uint32_t count = library->heap.kept_places;
    if (!read_small(look->target, heap + library->heap.heap_kept.offset, places, count * 8))
        return;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t header = places[i] & ~(uint64_t)LAYOUT_KEPT_AGED;
        struct span_view span;
        spend(look->target, 1);
        for (uint64_t pages = 0; header != 0 && pages < library->heap.kept_pages;) {
            (void)view_span(look, header, 0, &span);
            if (span.kind == SPAN_IS_KEPT || span.kind == SPAN_IS_SLAB)
                seen(look, &span, context);
            uint64_t more = span.bytes >> library->page.page_shift;
            pages += more != 0 ? more : 1;
            header = span.next;
        }
    }
    look->torn = torn; // no address was given, so each span seemed not to match
}

uint64_t entries_resident(struct look *look, uint64_t start, uint64_t bytes)
{
    const struct page_layout *page = &look->library->page;
    uint64_t first = start >> page->page_shift, end = (start + bytes) >> page->page_shift;
    uint64_t granule = look->target->page_bytes, sum = 0, distance, resident;
    while (first < end && first / region_pages(look) < page->region_count) {
        uint64_t region = first / region_pages(look);
        spend(look->target, STEPS_OF_WORD);
        uint64_t next =
            (region + 1) * region_pages(look) < end ? (region + 1) * region_pages(look) : end;
        if (!read_small(look->target, map_at(look) + page->map_root + 8 * region, &distance, 8) ||
            distance == 0)
            return sum;
        uint64_t entries = entries_at(look, distance) - 8 * region * region_pages(look);
        uint64_t from = (entries + 8 * first + granule - 1) / granule * granule;
        uint64_t to = (entries + 8 * next) / granule * granule;
        if (from < to && count_resident(look->target, from, to - from, &resident))
            sum += resident;
        first = next;
    }
    return sum;
}

// Visits one entry. A span is reported at its first page; the other pages of a slab and the last
// page of a free run lead to it too.
static void see_entry(struct look *look, uint64_t header, uint64_t address, uint64_t *seen_until,
                      span_seen *seen, void *context)
{
    struct span_view span;
    if (address < *seen_until || !view_span(look, header, address, &span))
        return;
    if (span.kind == SPAN_IS_GUARDED || address != span.start)
        return;
    if (span.kind == SPAN_IS_SLAB)
        *seen_until = span.start + span.bytes;
    seen(look, &span, context);
}

static void walk_leaf(struct look *look, uint64_t region, uint64_t distance, uint64_t *seen_until,
                      span_seen *seen, void *context)
{
    static uint64_t entries[PIECE];
    uint64_t pages = region_pages(look);
    look->leaves++;
    for (uint64_t first = 0; first < pages; first += PIECE) {
        uint64_t count = pages - first < PIECE ? pages - first : PIECE;
        if (!was_touched(look->target, entries_at(look, distance) + 8 * first, 8 * count))
            continue;
        spend(look->target, count);
        if (!read_large(look->target, entries_at(look, distance) + 8 * first, entries,
                        count * sizeof *entries)) {
            look->unreadable++;
            continue;
        }
        for (uint64_t i = 0; i < count; i++)
            if (entries[i] != 0)
                see_entry(look, map_at(look) + distance + entries[i],
                          (region << look->library->page.region_shift) +
                              ((first + i) << look->library->page.page_shift),
                          seen_until, seen, context);
    }
}

void walk_spans(struct look *look, span_seen *seen, void *context)
{
    static uint64_t roots[PIECE];
    const struct page_layout *page = &look->library->page;
    uint64_t seen_until = 0;
    if (look->lacks_map) {
        walk_headers(look, seen, context);
        return;
    }
    for (uint64_t first = 0; first < page->region_count; first += PIECE) {
        if (!was_touched(look->target, map_at(look) + page->map_root + 8 * first, sizeof roots))
            continue;
        if (!read_large(look->target, map_at(look) + page->map_root + 8 * first, roots,
                        sizeof roots)) {
            check_alive(look->target);
            fail("%s: cannot read the page map of its Cairn library", look->target->name);
        }
        for (uint64_t i = 0; i < PIECE; i++)
            if (roots[i] != 0)
                walk_leaf(look, first + i, roots[i], &seen_until, seen, context);
    }
}

// Finds the last entry at or before a page of the region. Returns: false when there is none.
static bool last_entry(struct look *look, uint64_t region, uint64_t distance, uint64_t last,
                       uint64_t *header, uint64_t *address)
{
    static uint64_t entries[PIECE];
    for (uint64_t end = last + 1; end > 0;) {
        uint64_t first = (end - 1) / PIECE * PIECE;
        spend(look->target, end - first);
        if (!read_large(look->target, entries_at(look, distance) + 8 * first, entries,
                        (end - first) * sizeof *entries))
            return false;
        for (; end > first; end--)
            if (entries[end - 1 - first] != 0) {
                *header = map_at(look) + distance + entries[end - 1 - first];
                *address = (region << look->library->page.region_shift) +
                           ((end - 1) << look->library->page.page_shift);
                return true;
            }
    }
    return false;
}

bool find_span(struct look *look, uint64_t address, struct span_view *span)
{
    const struct page_layout *page = &look->library->page;
    uint64_t region = address >> page->region_shift;
    uint64_t last = (address >> page->page_shift) & (region_pages(look) - 1);
    if (look->lacks_map)
        return find_by_header(look, address, span);
    for (; region < page->region_count; region--, last = region_pages(look) - 1) {
        uint64_t distance, header, at;
        if (!read_small(look->target, map_at(look) + page->map_root + 8 * region, &distance, 8))
            return false;
        if (distance != 0 && last_entry(look, region, distance, last, &header, &at)) {
            if (!view_span(look, header, at, span))
                return false;
            return span->kind == SPAN_IS_GUARDED
                       ? at == address >> page->page_shift << page->page_shift
                       : address - span->start < span->bytes;
        }
        if (region == 0)
            return false;
    }
    return false;
}
