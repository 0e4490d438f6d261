/* See tick.h. */
#include "heap/tick.h"

#include "heap/slab_sweep.h"

static void (*others_sweep)(void); /* const after the start */

void heaps_on_tick(void (*sweep)(void)) { others_sweep = sweep; }

static void age_all(void)
{
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        if (heap->program == NULL) /* has no run cache in use */
            run_cache_age(&heap->runs);
    if (others_sweep)
        others_sweep();
}

void heaps_tick(void)
{
    pages_tick(age_all);
    struct heap *own = thread_heap;
    if (own != &no_heap && load_relaxed(&own->swept_ms) != pages_interval_ms())
        sweep_heap(own);
}

bool heaps_empty_run_caches(void)
{
    bool any = false;
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        any = (heap->program == NULL && run_cache_empty(&heap->runs)) || any;
    return any;
}
