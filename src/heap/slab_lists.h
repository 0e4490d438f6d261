/* The slabs of a heap: making them, counting their blocks, and changing their states. A slab is
 * current, LISTED or FULL, or it stays current as a spare slab when it is empty. slab.h has the
 * table of these states and of what `frees_to_attention` counts in each.
 *
 * Empty slabs of medium classes stay current, up to a limit for the heap; then some are retired. A
 * heap whose slabs are all current puts them aside from time to time, so that each of them is
 * retired with its last block.
 *
 * Locking: heap held, for all functions without another tag.
 */
#ifndef CAIRN_HEAP_SLAB_LISTS_H
#define CAIRN_HEAP_SLAB_LISTS_H

#include "heap/slab.h"
#include "heap/thread_heap.h"

/* Makes an empty slab of the class for `heap`. If some of its pages had no memory before, the runs
 * in the heap's cache are given to the page layer, so that the next takes use them up first.
 * Returns: NULL when out of memory.
 * Locking: heap held, no other lock. */
struct span *slab_make(struct heap *heap, unsigned size_class);

/* Takes the pages and the header of an empty slab. `*is_new` says whether some of the pages had
 * no memory before. slab_open must follow.
 * Returns: NULL when out of memory.
 * Threads: any, no lock held. */
struct span *slab_take(unsigned size_class, bool *is_new);

/* Gives an empty slab of slab_take to the heap. Makes no system call. */
void slab_open(struct heap *heap, struct span *slab);

/* The blocks and the memory of one slab, or sums of them, for statistics. */
struct slab_count {
    size_t live_blocks, slots, live_bytes, slab_bytes;
};

/* Counts the blocks of a slab that had the class when the caller read it. Approximate while other
 * threads use the slab.
 * Threads: any. */
struct slab_count heap_count_slab(const struct span *slab, unsigned size_class);

/* Acts on a slab whose `frees_to_attention` has reached 0: it is empty, or no longer full, or
 * current. */
void heap_count_expired_slab(struct heap *heap, struct span *slab);

/* The value of `spare_mark` in the current slab of a medium class while the slab counts as spare
 * with this `fresh_slot`. Odd, so it differs from every `next`, which shares the word in slabs that
 * are not current. */
inline_always uint32_t slab_spare_mark(uint64_t limit) { return (uint32_t)limit * 2 + 1; }

/* Whether a slab whose `frees_to_attention` has reached 0 needs no action. The slab is then the
 * current slab of a medium class, and counts as spare with the slots that it had handed out when it
 * was empty last. All spare slabs were checked then. False after every TICK_CYCLES cycles. */
inline_always bool slab_goes_in_cycles(struct span *slab)
{
    return likely(slab->spare_mark == slab_spare_mark(load_relaxed(&slab->fresh_slot))) &&
           likely(--slab->cycles != 0);
}

/* Does what heap_count_expired_slab does, unless slab_goes_in_cycles says that nothing is to do. */
inline_always void heap_count_expired(struct heap *heap, struct span *slab)
{
    if (!slab_goes_in_cycles(slab))
        heap_count_expired_slab(heap, slab);
}

/* Puts a slab that is aside and has `used` slots in use into the list of its class, or retires it
 * if `used` is 0. */
void heap_list_slab(struct heap *heap, struct span *slab, unsigned used);

/* Counts the slots of a packed slab that is aside, because blocks that other threads free are not
 * counted one by one. Lists the slab, leaves it FULL, or retires it. */
void heap_recount_packed(struct heap *heap, struct span *slab);

/* Retires a LISTED slab that is empty now. A slab that is in a mailbox, or about to be, stays in
 * the list: it is retired when the mailbox is drained, unless it is used again. A slab that is
 * being purged stays in the list too: the purging thread posts it afterwards. */
void heap_retire_listed(struct heap *heap, struct span *slab);

/* Lowers the heap's limit of spare slabs to the usual one, if it was raised. */
void heap_lower_spare(struct heap *heap);

/* In the child of a fork: of the heaps that had a raised limit, only `own` is left, or none if it
 * is NULL. */
void heap_reset_raised(const struct heap *own);

/* Makes another slab current, or none. The count of a small slab only has to stay above 0 while the
 * slab is current; the count of a medium slab stays exact. */
void heap_make_current(struct heap *heap, unsigned size_class, struct span *slab);

/* Puts the current slab of the class aside with an exact count: the slab becomes LISTED or FULL, or
 * is retired. Does nothing if no slab is current. */
void heap_put_aside(struct heap *heap, unsigned size_class);

/* Puts the current slab of the class aside, when it has neither a listed slot nor one that was
 * never handed out. */
void heap_leave_current(struct heap *heap, unsigned size_class);

/* Puts a slab of a private heap that was just opened into the list of its class. */
void heap_add_slab(struct heap *heap, struct span *slab);

/* Moves a slab from one thread's heap to another's, into the state that it had.
 * Returns: false if the slab stays where it is, because another thread purges it, or it is in a
 * mailbox, or it was empty and was retired.
 * Locking: both heaps held. */
bool heap_move_slab(struct heap *from, struct heap *to, struct span *slab);

/* Checks the lists, the counts and the spare slabs of a heap, with assertions. The caller checks
 * config_debug. */
void slab_lists_verify(struct heap *heap);

#endif
