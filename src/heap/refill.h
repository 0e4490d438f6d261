/* Refilling a heap: a size class whose current slab is exhausted gets another one. Also giving back
 * the memory that a heap keeps without need.
 * Locking: heap held, for all functions. */
#ifndef CAIRN_HEAP_REFILL_H
#define CAIRN_HEAP_REFILL_H

#include "heap/borrow.h"
#include "heap/mailbox.h"
#include "heap/thread_heap.h"

/* Takes a block of the class, whose current slab has none: a borrowed block, or one of the next
 * slab. That is one of the class's list, one kept in the run cache, one that the heap's mailboxes
 * refill, or a new one. Before a new slab is made, blocks are borrowed (borrow.h).
 * Returns: NULL when out of memory, or when a private heap has no slab with room. */
void *heap_take_slow(struct heap *heap, unsigned size_class);

/* Takes a block of the class's current slab. Returns: NULL when the slab has none. */
inline_always void *heap_take_current(struct heap *heap, unsigned size_class)
{
    struct span *slab = heap->current[size_class];
    void *block = slab_pop(slab);
    if (likely(block != NULL) && !class_is_small(size_class))
        slab_hot(slab)->frees_to_attention++;
    return block;
}

/* Takes a block of the class that is not guarded; NULL when heap_take_slow returns it. */
inline_always void *heap_take(struct heap *heap, unsigned size_class)
{
    void *block = heap_take_current(heap, size_class);
    return likely(block != NULL) ? block : heap_take_slow(heap, size_class);
}

/* Collects what other threads have freed, before heap_refill: in slabs of the class, and in all
 * others unless the class has another slab. */
bool heap_gather(struct heap *heap, unsigned size_class);

/* Makes the class's next slab current: one with a free block, or one that was never used.
 * Returns: NULL when out of memory, or when a private heap has no slab with room. */
struct span *heap_refill(struct heap *heap, unsigned size_class);

/* After heap_refill failed: drains all mailboxes, and tries again if there was a slab in one. */
struct span *heap_refill_drained(struct heap *heap, unsigned size_class);

/* Gives back all memory kept without need. Cost: grows with the slabs in its mailboxes. */
void heap_trim(struct heap *heap);

/* Prepares the heap of a thread that ends: puts its current slabs aside, which retires the empty
 * ones, and gives back what the heap keeps for its next need. With `keeps_cheap`, small slabs that
 * hold little stay current, because the next thread is likely to need them.
 * Cost: at most 64 slabs are collected, all borrowed blocks and kept runs are given back. */
void heap_park(struct heap *heap, bool keeps_cheap);

/* Checks the heap, with assertions. Does nothing in builds without config_debug. */
void heap_verify(struct heap *heap);

#endif
