/* The empty slab, the calling thread's heap, lists of slabs, the list of all heaps, and inherited
 * slabs: see thread_heap.h. */
#include "heap/thread_heap.h"

struct slab_header_parts empty_slab = {
    .header = {.fresh_slot = 1, .side_units = 1},
    .hot_line = {.frees_to_attention = UINT8_MAX, .head = LINK_END}}; /* const: never written */

const struct heap no_heap = {.current = {[0 ... CLASS_COUNT] = &empty_slab.header}};

thread_local_word struct heap *thread_heap = (struct heap *)(uintptr_t)&no_heap;

struct heap *all_heaps;
size_t orphan_count;

/* Changes the state from ORPHAN to BUSY. Acquire: pairs with the release of heap_return. */
bool heap_try_hold(struct heap *heap)
{
    uint32_t expected = HEAP_ORPHAN;
    if (load_relaxed(&heap->state) != HEAP_ORPHAN ||
        !compare_swap_acq_rel(&heap->state, &expected, (uint32_t)HEAP_BUSY))
        return false;
    fetch_sub_relaxed(&orphan_count, (size_t)1);
    return true;
}

/* Changes the state from BUSY to ORPHAN. Release: pairs with heap_try_hold. */
void heap_return(struct heap *heap)
{
    fetch_add_relaxed(&orphan_count, (size_t)1);
    store_release(&heap->state, (uint32_t)HEAP_ORPHAN);
}

void bin_append(struct bin *bin, struct span *slab)
{
    slab->next = NULL;
    *slab_prev(slab) = bin->last;
    if (bin->last)
        bin->last->next = slab;
    else
        bin->first = slab;
    bin->last = slab;
}

void bin_remove(struct bin *bin, struct span *slab)
{
    struct span *prev = bin->first == slab ? NULL : *slab_prev(slab);
    if (prev)
        prev->next = slab->next;
    else
        bin->first = slab->next;
    if (slab->next)
        *slab_prev(slab->next) = prev;
    else
        bin->last = prev;
}

void heap_unlist(struct heap *heap, struct span *slab)
{
    if (unlikely(heap->sweep.at == slab))
        heap->sweep.at = slab->next;
    bin_remove(&heap->bins[slab_class(slab)], slab);
}

void heap_enlist(struct heap *heap)
{
    heap->next = load_relaxed(&all_heaps);
    /* Release: pairs with the acquiring loads of all_heaps. */
    while (!compare_swap_acq_rel(&all_heaps, &heap->next, heap))
        pause_processor();
}

void heaps_each(heap_visit *visit, void *context)
{
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        visit(heap, context);
}

/* Inherited slabs. */

bool large_forget_resizer(struct span *span)
{
    uintptr_t resized = load_relaxed(&span->mail_state);
    uint8_t tag = SPAN_RESIZED;
    if (resized == large_resized((uint8_t)resized))
        return false;
    (void)compare_swap_acq_rel(&span->tag, &tag, (uint8_t)resized);
    return true;
}

/* The bit is set by compare-and-swap, because the memory of the word has another use once all bits
 * were set and the slab was given back: pointers, or the free blocks of a packed slab. The value
 * that was read before the owner was checked is a word of the inherited slab, with this bit clear.
 * If another free of the last block came first, all bits of the word were set since, and the swap
 * fails, unless the next user of the header had stored the earlier value again. A check of the
 * owner after the swap would not help: the thread that sets the last bit but one may find the slab
 * given back as well, and rightly so. */
bool slab_set_inherited(const struct heap *heap, const struct span *slab, uint64_t *word,
                        uint64_t bit)
{
    uint64_t seen = load_acquire(word); /* pairs with the swap */
    while ((seen & bit) == 0 && slab_heap(slab) == heap)
        if (compare_swap_seq_cst(word, &seen, seen | bit))
            return true;
    return false;
}

/* Clears the words once in each process: their content is of another process. Threads that come
 * meanwhile wait. A thread of the parent that was clearing them does not count, because `busy` has
 * the number of the process. */
void slab_begin_inherited(struct span *slab)
{
    struct slab_cold_area *area = slab_cold(slab);
    uint64_t *words = slab_is_packed(slab) ? packed_word(slab, 0) : area->words;
    size_t count = slab_is_packed(slab) ? (size_t)PACKED_SLOTS : (size_t)INHERITED_WORDS;
    uint32_t busy = heap_generation | (uint32_t)1 << 31;
    uint32_t seen = load_acquire(&area->generation); /* pairs with the release below */
    while (seen != heap_generation) {
        if (seen != busy && compare_swap_acq_rel(&area->generation, &seen, busy)) {
            for (size_t i = 0; i < count; i++)
                store_relaxed(&words[i], (uint64_t)0);
            store_release(&area->generation, heap_generation);
        }
        seen = load_acquire(&area->generation);
    }
}
