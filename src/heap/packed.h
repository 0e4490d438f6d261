/* Packed slabs: blocks of 8 bytes next to one another, for a heap that has many.
 *
 * A request of at most 8 bytes is usually served by a block of the smallest class: 16 bytes, a link
 * byte and its share of a header. Once a heap has PACKED_FROM_SLABS slabs of that class, such
 * requests are served from slabs of a class of their own, PACKED_CLASS (decision 9). Packed slabs
 * have the states, lists, mailboxes, sweeps and limits of all slabs (slab.h). Two things differ:
 *   slot    64 blocks; `fresh_slot`, `capacity` and `frees_to_attention` count such slots
 *   link    a word of 64 bits, one for each block: set while the block is free
 *
 * Any thread sets a bit by an atomic OR, which detects the second free of a block, whichever
 * threads free it. Only the owner clears bits, by an atomic AND, when it hands blocks out of its
 * current slab. So a block that another thread freed needs no collecting. Two events change a
 * count: the first block of a full slot becomes free, or the last block of a slot becomes free. The
 * thread whose OR does one of these reports it. The owner counts it in `frees_to_attention`.
 * Another thread posts the slab (remote.c), and the owner counts the slots anew when it takes the
 * slab out of the mailbox (heap_recount_packed).
 *
 * The count in each state:
 *   CURRENT   events until the next check of what is due, as in a small class; blocks are taken
 *             from word `head`, then from the next word that has one
 *   LISTED    the slots with a block in use, or more
 *   FULL      the slots that have yet to get a free block until the slab becomes LISTED, or more
 *
 * The count may be too high by slots in which other threads freed blocks, until the slab is taken
 * out of the mailbox. The count is never too low, because no block of a slab that is aside is
 * handed out.
 *
 * Guarded, profiled and traced blocks are not packed: they have classes of 16 bytes and more. */
#ifndef CAIRN_HEAP_PACKED_H
#define CAIRN_HEAP_PACKED_H

#include "base/alone.h"
#include "heap/hooks.h"
#include "heap/thread_heap.h"

/* The number of slabs of the smallest class from which on a heap packs. */
enum { PACKED_FROM_SLABS = config_debug ? 4 : 1024 };

/* Decides whether the heap packs requests of at most PACKED_BYTES from now on.
 * Locking: heap held. */
bool packed_turn_on(struct heap *heap);

/* Whether a request of at most PACKED_BYTES is served by a packed slab of the heap.
 * Locking: heap held. */
inline_always bool packed_serves(struct heap *heap)
{
    return config_packed && !heap_has_hook(HOOK_GUARDS | HOOK_PROFILE | HOOK_TRACE) &&
           (likely(heap->packs) || packed_turn_on(heap));
}

/* Takes a block of word `head` of the current packed slab; NULL if that word has none.
 * Threads: owner only. */
inline_always void *packed_take_at_hand(struct heap *heap)
{
    struct span *slab = heap->current[PACKED_CLASS];
    size_t word = slab_hot(slab)->head;
    if (unlikely(word + 1 >= slab->fresh_slot)) /* also true for the empty slab */
        return NULL;
    uint64_t free = load_relaxed(packed_word(slab, word));
    if (unlikely(free == 0))
        return NULL;
    /* Acquire: pairs with packed_free. */
    clear_if_threaded(packed_word(slab, word), free, free & -free);
    return slab_start(slab) + (word * 64 + lowest_bit(free)) * PACKED_BYTES;
}

/* Takes a block of a packed slab. Returns: NULL when out of memory. Threads: owner only. */
void *packed_take(struct heap *heap);

/* Frees a block of a packed slab that was `heap`'s when the caller read its owner. Dies unless
 * `pointer` is a block in use.
 * Returns: true if the slab has to be posted.
 * Threads: any, lock-free. */
bool packed_free(void *pointer, struct heap *heap, struct span *slab);

#endif
