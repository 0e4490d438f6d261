/* What a heap allocates from next, and what it gives back. All of it is the holder's. */
#ifndef CAIRN_HEAP_HEAP_SLABS_H
#define CAIRN_HEAP_HEAP_SLABS_H

#include "heap/thread_heap.h"

/* A slab of the class with a slot to take; NULL when memory is out. */
struct span *heap_refill(struct heap *heap, unsigned size_class);

/* A block of the class; NULL when memory is out, or a first-class heap has no slab with room. Not
 * sampled. A medium slab is counted exactly while it is current, so that an empty one is noticed.
 */
inline_always void *heap_take(struct heap *heap, unsigned size_class)
{
    void *block = slab_pop(heap->current[size_class]);
    if (unlikely(block == NULL)) {
        struct span *slab = heap_refill(heap, size_class);
        if (slab == NULL)
            return NULL;
        block = slab_pop(slab);
    }
    if (!class_is_small(size_class))
        slab_own(heap->current[size_class])->until++;
    return block;
}

/* Gives back what this heap keeps without need. */
void heap_trim(struct heap *heap);

/* The same for one whose thread ends, but for small slabs that are current and hold little: the
 * next thread is likely to want them. */
void heap_trim_for_next(struct heap *heap);

void heap_verify(struct heap *heap);

#endif
