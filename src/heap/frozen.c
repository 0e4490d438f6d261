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
