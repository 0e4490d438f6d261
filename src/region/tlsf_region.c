/* TLSF's regions: a heap over the caller's memory, and more memory added and removed.
 *
 * A region is a header, the blocks, and an end word; at first, and again when all its blocks are
 * freed, one free block. The first region lies behind the heap structure in the same memory and
 * stays. Regions do not merge, even side by side: each ends in its own end word.
 *
 * Invariants, threading: tlsf_block.h. The list of regions is walked by add, remove and inspection,
 * and, when there are several, to find that of a pointer; never by allocation.
 */
#include "region/tlsf_region.h"
#include "region/tlsf_host.h"
#include "region/tlsf_list.h"

enum { HEAP_ALIGNMENT_BYTES = 64 };

static_check(sizeof(struct region) + BLOCK_WORD_BYTES == CAIRN_TLSF_REGION_OVERHEAD_BYTES &&
                 (int)BLOCK_WORD_BYTES == (int)CAIRN_TLSF_BLOCK_OVERHEAD_BYTES &&
                 BLOCK_LEAST_BYTES - BLOCK_WORD_BYTES == CAIRN_TLSF_BLOCK_LEAST_BYTES &&
                 (int)TLSF_GRAIN_BYTES == (int)CAIRN_TLSF_ALIGNMENT_BYTES,
             "the header says so");
static_check(TLSF_EINVAL > 0 && TLSF_EBUSY > 0 && TLSF_EFBIG > 0, "error numbers are positive");

/* Lays a region over [start, start + size). Its block's size; 0 when it is too small for one. */
static size_t region_fit(uintptr_t *start, size_t size_bytes)
{
    uintptr_t first = align_up(*start, TLSF_GRAIN_BYTES);
    size_t lost = first - *start + sizeof(struct region) + BLOCK_WORD_BYTES;
    *start = first;
    if (size_bytes < lost || size_bytes - lost < BLOCK_LEAST_BYTES)
        return 0;
    return align_down(size_bytes - lost, TLSF_GRAIN_BYTES);
}

/* Widens low and extent to hold a region's words. */
static void cover(struct cairn_tlsf *heap, place first, place end)
{
    place high = larger_place(heap->low + (place)heap->extent_bytes, end + BLOCK_WORD_BYTES);
    heap->low = smaller_place(heap->low, first);
    heap->extent_bytes = (uint64_t)(high - heap->low);
}

static void region_enter(struct cairn_tlsf *heap, struct region *region, size_t block_bytes)
{
    place at = place_of(heap, region);
    *region = (struct region){.next = heap->regions, .size_bytes = block_bytes};
    heap->regions = at;
    heap->region_count++;
    heap->total_bytes += block_bytes;
    heap->free_bytes += block_bytes;
    place first = region_first(at);
    place end = first + (place)block_bytes;
    block_at(heap, end)->word = word_of(end, 0, BLOCK_END | BLOCK_PREVIOUS_FREE);
    list_link(heap, first, block_bytes);
    cover(heap, first, end);
}

/* The heap structure with so many first levels, and the largest block that their heads reach. */
static size_t heap_bytes(unsigned levels)
{
    return sizeof(struct cairn_tlsf) + levels * TLSF_SECOND_LEVELS * sizeof(place);
}

static size_t largest_within(unsigned levels)
{
    return tlsf_class_floor(levels * TLSF_SECOND_LEVELS) - TLSF_GRAIN_BYTES;
}

/* The first levels that a heap needs over so many bytes, which hold its structure, too. */
static unsigned levels_for(size_t size_bytes, size_t largest_region)
{
    unsigned levels = 1;
    while (levels < TLSF_FIRST_LEVELS_MOST &&
           (largest_within(levels) < largest_region ||
            largest_within(levels) + heap_bytes(levels) < size_bytes))
        levels++;
    return levels;
}

