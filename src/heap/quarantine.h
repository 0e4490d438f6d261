/* The quarantine of full hardened builds: freed blocks wait in the heap until another freed block
 * takes their place, chosen at random. harden.h has the purpose.
 * Locking: heap held, for all functions. */
#ifndef CAIRN_HEAP_QUARANTINE_H
#define CAIRN_HEAP_QUARANTINE_H

#include "heap/slab_lists.h"

/* Marks the link byte of a block of this heap that is freed or collected, so that no other thread
 * frees it again. Called before the block is wiped. */
inline_always void quarantine_mark(struct span *slab, unsigned slot)
{
    if (config_quarantine)
        store_relaxed(slab_link(slab, slot), (uint8_t)LINK_QUARANTINED);
}

/* Counts a slot that has entered the list of free slots. */
inline_always void quarantine_count_free(struct heap *heap, struct span *slab)
{
    if (unlikely(--slab_hot(slab)->frees_to_attention == 0)) {
        heap_count_expired(heap, slab);
        heap_note_call(heap);
    }
}

/* Puts a marked block into quarantine; the block that it replaces becomes free. */
void quarantine_replace(struct heap *heap, struct span *slab, unsigned slot);

/* Does quarantine_replace. In builds without quarantine, the block becomes free at once. */
inline_always void quarantine_retain(struct heap *heap, struct span *slab, unsigned slot)
{
    if (config_quarantine) {
        quarantine_replace(heap, slab, slot);
        return;
    }
    slab_push(slab, slot);
    quarantine_count_free(heap, slab);
}

/* Makes all blocks of the quarantine free. */
void quarantine_empty(struct heap *heap);

/* Does quarantine_empty, in builds that have a quarantine. */
inline_always void quarantine_flush(struct heap *heap)
{
    if (config_quarantine)
        quarantine_empty(heap);
}

#endif
