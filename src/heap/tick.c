/* See tick.h. */
#include "heap/tick.h"

#include "heap/slab_sweep.h"

static void (*others_sweep)(void); /* const after the start */
static bool (*ended_trim)(void);   /* likewise; NULL before */

/* Whoever notices it, also where pages are taken for another allocator: it ends but once. */
static void end_interval(void)
{
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        if (heap->program == NULL) /* has no run cache in use */
            run_cache_age(&heap->runs);
    others_sweep();
}

void heaps_on_tick(void (*sweep)(void), bool (*trim_ended)(void))
{
    others_sweep = sweep;
    ended_trim = trim_ended;
    pages_on_interval(end_interval);
}

void heaps_tick(void)
{
    pages_tick();
    struct heap *own = thread_heap;
    if (own != &no_heap && load_relaxed(&own->swept_ms) != pages_interval_ms())
        sweep_heap(own);
}

bool heaps_trim_ended(void) { return ended_trim && ended_trim(); }

bool heaps_empty_run_caches(void)
{
    bool any = heaps_trim_ended();
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        any = (heap->program == NULL && run_cache_empty(&heap->runs)) || any;
    return any;
}
