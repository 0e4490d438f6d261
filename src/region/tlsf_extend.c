/* A heap of one region that grows at its end, in place: its end word becomes a block, which is then
 * freed like any other and so merges with the free block in front of it. Its way back cuts the free
 * block at the end. See tlsf_region.h.
 */
#include "region/tlsf_list.h"
#include "region/tlsf_region.h"

static place end_of(const struct cairn_tlsf *heap)
{
    return region_first(heap->regions) + (place)region_at(heap, heap->regions)->size_bytes;
}

void tlsf_extend(struct cairn_tlsf *heap, size_t size_bytes)
{
    struct region *region = region_at(heap, heap->regions);
    place end = end_of(heap);
    place new_end = end + (place)size_bytes;
    unsigned flags = (unsigned)block_at(heap, end)->word & BLOCK_PREVIOUS_FREE;
    block_at(heap, new_end)->word = word_of(new_end, 0, BLOCK_END);
    block_at(heap, end)->word = word_of(end, size_bytes, flags);
    region->size_bytes += size_bytes;
    heap->total_bytes += size_bytes;
    heap->extent_bytes += size_bytes;
    heap->used_blocks++;
    cairn_tlsf_free(heap, block_memory(block_at(heap, end)));
}

size_t tlsf_free_at_end(const struct cairn_tlsf *heap)
{
    struct block *end = block_at(heap, end_of(heap));
    return end->word & BLOCK_PREVIOUS_FREE ? *block_footer(end) : 0;
}

void tlsf_cut(struct cairn_tlsf *heap, size_t size_bytes)
{
    place end = end_of(heap);
    place new_end = end - (place)size_bytes;
    size_t before = tlsf_free_at_end(heap);
    place at = end - (place)before;
    list_unlink(heap, at, before);
    list_link(heap, at, before - size_bytes);
    block_at(heap, new_end)->word = word_of(new_end, 0, BLOCK_END | BLOCK_PREVIOUS_FREE);
    region_at(heap, heap->regions)->size_bytes -= size_bytes;
    heap->total_bytes -= size_bytes;
    heap->extent_bytes -= size_bytes;
    heap->free_bytes -= size_bytes;
    if (heap->free_bytes < heap->least_free_bytes)
        heap->least_free_bytes = heap->free_bytes;
}
