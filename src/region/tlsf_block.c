/* Where a block can lie, of a heap with several regions: see tlsf_block.h. No state. Threading: as
 * the heap. */
#include "region/tlsf_block.h"

bool region_search(const struct cairn_tlsf *heap, place at, struct bounds *bounds)
{
    for (place region = heap->regions; region != 0; region = region_at(heap, region)->next) {
        place first = region_first(region);
        size_t size_bytes = region_at(heap, region)->size_bytes;
        if ((uint64_t)(at - first) <= size_bytes) {
            *bounds = (struct bounds){first, first + (place)size_bytes};
            return true;
        }
    }
    return false;
}
