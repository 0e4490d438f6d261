/* Looking at the persistent heap: what an open checks, what a full check walks, statistics.
 *
 * The quick look compares every field that allocation trusts without looking with what it must be
 * in a heap of that size; blocks, links and tags are looked at by TLSF whenever it uses them.
 */
#include "region/persist_heap.h"
#include "region/tlsf_region.h"

#include <errno.h>

static bool tlsf_is_sound(const struct cairn_persist *heap)
{
    const struct cairn_tlsf *tlsf = persist_tlsf_of(heap);
    unsigned levels = TLSF_FIRST_LEVELS_MOST;
    size_t own = sizeof *tlsf + levels * TLSF_SECOND_LEVELS * sizeof(place);
    place region = (place)align_up(own, TLSF_GRAIN_BYTES);
    size_t size = persist_state_of(heap)->size_bytes - PERSIST_STATE_BYTES;
    if (tlsf->magic != TLSF_MAGIC || tlsf->levels != levels || tlsf->regions != region ||
        tlsf->region_count != 1 || tlsf->mapped_bytes != 0 || tlsf->low != region_first(region) ||
        tlsf->largest_bytes + TLSF_GRAIN_BYTES != tlsf_class_floor(levels * TLSF_SECOND_LEVELS))
        return false;
    size_t blocks =
        align_down(size - (size_t)region_first(region) - BLOCK_WORD_BYTES, TLSF_GRAIN_BYTES);
    return region_at(tlsf, region)->size_bytes == blocks && tlsf->total_bytes == blocks &&
           tlsf->extent_bytes == blocks + BLOCK_WORD_BYTES && region_at(tlsf, region)->next == 0;
}

const char *persist_check_state(const struct cairn_persist *heap)
{
    const struct persist_state *state = persist_state_of(heap);
    if (state->magic != PERSIST_STATE_MAGIC)
        return "the heap's state is damaged";
    if (state->size_bytes > heap->mapped_bytes || state->size_bytes < PERSIST_DATA_OFFSET ||
        state->size_bytes % heap->page_bytes != 0)
        return "the heap's size is damaged";
    return tlsf_is_sound(heap) ? NULL : "the heap's allocator is damaged";
}

api const char *cairn_persist_check(struct cairn_persist *heap)
{
    fork_lock_acquire(&heap->lock);
    const char *fault = persist_check_state(heap);
    if (fault == NULL)
        fault = cairn_tlsf_check(persist_tlsf_of(heap));
    if (fault == NULL)
        fault = persist_check_roots(heap);
    fork_lock_release(&heap->lock);
    return fault;
}

api void cairn_persist_read_stats(struct cairn_persist *heap, struct cairn_persist_stats *stats)
{
    fork_lock_acquire(&heap->lock);
    const struct cairn_tlsf *tlsf = persist_tlsf_of(heap);
    *stats = (struct cairn_persist_stats){
        .address = heap->base,
        .moved = heap->moved,
        .tracking = heap->tracker.way,
        .size_bytes = persist_state_of(heap)->size_bytes,
        .capacity_bytes = heap->capacity_bytes,
        .used_bytes = tlsf->total_bytes - tlsf->free_bytes,
        .free_bytes = tlsf->free_bytes,
        .used_blocks = tlsf->used_blocks,
        .last_commit = heap->written,
        .durable_commit = heap->durable,
        .recovered_commits = heap->recovered,
        .log_bytes = heap->segments[0].length + heap->segments[1].length,
        .logged_pages = heap->logged_pages,
        .logged_bytes = heap->logged_bytes,
        .skipped_pages = heap->skipped_pages,
        .syncs = heap->syncs,
        .error = heap->error,
    };
    fork_lock_release(&heap->lock);
}

api int cairn_persist_count_dirty(struct cairn_persist *heap, size_t *pages)
{
    fork_lock_acquire(&heap->lock);
    int error = -persist_refusal(heap);
    if (error == 0)
        error = dirty_find(heap);
    *pages = 0;
    for (size_t i = 0; error == 0 && i < (persist_pages(heap) + 63) / 64; i++)
        *pages += count_bits(heap->dirty[i] & ~heap->dead[i]);
    fork_lock_release(&heap->lock);
    return -error;
}
