/* The quarantine of hardened builds: harden.h says what it is for. All of it is the holder's. */
#ifndef CAIRN_HEAP_QUARANTINE_H
#define CAIRN_HEAP_QUARANTINE_H

#include "heap/slab_lists.h"

/* An own block is freed, before it is wiped, or one is collected: nobody else frees it any more. */
inline_always void quarantine_mark(struct span *slab, unsigned slot)
{
    if (config_quarantine)
        store_relaxed(slab_link(slab, slot), (uint8_t)LINK_QUARANTINED);
}

void quarantine_replace(struct heap *heap, struct span *slab, unsigned slot);

/* A block that was marked: into quarantine, and what it replaces becomes free. Where there is
 * none, it is free at once. */
inline_always void quarantine_retain(struct heap *heap, struct span *slab, unsigned slot)
{
    if (config_quarantine) {
        quarantine_replace(heap, slab, slot);
        return;
    }
    slab_push(slab, slot);
    if (unlikely(--slab_own(slab)->until == 0))
        heap_attend(heap, slab);
}

void quarantine_empty(struct heap *heap);

/* All of the quarantine becomes free. */
inline_always void quarantine_flush(struct heap *heap)
{
    if (config_quarantine)
        quarantine_empty(heap);
}

#endif
