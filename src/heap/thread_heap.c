/* What a thread has, and the list of all: see thread_heap.h. */
#include "heap/thread_heap.h"

struct slab_parts empty_slab = {
    .header = {.limit = 1, .cold_64 = 1},
    .own = {.until = UINT8_MAX, .head = LINK_END}}; /* const: never written */

const struct heap no_heap = {.current = {[0 ... CLASS_COUNT] = &empty_slab.header}};

thread_local_word struct heap *thread_heap = (struct heap *)(uintptr_t)&no_heap;

struct heap *all_heaps;

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
    if (bin->first == slab) {
        bin_remove_first(bin);
        return;
    }
    struct span *prev = *slab_prev(slab);
    prev->next = slab->next;
    if (slab->next)
        *slab_prev(slab->next) = prev;
    else
        bin->last = prev;
}

void heap_enlist(struct heap *heap)
{
    heap->next = load_relaxed(&all_heaps);
    while (
        !compare_swap_acq_rel(&all_heaps, &heap->next, heap)) /* release: pairs with heaps_each */
        pause_processor();
}

void heaps_each(heap_visit *visit, void *context)
{
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        visit(heap, context);
}
