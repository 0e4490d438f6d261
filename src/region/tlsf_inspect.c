/* Inspection of a TLSF heap: the walk, the statistics, and the verifier of every invariant.
 *
 * The walk trusts the heap as the operations do, and ends the process where they would. The
 * verifier trusts nothing: it compares every number with its bounds before it follows it, so it can
 * also judge a heap that was read from a file.
 *
 * Threads: one at a time in a heap.
 * Cost: both walk and verifier are linear in the size of the heap.
 */
#include "region/tlsf.h"

api void cairn_tlsf_walk(const struct cairn_tlsf *heap, cairn_tlsf_visit *visit, void *context)
{
    for (place region = heap->regions; region != 0; region = region_at(heap, region)->next) {
        place at = region_first(region);
        place end = at + (place)region_at(heap, region)->size_bytes;
        while (at < end) {
            struct block *block = block_at(heap, at);
            uint64_t word = block->word;
            size_t size = word_size(word);
            if (!word_is_block(word, at) || size == 0 || size > (size_t)(end - at))
                die_of_damage(heap, at);
            at += (place)size; /* first, because the visitor may free the block */
            if (!visit(block_memory(block), size - BLOCK_WORD_BYTES, !word_is_free(word), context))
                return;
        }
    }
}

/* The largest request that the heap can meet now. */
static size_t tlsf_largest_request(const struct cairn_tlsf *heap)
{
    if (heap->first == 0)
        return 0;
    unsigned first = highest_bit(heap->first);
    place at = heap->head[first << TLSF_SECOND_BITS | highest_bit(heap->second[first])];
    size_t largest = 0;
    for (unsigned i = 0; at != 0 && i < TLSF_LAST_PROBES; i++) {
        largest = larger_of(largest, word_size(block_at(heap, at)->word));
        at = block_at(heap, at)->next;
    }
    return largest - BLOCK_WORD_BYTES;
}

api void cairn_tlsf_read_stats(const struct cairn_tlsf *heap, struct cairn_tlsf_stats *stats)
{
    *stats = (struct cairn_tlsf_stats){
        .total_bytes = heap->total_bytes,
        .used_bytes = heap->total_bytes - heap->free_bytes,
        .free_bytes = heap->free_bytes,
        .least_free_bytes = heap->least_free_bytes,
        .largest_request_bytes = tlsf_largest_request(heap),
        .used_blocks = heap->used_blocks,
        .regions = heap->region_count,
    };
}

/* The sums that the verifier has counted so far. */
struct count {
    size_t total_bytes;
    size_t free_bytes;
    size_t free_blocks;
    size_t used_blocks;
    size_t regions;
};

/* Checks the boundary tag of a free block, and the link to it. The block's word and its neighbours
 * are sound.
 * Returns: NULL, or what is wrong. */
static const char *tlsf_check_free_block(const struct cairn_tlsf *heap, place at, size_t size)
{
    struct block *block = block_at(heap, at);
    if (*block_footer(block_at(heap, at + (place)size)) != size)
        return "the boundary tag of a free block is not its size";
    if (size > heap->largest_bytes)
        return "a free block is larger than the heads reach";
    if (heap->head[tlsf_class_of(size)] == at)
        return NULL;
    struct bounds bounds;
    if (!region_of(heap, block->prev, &bounds) || block_at(heap, block->prev)->next != at)
        return "a free block is not in its list";
    return NULL;
}

/* Checks a block's word. `flag` is the BLOCK_PREVIOUS_FREE that the block in front requires, and
 * `left_bytes` is the distance to the end word.
 * Returns: NULL, or what is wrong. */
static const char *tlsf_check_word(uint64_t word, place at, size_t left_bytes, unsigned flag)
{
    if (!word_matches(word, at, 0, BLOCK_END))
        return "the tag of a block is wrong";
    if (word_size(word) < BLOCK_MIN_BYTES || word_size(word) > left_bytes)
        return "the size of a block is wrong";
    if (((unsigned)word & BLOCK_PREVIOUS_FREE) != flag)
        return "a block is wrong about the one in front of it";
    if (word_is_free(word) && flag != 0)
        return "two free blocks are neighbours";
    return NULL;
}

