/* See harden_fast.h. */
#include "heap/harden_fast.h"

#include "heap/canary.h"
#include "heap/free.h"
#include "heap/quarantine.h"

void *harden_malloc(size_t size_bytes, void *(*slow)(size_t))
{
    if (unlikely(size_bytes > SMALL_MOST))
        return slow(size_bytes);
    struct heap *heap = thread_heap;
    struct span *slab = heap->current[heap->small_class[size_bytes + CANARY_BYTES]];
    unsigned slot = slab->head;
    if (unlikely(slot == LINK_END))
        return slow(size_bytes);
    void *block = slab->top;
    uint8_t *link = slab_link(slab, slot);
    slab->head = load_relaxed(link);
    slab->top = slab_block(slab, slab->head);
    store_relaxed(link, (uint8_t)LINK_LIVE);
    return harden_hand_out_at(block, slab->size_bytes, size_bytes);
}

void harden_free(void *pointer)
{
    if (unlikely(!page_map_reaches((uintptr_t)pointer))) {
        free_foreign(pointer);
        return;
    }
    struct span *slab = page_map_find(pointer);
    if (unlikely(load_relaxed(&slab->owner) != (uintptr_t)thread_heap)) {
        free_slow(pointer, slab);
        return;
    }
    unsigned slot = (unsigned)slab_slot(slab, pointer);
    if (unlikely(slot >= load_relaxed(&slab->limit) ||
                 load_relaxed(slab_link(slab, slot)) != LINK_LIVE)) {
        free_reject(slot, slab);
        return;
    }
    harden_take_back_at(slab, pointer);
    quarantine_retain(thread_heap, slab, slot);
}
