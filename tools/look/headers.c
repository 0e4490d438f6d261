// Finds the spans of a core file that was truncated before the page map, by their headers. Headers
// are in metadata memory, which precedes the heap in the order of addresses where the kernel allows
// it (src/page/meta.c).
//
// The header of a slab is recognised by fields that confirm each other: class, block size, number
// of slots, a base that is a page minus one block, and the address of a heap. Other headers are
// accepted only in a segment that has headers of slabs. Where two spans overlap, the second one is
// an old header.
#include "look.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 64 << 10, HEADER_STEP = 64, SLABS_LEAST = 2 };

struct header {
    uint64_t address, start, bytes;
    bool is_slab;
};

static struct header *headers;
static size_t header_count, headers_most;
static bool is_searched;

static bool is_readable(const struct look *look, uint64_t address, uint64_t bytes)
{
    const struct segment *segment = segment_of(look->target, address);
    return segment && segment->bytes - (address - segment->start) >= bytes;
}

bool has_whole_map(struct look *look)
{
    const struct page_layout *page = &look->library->page;
    uint64_t map = address_of(page->page_map), distance;
    uint64_t entries = (uint64_t)8 << (page->region_shift - page->page_shift);
    for (uint64_t i = 0; i < page->region_count; i++)
        if (!read_small(look->target, map + page->map_root + 8 * i, &distance, 8) ||
            (distance != 0 && !is_readable(look, map + distance + page->leaf_entries, entries)))
            return false;
    return true;
}

// The block size and capacity that most slab headers of a class have, by the majority vote of Boyer
// and Moore (1981).
struct vote {
    uint64_t size_bytes, capacity, count;
};

// A slab has as many pages as its slots need.
static uint64_t pages_for(uint64_t size, uint64_t capacity)
{
    return (size * capacity + 4095) / 4096;
}

static void vote_on(struct look *look, const unsigned char *bytes, struct vote *votes)
{
    const struct page_layout *page = &look->library->page;
    const struct heap_layout *heap = &look->library->heap;
    uint64_t size_class = field(bytes, page->span_tag) - page->tag_slab;
    uint64_t size = field(bytes, page->span_size_bytes);
    uint64_t capacity = field(bytes, page->span_capacity);
    uint64_t base = field(bytes, page->span_base);
    uint64_t owner = field(bytes, page->span_owner) & ~(uint64_t)heap->owner_tags;
    if (size_class >= heap->class_count || size == 0 || size % 16 != 0 || size > 1 << 20 ||
        capacity == 0 || !class_fits(size, pages_for(size, capacity), capacity) || base == 0 ||
        (base + size) % 4096 != 0 || owner == 0 || !is_readable(look, owner, heap->heap_bytes))
        return;
    struct vote *vote = &votes[size_class];
    if (vote->count == 0)
        *vote = (struct vote){size, capacity, 0};
    vote->count += vote->size_bytes == size && vote->capacity == capacity ? 1 : (uint64_t)-1;
}

static void learn_from(struct look *look, const struct segment *segment, struct vote *votes)
{
    static unsigned char piece[PIECE];
    const struct page_layout *page = &look->library->page;
    for (uint64_t at = 0; at < segment->bytes; at += PIECE) {
        size_t bytes = segment->bytes - at < PIECE ? (size_t)(segment->bytes - at) : PIECE;
        if (!read_large(look->target, segment->start + at, piece, bytes))
            return;
        for (size_t i = 0; i + page->span_bytes <= bytes; i += HEADER_STEP)
            if (field(piece + i, page->span_tag) >= page->tag_slab)
                vote_on(look, piece + i, votes);
    }
}

// Computes the table of classes for a core file that lacks it.
static void learn_classes(struct look *look)
{
    static struct vote votes[256];
    struct library *library = look->library;
    for (size_t i = 0; i < look->target->segment_count; i++)
        learn_from(look, &look->target->segments[i], votes);
    for (uint32_t i = 0; i < library->heap.class_count; i++) {
        bool is_known = votes[i].count > 0;
        library->class_bytes[i] = is_known ? votes[i].size_bytes : 16;
        library->class_capacity[i] = is_known ? votes[i].capacity : 0;
        library->class_pages[i] = is_known ? pages_for(votes[i].size_bytes, votes[i].capacity) : 0;
    }
}