api struct cairn_tlsf *cairn_tlsf_init_for(void *memory, size_t size, size_t largest_region)
{
    uintptr_t given = (uintptr_t)memory;
    uintptr_t start = align_up(given, HEAP_ALIGNMENT_BYTES);
    unsigned levels = levels_for(size, largest_region);
    size_t lost = start - given + heap_bytes(levels);
    uintptr_t region = given + lost;
    size_t block_bytes = size > lost ? region_fit(&region, size - lost) : 0;
    if (memory == NULL || block_bytes == 0 || block_bytes > largest_within(levels)) {
        tlsf_note_invalid();
        return NULL;
    }
    struct cairn_tlsf *heap = (struct cairn_tlsf *)start;
    for (uint64_t *word = (uint64_t *)heap; word < (uint64_t *)region; word++)
        *word = 0;
    heap->magic = TLSF_MAGIC;
    heap->levels = levels;
    heap->largest_bytes = largest_within(levels);
    heap->low = region_first(place_of(heap, (void *)region));
    region_enter(heap, (struct region *)region, block_bytes);
    heap->least_free_bytes = heap->free_bytes;
    return heap;
}

api struct cairn_tlsf *cairn_tlsf_init(void *memory, size_t size)
{
    return cairn_tlsf_init_for(memory, size, 0);
}

api size_t cairn_tlsf_control_bytes(size_t size, size_t largest_region)
{
    return heap_bytes(levels_for(size, largest_region));
}

/* The heap takes as many levels as these, or fewer, and then there is only more left. */
api size_t cairn_tlsf_bytes_for(size_t capacity)
{
    enum { REGION_BYTES = CAIRN_TLSF_REGION_OVERHEAD_BYTES };
    if (capacity > BLOCK_MOST_BYTES - REGION_BYTES - BLOCK_WORD_BYTES)
        return 0;
    size_t region_bytes = block_size_for(capacity) + REGION_BYTES;
    unsigned levels = 1;
    while (largest_within(levels) < region_bytes)
        levels++;
    return heap_bytes(levels) + region_bytes;
}

static bool overlaps(const struct cairn_tlsf *heap, uintptr_t start, size_t size_bytes)
{
    uintptr_t own = (uintptr_t)heap;
    if (start < own + heap_bytes(heap->levels) && own < start + size_bytes)
        return true;
    for (place at = heap->regions; at != 0; at = region_at(heap, at)->next) {
        uintptr_t other = own + (uintptr_t)at;
        size_t other_bytes = sizeof(struct region) + region_at(heap, at)->size_bytes;
        if (start < other + other_bytes + BLOCK_WORD_BYTES && other < start + size_bytes)
            return true;
    }
    return false;
}

api int cairn_tlsf_add(struct cairn_tlsf *heap, void *memory, size_t size)
{
    uintptr_t start = (uintptr_t)memory;
    if (memory == NULL || size > UINTPTR_MAX - start || overlaps(heap, start, size))
        return TLSF_EINVAL;
    size_t block_bytes = region_fit(&start, size);
    if (block_bytes == 0)
        return TLSF_EINVAL;
    if (block_bytes > heap->largest_bytes)
        return TLSF_EFBIG;
    region_enter(heap, (struct region *)start, block_bytes);
    return 0;
}

/* low and extent over the regions that are left. */
static void cover_all(struct cairn_tlsf *heap)
{
    heap->low = region_first(heap->regions);
    heap->extent_bytes = 0;
    for (place at = heap->regions; at != 0; at = region_at(heap, at)->next)
        cover(heap, region_first(at), region_first(at) + (place)region_at(heap, at)->size_bytes);
}

api int cairn_tlsf_remove(struct cairn_tlsf *heap, void *memory)
{
    place wanted = place_of(heap, (void *)align_up((uintptr_t)memory, TLSF_GRAIN_BYTES));
    place *link = &heap->regions;
    while (*link != 0 && *link != wanted)
        link = &region_at(heap, *link)->next;
    if (*link == 0 || region_at(heap, wanted)->next == 0)
        return TLSF_EINVAL; /* the last of the list is the first region */
    struct region *region = region_at(heap, wanted);
    place first = region_first(wanted);
    uint64_t word = block_at(heap, first)->word;
    if (!word_is_free(word) || word_size(word) != region->size_bytes)
        return TLSF_EBUSY;
    list_unlink(heap, first, list_size(heap, first));
    *link = region->next;
    heap->region_count--;
    heap->total_bytes -= region->size_bytes;
    heap->free_bytes -= region->size_bytes;
    heap->least_free_bytes = smaller_of(heap->least_free_bytes, heap->free_bytes);
    cover_all(heap);
    return 0;
}
