/* The calls for work that is due by age: see decay.h. */
#include "heap/decay.h"

static bool (*heaps_visit)(bool *left); /* const after the start */
static bool (*ended_trim)(void);        /* const after the start; NULL before */
static struct {
    bool is_due; /* atomic, relaxed: a visit to all heaps is not complete */
} cache_aligned visit;

bool heaps_visit_due(void)
{
    if (likely(!load_relaxed(&visit.is_due)))
        return false;
    bool left = false;
    store_relaxed(&visit.is_due, false);
    bool did = heaps_visit(&left);
    if (left)
        store_relaxed(&visit.is_due, true);
    return did && left;
}

/* Also called where a decay interval is ended by an allocator without a heap. */
static void decay_end_interval(void)
{
    store_relaxed(&visit.is_due, true);
    (void)heaps_visit_due();
}

void heaps_on_decay(bool (*visit_heaps)(bool *left), bool (*trim_ended)(void))
{
    heaps_visit = visit_heaps;
    ended_trim = trim_ended;
    pages_on_interval(decay_end_interval);
}

void heaps_decay(void)
{
    pages_tick();
    (void)heaps_visit_due();
}

bool heaps_empty_run_caches(void)
{
    bool any = ended_trim && ended_trim();
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        any = (heap->private_heap == NULL && run_cache_empty(&heap->runs)) || any;
    return any;
}