static const char *tlsf_check_region(const struct cairn_tlsf *heap, place region,
                                     struct count *count)
{
    place at = region_first(region);
    place end = at + (place)region_at(heap, region)->size_bytes;
    unsigned flag = 0;
    while (at < end) {
        uint64_t word = block_at(heap, at)->word;
        const char *fault = tlsf_check_word(word, at, (size_t)(end - at), flag);
        if (!fault && word_is_free(word))
            fault = tlsf_check_free_block(heap, at, word_size(word));
        if (fault)
            return fault;
        flag = word_is_free(word) ? BLOCK_PREVIOUS_FREE : 0;
        count->free_blocks += flag != 0;
        count->free_bytes += flag != 0 ? word_size(word) : 0;
        count->used_blocks += flag == 0;
        at += (place)word_size(word);
    }
    count->total_bytes += region_at(heap, region)->size_bytes;
    count->regions++;
    bool sound = block_at(heap, end)->word == word_of(end, 0, BLOCK_END | flag);
    return sound ? NULL : "the end word of a region is wrong";
}

static const char *tlsf_check_regions(const struct cairn_tlsf *heap, struct count *count)
{
    for (place at = heap->regions; at != 0; at = region_at(heap, at)->next) {
        place first = region_first(at);
        size_t size = place_is_within(heap, first) ? region_at(heap, at)->size_bytes : 0;
        bool sound = size >= BLOCK_MIN_BYTES && size <= heap->extent_bytes &&
                     place_is_within(heap, first + (place)size);
        if (!sound || count->regions == heap->region_count)
            return "the list of regions is broken";
        const char *fault = tlsf_check_region(heap, at, count);
        if (fault)
            return fault;
    }
    return NULL;
}

/* Checks one list of at most `most` blocks: each block is free, of the class, and linked back.
 * Returns: NULL, or what is wrong. */
static const char *tlsf_check_list(const struct cairn_tlsf *heap, unsigned size_class, size_t most,
                                   size_t *blocks)
{
    place prev = 0;
    for (place at = heap->head[size_class]; at != 0; at = block_at(heap, at)->next) {
        struct bounds bounds;
        if (!region_of(heap, at, &bounds) || *blocks == most)
            return "a list is broken";
        struct block *block = block_at(heap, at);
        if (!word_matches(block->word, at, BLOCK_FREE, BLOCK_FREE) ||
            tlsf_class_of(word_size(block->word)) != size_class)
            return "a list holds what does not belong there";
        if (prev != 0 && block->prev != prev)
            return "a list does not lead back";
        prev = at;
        ++*blocks;
    }
    return NULL;
}

static const char *tlsf_check_lists(const struct cairn_tlsf *heap, const struct count *count)
{
    unsigned classes = heap->levels * TLSF_SECOND_LEVELS;
    size_t blocks = 0;
    for (unsigned size_class = 0; size_class < classes; size_class++) {
        unsigned first = size_class >> TLSF_SECOND_BITS;
        bool marked = heap->second[first] >> (size_class & (TLSF_SECOND_LEVELS - 1)) & 1;
        if (marked != (heap->head[size_class] != 0) ||
            (heap->first >> first & 1) != (heap->second[first] != 0))
            return "a bitmap is wrong";
        const char *fault = tlsf_check_list(heap, size_class, count->free_blocks, &blocks);
        if (fault)
            return fault;
    }
    if (heap->first >> 1 >> (heap->levels - 1) != 0)
        return "a bitmap is wrong";
    return blocks == count->free_blocks ? NULL : "a free block is in no list";
}

api const char *cairn_tlsf_check(const struct cairn_tlsf *heap)
{
    struct count count = {0};
    if (heap->magic != TLSF_MAGIC || heap->levels == 0 || heap->levels > TLSF_FIRST_LEVELS_MAX ||
        heap->largest_bytes + TLSF_GRAIN_BYTES !=
            tlsf_class_floor(heap->levels * TLSF_SECOND_LEVELS))
        return "there is no heap";
    const char *fault = tlsf_check_regions(heap, &count);
    if (!fault)
        fault = tlsf_check_lists(heap, &count);
    if (!fault && (count.total_bytes != heap->total_bytes || count.regions != heap->region_count))
        fault = "the regions are not those counted";
    if (!fault &&
        (count.free_bytes != heap->free_bytes || heap->least_free_bytes > heap->free_bytes))
        fault = "the free bytes are not those counted";
    if (!fault && count.used_blocks != heap->used_blocks)
        fault = "the blocks in use are not those counted";
    return fault;
}
