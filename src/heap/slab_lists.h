/* A heap's slabs: which one is current, those that are aside in the lists of their classes or full,
 * and empty ones that stay spare. What a slab's `until` counts in each of these states, and how it
 * gets from one to the other, is a table in slab.h.
 *
 * All of it is the holder's.
 */
#ifndef CAIRN_HEAP_SLAB_LISTS_H
#define CAIRN_HEAP_SLAB_LISTS_H

#include "heap/thread_heap.h"

/* A slab's count of frees ran out: it is empty, or full no more, or current. */
void heap_attend_slab(struct heap *heap, struct span *slab);

/* What a medium class's current slab has in spare_mark while it counts as spare with that limit.
 * Odd: a list or a slab that waits has something even there. */
inline_always uint32_t slab_spare_mark(uint64_t limit) { return (uint32_t)limit * 2 + 1; }

/* A block that comes and goes: its slab is the current one of a medium class, and counts for what
 * it counted for when it was empty before. All that is spare was looked at then. */
inline_always bool slab_goes_in_cycles(struct span *slab)
{
    return likely(slab->spare_mark == slab_spare_mark(load_relaxed(&slab->limit))) &&
           likely(--slab->cycles != 0);
}

/* The same, but in a cycle nothing is done. */
inline_always void heap_attend(struct heap *heap, struct span *slab)
{
    if (!slab_goes_in_cycles(slab))
        heap_attend_slab(heap, slab);
}

/* A slab that is aside, with so many slots in use, into the list of its class. */
void heap_list_slab(struct heap *heap, struct span *slab, unsigned used);

/* A slab of a bin's list is empty now. One in the mailbox, or about to be, stays in the list: the
 * mail brings it back here, or it is used again. So one that is being purged, which is posted
 * after.
 */
void heap_retire_listed(struct heap *heap, struct span *slab);

/* Makes another slab current, or none. While a small one is it, its count only has to stay above
 * zero; a medium one's is exact. */
void heap_make_current(struct heap *heap, unsigned size_class, struct span *slab);

/* Puts the current slab aside with an exact count: into the list, among the full, or away. */
void heap_put_aside(struct heap *heap, unsigned size_class);

/* The current slab has neither a free slot nor an unused one. */
void heap_leave_current(struct heap *heap, unsigned size_class);

/* A slab that was just opened, into the list of its class. */
void heap_add_slab(struct heap *heap, struct span *slab);

void slab_lists_verify(struct heap *heap);

#endif
