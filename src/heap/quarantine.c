/* Freed blocks that wait: see quarantine.h. An entry is a slab with the slot number in the upper 16
 * bits, 0 when empty. */
#include "heap/quarantine.h"

#include "base/random.h"
#include "heap/slab_lists.h"

/* In front of the list or behind its first, by `random`; without a branch, which would be mistaken
 * half of the times. The head is written as the word that it is read as: see span.h. */
inline_always void insert(struct span *slab, unsigned slot, uint64_t random)
{
    uint8_t *links = slab_link(slab, 0);
    unsigned head = slab_own(slab)->head;
    unsigned behind = 0 - ((unsigned)random & (head != LINK_END)); /* all bits, or none */
    unsigned first = slot ^ ((slot ^ head) & behind);
    unsigned second = slot ^ head ^ first;
    unsigned rest = load_relaxed(&links[first]); /* of the list, where the slot goes behind */
    store_relaxed(&links[slot], (uint8_t)(head ^ ((head ^ rest) & behind)));
    store_relaxed(&links[first], (uint8_t)second);
    slab_own(slab)->head = first;
    slab_own(slab)->top = slab_block(slab, first);
}

inline_always void release(struct heap *heap, struct span *slab, unsigned slot, uint64_t random)
{
    insert(slab, slot, random);
    if (unlikely(--slab_own(slab)->until == 0))
        heap_attend(heap, slab);
}

enum { ENTRY_SHIFT = 48 };
static_check((int)ADDRESS_BITS <= (int)ENTRY_SHIFT, "the slot number has room above the address");

inline_always void release_entry(struct heap *heap, uint64_t entry, uint64_t random)
{
    struct span *slab = (struct span *)(uintptr_t)(entry & (((uint64_t)1 << ENTRY_SHIFT) - 1));
    release(heap, slab, (unsigned)(entry >> ENTRY_SHIFT), random);
}

/* Among `count` entries; a constant, or it would be chosen by a multiplication. */
inline_always void replace(struct heap *heap, struct span *slab, unsigned slot, uint64_t *entries,
                           uint32_t count)
{
    uint64_t random = random_next(&heap->random);
    uint64_t *entry = &entries[(random >> 32) * count >> 32];
    uint64_t replaced = *entry;
    *entry = (uint64_t)(uintptr_t)slab | (uint64_t)slot << ENTRY_SHIFT;
    if (likely(replaced != 0))
        release_entry(heap, replaced, random);
}

void quarantine_replace(struct heap *heap, struct span *slab, unsigned slot)
{
    if (likely(slab->size_bytes <= SMALL_MAX))
        replace(heap, slab, slot, heap->quarantine, QUARANTINE_SMALL);
    else
        replace(heap, slab, slot, heap->quarantine + QUARANTINE_SMALL, QUARANTINE_MEDIUM);
}

void quarantine_empty(struct heap *heap)
{
    for (size_t i = 0; i < countof(heap->quarantine); i++) {
        uint64_t entry = heap->quarantine[i];
        heap->quarantine[i] = 0;
        if (entry != 0)
            release_entry(heap, entry, random_next(&heap->random));
    }
}
