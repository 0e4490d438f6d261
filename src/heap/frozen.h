/* Frozen slabs: in the child of a fork, those of the parent's other threads. Their own state is of
 * different instants (see heaps_after_fork), so nothing is allocated from them again, and what is
 * freed of them in this process is marked in words of its own, a bit a slot: those of the remote
 * line, or a packed slab's bits. They count from the first look at them in this process.
 *
 * Threading: any thread, lock-free. */
#ifndef CAIRN_HEAP_FROZEN_H
#define CAIRN_HEAP_FROZEN_H

#include "heap/thread_heap.h"

inline_always bool slab_is_frozen(const struct span *slab)
{
    struct heap *heap = slab_heap(slab);
    return heap != NULL && heap->generation != heap_generation;
}

/* Of a frozen slab, the bit of a slot: slots count from 1, bits from 0. */
inline_always uint64_t *slab_frozen_word(const struct span *slab, unsigned slot)
{
    return &slab_remote(slab)->words[(slot - 1) / 64];
}
inline_always uint64_t slab_frozen_bit(unsigned slot) { return (uint64_t)1 << (slot - 1) % 64; }

inline_always bool slab_frozen_freed(const struct span *slab, unsigned slot)
{
    return (load_acquire(slab_frozen_word(slab, slot)) & slab_frozen_bit(slot)) != 0;
}

/* Sets a bit in a word of the heap's frozen slab; false: it was set, or the slab is another by now.
 */
bool slab_set_frozen(const struct heap *heap, const struct span *slab, uint64_t *word,
                     uint64_t bit);

/* In the child of a fork: the thread that resizes the block is the parent's, so it is done. False:
 * it is this process's. */
bool large_forget_resizer(struct span *span);

/* A large block, mapping or not, while a thread resizes it: nobody else may free it. What post says
 * then: its tag otherwise, and the process. */
enum { RESIZED_PROCESS_SHIFT = 8 };
inline_always uintptr_t large_resized(uint8_t kind)
{
    return (uintptr_t)heap_generation << RESIZED_PROCESS_SHIFT | kind;
}

/* Whether the span is such a block in use that nobody resizes: not in this process. */
inline_always bool large_is_in_use(struct span *span)
{
    uint8_t tag = load_relaxed(&span->tag);
    return tag == SPAN_LARGE || tag == SPAN_HUGE ||
           (unlikely(tag == SPAN_RESIZED) && large_forget_resizer(span));
}

/* Before the words, or bits, of a frozen slab are looked at. */
void slab_begin_frozen(struct span *slab);

#endif
