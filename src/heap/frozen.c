/* The words of frozen slabs: see frozen.h. */
#include "heap/frozen.h"

#include "heap/packed_words.h"

bool large_forget_resizer(struct span *span)
{
    uintptr_t resized = load_relaxed(&span->post);
    uint8_t tag = SPAN_RESIZED;
    if (resized == large_resized((uint8_t)resized))
        return false;
    (void)compare_swap_acq_rel(&span->tag, &tag, (uint8_t)resized);
    return true;
}

/* By compare-and-swap, for the same memory is of other use once all bits were set and the slab
 * went: pointers, and a packed slab's free blocks. What was seen before the owner was looked at is
 * a word of the frozen slab, with this bit clear; so a swap that comes after another free of the
 * last block finds a word that was set whole since, unless the next user of the header had brought
 * it back to the same value. To look after the swap would not tell: who sets the last bit but one
 * may find the slab gone as well, and rightly so. */
bool slab_set_frozen(const struct heap *heap, const struct span *slab, uint64_t *word,
                     uint64_t bit)
{
    uint64_t seen = load_acquire(word); /* pairs with the swap */
    while ((seen & bit) == 0 && slab_heap(slab) == heap)
        if (compare_swap_seq_cst(word, &seen, seen | bit))
            return true;
    return false;
}

/* The words of a frozen slab begin anew in each process: what they held was another process's. */
void slab_begin_frozen(struct span *slab)
{
    struct remote *remote = slab_remote(slab);
    uint64_t *words = slab_is_packed(slab) ? packed_word(slab, 0) : remote->words;
    size_t count = slab_is_packed(slab) ? (size_t)PACKED_WORDS : (size_t)REMOTE_WORDS;
    uint32_t busy = heap_generation | (uint32_t)1 << 31; /* a parent's says nothing here */
    uint32_t seen = load_acquire(&remote->generation);   /* pairs with the release below */
    while (seen != heap_generation) {
        if (seen != busy && compare_swap_acq_rel(&remote->generation, &seen, busy)) {
            for (size_t i = 0; i < count; i++)
                store_relaxed(&words[i], (uint64_t)0);
            store_release(&remote->generation, heap_generation);
        }
        seen = load_acquire(&remote->generation);
    }
}
