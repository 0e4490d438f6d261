/* The entries of the quarantine: see quarantine.h. An entry is the address of a slab, with the slot
 * number in the upper 16 bits, or 0. */
#include "heap/quarantine.h"

#include "base/random.h"
#include "heap/slab_lists.h"

/* Puts a slot at the front of the list of free slots or behind the first one, by the lowest bit of
 * `random`. The function has no branch, which would be mispredicted in half of the cases. The head
 * is written as a word of the size in which it is read: see slab.h. */
inline_always void quarantine_insert(struct span *slab, unsigned slot, uint64_t random)
{
    uint8_t *links = slab_link(slab, 0);
    unsigned head = slab_hot(slab)->head;
    unsigned behind = 0 - ((unsigned)random & (head != LINK_END)); /* all bits, or none */
    unsigned first = slot ^ ((slot ^ head) & behind);
    unsigned second = slot ^ head ^ first;
    unsigned rest = load_relaxed(&links[first]); /* the slot behind the first one */
    store_relaxed(&links[slot], (uint8_t)(head ^ ((head ^ rest) & behind)));
    store_relaxed(&links[first], (uint8_t)second);
    slab_hot(slab)->head = first;
    slab_hot(slab)->top = slab_block(slab, first);
}

/* The place of the slot number in an entry. */
enum { ENTRY_SHIFT = 48 };
static_check((int)ADDRESS_BITS <= (int)ENTRY_SHIFT, "the slot number has room above the address");

/* Makes the block of an entry free: its slot enters the list of free slots. */
inline_always void quarantine_release(struct heap *heap, uint64_t entry, uint64_t random)
{
    struct span *slab = (struct span *)(uintptr_t)(entry & (((uint64_t)1 << ENTRY_SHIFT) - 1));
    quarantine_insert(slab, (unsigned)(entry >> ENTRY_SHIFT), random);
    quarantine_count_free(heap, slab);
}

/* The numbers of entries are constants and powers of two, so each choice is a shift. */
void quarantine_replace(struct heap *heap, struct span *slab, unsigned slot)
{
    uint64_t random = random_next(&heap->random);
    uint64_t *entry = heap->quarantine;
    if (likely(slab->size_bytes <= SMALL_BLOCK_MAX))
        entry += (random >> 32) * QUARANTINE_SMALL >> 32;
    else
        entry += QUARANTINE_SMALL + ((random >> 32) * QUARANTINE_MEDIUM >> 32);
    uint64_t replaced = *entry;
    *entry = (uint64_t)(uintptr_t)slab | (uint64_t)slot << ENTRY_SHIFT;
    if (likely(replaced != 0))
        quarantine_release(heap, replaced, random);
}

void quarantine_empty(struct heap *heap)
{
    for (size_t i = 0; i < countof(heap->quarantine); i++) {
        uint64_t entry = heap->quarantine[i];
        heap->quarantine[i] = 0;
        if (entry != 0)
            quarantine_release(heap, entry, random_next(&heap->random));
    }
}
