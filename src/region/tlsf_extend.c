/* A heap of one region that grows at its end, in place: its end word becomes a block, which is then
 * freed like any other and so merges with the free block in front of it. See tlsf_region.h.
 */
#include "region/tlsf_region.h"

void tlsf_extend(struct cairn_tlsf *heap, size_t size_bytes)
{
    struct region *region = region_at(heap, heap->regions);
    place end = region_first(heap->regions) + (place)region->size_bytes;
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
