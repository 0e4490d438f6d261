/* Freed blocks that wait: see quarantine.h. An entry is a slab with the slot number in the upper 16
 * bits, 0 when empty. */
#include "heap/quarantine.h"

#include "base/random.h"
#include "heap/slab_lists.h"

/* In front of the list or behind its first, by `random`; without a branch, which would be mistaken
 * half of the times. */
inline_always void insert(struct span *slab, unsigned slot, uint64_t random)
{
    uint8_t *links = slab_link(slab, 0);
    uintptr_t front = (uintptr_t)&slab->head; /* its low byte, which comes first */
    uintptr_t behind = (uintptr_t)&links[slab->head];
    uintptr_t choice = config_random_frees ? random & (slab->head != LINK_END) : 0;
    uint8_t *place = (uint8_t *)(front ^ ((front ^ behind) & (0 - choice)));
    store_relaxed(&links[slot], *place);
    store_relaxed(place, (uint8_t)slot);
    slab->top = slab_block(slab, slab->head);
}

inline_always void release(struct heap *heap, struct span *slab, unsigned slot, uint64_t random)
{
    insert(slab, slot, random);
    if (unlikely(--slab->until == 0))
        heap_attend(heap, slab);
}

enum { ENTRY_SHIFT = 48 };
static_check((int)ADDRESS_BITS <= (int)ENTRY_SHIFT, "the slot number has room above the address");

inline_always void release_entry(struct heap *heap, uint64_t entry, uint64_t random)
{
    struct span *slab = (struct span *)(uintptr_t)(entry & (((uint64_t)1 << ENTRY_SHIFT) - 1));
    release(heap, slab, (unsigned)(entry >> ENTRY_SHIFT), random);
}

void quarantine_retain(struct heap *heap, struct span *slab, unsigned slot)
{
    if (!config_quarantine) {
        release(heap, slab, slot, config_random_frees ? random_next(&heap->random) : 0);
        return;
    }
    uint64_t random = random_next(&heap->random);
    store_relaxed(slab_link(slab, slot), (uint8_t)LINK_QUARANTINED);
    bool small = slab->size_bytes <= SMALL_MAX;
    uint64_t *entries = heap->quarantine + (small ? 0 : QUARANTINE_SMALL);
    uint64_t *entry =
        &entries[(random >> 32) * (small ? QUARANTINE_SMALL : QUARANTINE_MEDIUM) >> 32];
    uint64_t replaced = *entry;
    *entry = (uint64_t)(uintptr_t)slab | (uint64_t)slot << ENTRY_SHIFT;
    if (likely(replaced != 0))
        release_entry(heap, replaced, random);
}

void quarantine_flush(struct heap *heap)
{
    if (!config_quarantine)
        return;
    for (size_t i = 0; i < countof(heap->quarantine); i++) {
        uint64_t entry = heap->quarantine[i];
        heap->quarantine[i] = 0;
        if (entry != 0)
            release_entry(heap, entry, random_next(&heap->random));
    }
}