static bool is_slab_header(const struct look *look, const unsigned char *bytes, unsigned tag)
{
    const struct page_layout *page = &look->library->page;
    const struct heap_layout *heap = &look->library->heap;
    unsigned size_class = tag - page->tag_slab;
    uint64_t base = field(bytes, page->span_base);
    uint64_t owner = field(bytes, page->span_owner) & ~(uint64_t)heap->owner_tags;
    if (tag < page->tag_slab || field(bytes, page->span_side_units) == 0 ||
        (owner != 0 && !is_readable(look, owner, heap->heap_bytes)))
        return false;
    if (size_class == heap->packed_class)
        return base != 0 && (base + heap->packed_bytes) % 4096 == 0 && owner != 0;
    if (size_class >= heap->class_count)
        return false;
    uint64_t size = look->library->class_bytes[size_class];
    return base != 0 && (base + size) % 4096 == 0 && field(bytes, page->span_size_bytes) == size &&
           field(bytes, page->span_capacity) == look->library->class_capacity[size_class];
}

static bool is_other_header(const struct look *look, const unsigned char *bytes, unsigned tag)
{
    const struct page_layout *page = &look->library->page;
    uint64_t base = field(bytes, page->span_base);
    bool is_known = tag == page->tag_free || tag == page->tag_kept || tag == page->tag_large ||
                    tag == page->tag_huge || tag == page->tag_run || tag == page->tag_run_huge ||
                    tag == page->tag_revoked;
    return is_known && field(bytes, page->span_owner) == 0 && base != 0 && base % 4096 == 0 &&
           base < (uint64_t)1 << page->address_bits && field(bytes, page->span_pages) != 0;
}

static void note_header(struct look *look, uint64_t address, uint64_t base, bool is_slab,
                        unsigned tag)
{
    struct span_view span;
    uint64_t start = base;
    unsigned size_class = tag - look->library->page.tag_slab;
    if (is_slab)
        start += size_class == look->library->heap.packed_class
                     ? look->library->heap.packed_bytes
                     : look->library->class_bytes[size_class];
    if (!view_span(look, address, start, &span))
        return;
    headers = with_room(headers, header_count, &headers_most, sizeof *headers);
    headers[header_count++] = (struct header){address, span.start, span.bytes, is_slab};
}

// Finds either the slab headers of a segment or the other ones. Returns: their number.
static size_t search(struct look *look, const struct segment *segment, bool slabs)
{
    static unsigned char piece[PIECE + 256];
    const struct page_layout *page = &look->library->page;
    size_t before = header_count;
    for (uint64_t at = 0; at + page->span_bytes <= segment->bytes; at += PIECE) {
        size_t bytes = segment->bytes - at < PIECE ? (size_t)(segment->bytes - at) : PIECE;
        if (!read_large(look->target, segment->start + at, piece, bytes))
            break;
        for (size_t i = 0; i + page->span_bytes <= bytes; i += HEADER_STEP) {
            unsigned tag = (unsigned)field(piece + i, page->span_tag);
            if (tag != 0 && (slabs ? is_slab_header(look, piece + i, tag)
                                   : is_other_header(look, piece + i, tag)))
                note_header(look, segment->start + at + i, field(piece + i, page->span_base), slabs,
                            tag);
        }
    }
    return header_count - before;
}

static int by_start(const void *left, const void *right)
{
    const struct header *a = left, *b = right;
    if (a->start != b->start)
        return a->start < b->start ? -1 : 1;
    return (int)b->is_slab - (int)a->is_slab;
}

static void search_all(struct look *look)
{
    const struct target *target = look->target;
    uint64_t end = 0;
    size_t kept = 0;
    is_searched = true;
    if (look->library->class_bytes[0] == 0)
        learn_classes(look);
    for (size_t i = 0; i < target->segment_count; i++)
        if (search(look, &target->segments[i], true) >= SLABS_LEAST)
            (void)search(look, &target->segments[i], false);
    sort(headers, header_count, sizeof *headers, by_start);
    for (size_t i = 0; i < header_count; i++)
        if (headers[i].start >= end) {
            end = headers[i].start + headers[i].bytes;
            headers[kept++] = headers[i];
        }
    header_count = kept;
}

void walk_headers(struct look *look, span_seen *seen, void *context)
{
    if (!is_searched)
        search_all(look);
    for (size_t i = 0; i < header_count; i++) {
        struct span_view span;
        if (view_span(look, headers[i].address, headers[i].start, &span))
            seen(look, &span, context);
    }
}

bool find_by_header(struct look *look, uint64_t address, struct span_view *span)
{
    if (!is_searched)
        search_all(look);
    for (size_t i = 0; i < header_count; i++)
        if (address >= headers[i].start && address - headers[i].start < headers[i].bytes)
            return view_span(look, headers[i].address, headers[i].start, span);
    return false;
}
