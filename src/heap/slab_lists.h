/* The slabs of a heap: making them, counting their blocks, and changing their states (slab.h).
 *
 * Of the medium classes' slabs that are empty, only the one that became empty last stays current:
 * it serves a cycle of malloc and free. The others are retired, because no other thread can use or
 * purge a current slab. From time to time, and when it has returned a MiB and as much as it has
 * left, a heap settles: it puts all its current slabs aside (decision 48). Once it is aside, a slab
 * is retired with its last block, its free pages are purged, or the next malloc of its class makes
 * it current again.
 * Locking: heap held, for all functions without another tag. */
#ifndef CAIRN_HEAP_SLAB_LISTS_H
#define CAIRN_HEAP_SLAB_LISTS_H

#include "heap/slab.h"
#include "heap/thread_heap.h"

/* Makes an empty slab of the class for `heap`.
 * Returns: NULL when out of memory.
 * Locking: heap held, no other lock. */
struct span *slab_make(struct heap *heap, unsigned size_class);

/* Takes the pages and the header of an empty slab. slab_open must follow.
 * Returns: NULL when out of memory. Threads: any, no lock held. */
struct span *slab_take(unsigned size_class);

/* Gives an empty slab of slab_take to the heap. Makes no system call. */
void slab_open(struct heap *heap, struct span *slab);

/* The blocks and the memory of one slab, or sums of them, for statistics. */
struct slab_count {
    size_t live_blocks, slots, live_bytes, slab_bytes;
};

/* Counts the blocks of a slab that had the class when the caller read it.
 * Threads: any; approximate while others use the slab. */
struct slab_count heap_count_slab(const struct span *slab, unsigned size_class);

/* Acts on a slab whose `frees_to_attention` has reached 0, or on a packed one that is aside and in
 * which other threads freed blocks. The slab may be retired. */
void heap_count_expired(struct heap *heap, struct span *slab);

/* Looks at the clock, does a part of the work that is due by age, and settles the heap if that is
 * due. Does nothing unless the heap is the calling thread's, and while it drains a mailbox.
 * Locking: heap held, no other lock. */
void heap_look(struct heap *heap);

/* Counts a call of a slow path, one in some of which looks at the clock. The caller holds no slab,
 * because the look may retire slabs and put others aside. */
inline_always void heap_note_call(struct heap *heap)
{
    if (unlikely(--heap->calls_to_look == 0))
        heap_look(heap);
}

/* Puts a slab that is aside and has `used` slots in use into the list of its class, or retires it
 * if `used` is 0. */
void heap_list_slab(struct heap *heap, struct span *slab, unsigned used);

/* Makes another slab current, or none. */
void heap_make_current(struct heap *heap, unsigned size_class, struct span *slab);

/* Puts the current slab of the class aside with an exact count: the slab becomes LISTED or FULL, or
 * is retired. Does nothing if no slab is current. */
void heap_put_aside(struct heap *heap, unsigned size_class);

/* Puts the current slab of the class aside, when it has neither a listed slot nor one that was
 * never handed out. */
void heap_leave_current(struct heap *heap, unsigned size_class);

/* Adds `count` slabs of the class, which may be negative, to the sums of a thread's heap. */
inline_always void heap_add_to_sums(struct heap *heap, unsigned size_class, ptrdiff_t count)
{
    heap->slab_pages += (size_t)count * size_classes[size_class].pages;
    if (size_class == 0)
        heap->smallest_slabs += (uint32_t)count;
}

/* Moves a slab from one thread's heap to another's, into the state that it had.
 * Returns: false if the slab stays where it is, because another thread purges it, or it is in a
 * mailbox, or it was empty and was retired. No slab moves to a heap that looks for what a fork
 * lost: a thread of this process may have borrowed blocks of it, and the look would take them back.
 * Locking: both heaps held. */
bool heap_move_slab(struct heap *from, struct heap *to, struct span *slab);

/* Checks the heap's slabs and their lists, with assertions. The caller checks config_debug. */
void slab_lists_verify(struct heap *heap);

#endif
