/* Taking and freeing blocks of packed slabs: see packed.h.
 *
 * No double free passes if one free comes after the other: the bit of a free block is set until the
 * block is handed out again. No free is lost. Of the frees that set the bits of a word, exactly one
 * finds 0 before, and exactly one finds all other bits set. A free marks first and then reports, as
 * steps (1) and (2) of remote.c do. All arguments there about a slab that is posted,
 * opened, retired and reclaimed hold here. After its OR, a free reads only `mail_state` of the
 * slab, and the owner's fields if the slab is the thread's own.
 *
 * A second free may be late: the first one gave the slab back, and its header serves another slab.
 * Headers with a cold area of this size only ever serve packed slabs. The second free reads the
 * base and `fresh_slot` before it finds the heap still in the owner word, so it is late by the few
 * instructions from there to the OR. */
#include "heap/packed.h"

#include "base/test_delay.h"
#include "heap/misuse_report.h"
#include "heap/refill.h"
#include "heap/slab_lists.h"
#include "heap/thread_heap.h"

#include <string.h>

bool packed_turn_on(struct heap *heap)
{
    if (heap->smallest_slabs < PACKED_FROM_SLABS)
        return false;
    memset(heap->small_class, CLASS_COUNT, PACKED_BYTES + 1); /* sends them to the slow path */
    return heap->packs = true;
}

/* Moves `head` to the next word with a free block, or to a word that was never used.
 * Returns: false if there is none behind `head`. */
static bool packed_advance(struct span *slab)
{
    size_t words = (size_t)slab->fresh_slot - 1;
    size_t word = slab_hot(slab)->head;
    while (word < words && load_relaxed(packed_word(slab, word)) == 0)
        word++;
    if (word >= words) {
        if (words == slab->capacity)
            return false;
        word = words;
        store_relaxed(packed_word(slab, word), UINT64_MAX);
        store_release(&slab->fresh_slot, (uint64_t)words + 2);
    }
    slab_hot(slab)->head = (uint32_t)word;
    return true;
}

void *packed_take(struct heap *heap)
{
    void *block = packed_take_at_hand(heap);
    while (unlikely(block == NULL)) {
        struct span *slab = heap->current[PACKED_CLASS];
        if (slab == &empty_slab.header || !packed_advance(slab)) {
            (void)heap_gather(heap, PACKED_CLASS);
            if (!heap_refill(heap, PACKED_CLASS) && !heap_refill_drained(heap, PACKED_CLASS))
                return NULL;
        }
        block = packed_take_at_hand(heap);
    }
    return block;
}

/* Counts that the owner freed the first block of a full slot (`is_first`), or the last block of a
 * slot. */
static no_inline void packed_count_own(struct heap *heap, struct span *slab, size_t word,
                                       bool is_first)
{
    struct slab_hot_line *own = slab_hot(slab);
    bool counts = true;
    if (heap->current[PACKED_CLASS] == slab)
        own->head = (uint32_t)word; /* a block freed just now is still in the cache */
    else
        counts = slab_is_waiting(slab) == is_first;
    if (counts && --own->frees_to_attention == 0)
        heap_count_expired(heap, slab);
}

/* Frees a block of a packed slab whose owner changed since the caller read it. */
static seldom_called bool packed_free_moved(void *pointer, struct span *slab)
{
    struct heap *now = slab_heap(slab);
    if (now != NULL && slab_is_packed(slab))
        return packed_free(pointer, now, slab); /* another thread has reclaimed it */
    report_bad_pointer(pointer, "free");        /* another free gave the slab back */
    return false;
}

bool packed_free(void *pointer, struct heap *heap, struct span *slab)
{
    size_t offset = (size_t)((char *)pointer - slab_start(slab));
    size_t index = offset / PACKED_BYTES;
    size_t word = index / 64;
    uint64_t limit = load_acquire(&slab->fresh_slot); /* pairs with packed_advance() */
    bool is_own = heap == thread_heap;
    if (unlikely(!is_own && slab_heap(slab) != heap))
        return packed_free_moved(pointer, slab);
    if (unlikely(offset % PACKED_BYTES != 0 || word + 1 >= limit)) {
        report_bad_pointer(pointer, "free");
        return false;
    }
    test_delay();
    uint64_t old = fetch_or_if_threaded(packed_word(slab, word), packed_bit(index));
    if (unlikely((old & packed_bit(index)) != 0)) {
        report_bad_pointer(pointer, "free");
        return false;
    }
    if (likely(old != 0 && (old | packed_bit(index)) != UINT64_MAX))
        return false;
    if (is_own)
        packed_count_own(heap, slab, word, old == 0);
    else if (unlikely(heap->generation != heap_generation))
        slab_retire_inherited(heap, slab);
    else
        return true;
    return false;
}
