/* Blocks of packed slabs (packed.h) for requests of at most 8 bytes. */
#ifndef CAIRN_HEAP_PACKED_TAKE_H
#define CAIRN_HEAP_PACKED_TAKE_H

#include "heap/class_table.h"
#include "heap/packed_words.h"

/* Whether requests of at most PACKED_BYTES are packed, by now. */
bool packed_turn_on(struct heap *heap);

/* Whoever chooses among blocks chooses among those of classes. */
inline_always bool packed_is_off(void)
{
    const uint32_t who = WATCH_GUARDED | WATCH_PROFILE | WATCH_TRACE;
    return unlikely((load_acquire(&heap_watch) & who) != 0);
}

inline_always bool packed_serves(struct heap *heap)
{
    return config_packed && (likely(heap->packed.on) ? !packed_is_off() : packed_turn_on(heap));
}

/* A word with free blocks is claimed; false when memory is out. The holder's. */
bool packed_advance(struct heap *heap);

/* A block of the claimed word; NULL when none is left of it. The holder's. */
inline_always void *packed_take_claimed(struct heap *heap)
{
    struct span *slab = heap->packed.slab;
    if (unlikely(slab == NULL || slab->claimed == 0))
        return NULL;
    uint64_t bits = slab->claimed;
    store_relaxed(&slab->claimed, bits & (bits - 1));
    return slab_own(slab)->claimed_at + lowest_bit(bits) * PACKED_BYTES;
}

/* A block; NULL when memory is out. The holder's. */
inline_always void *packed_allocate(struct heap *heap)
{
    void *block = packed_take_claimed(heap);
    return likely(block != NULL) || !packed_advance(heap) ? block : packed_take_claimed(heap);
}

#endif
