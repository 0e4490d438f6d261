/* The next slab, trim, verifier: see heap_slabs.h. */
#include "heap/heap_slabs.h"

#include "heap/class_table.h"
#include "heap/mailbox.h"
#include "heap/packed.h"
#include "heap/packed_sweep.h"
#include "heap/profiling.h"
#include "heap/quarantine.h"
#include "heap/remote.h"
#include "heap/sampling.h"
#include "heap/slab_lists.h"
#include "heap/slab_make.h"
#include "heap/slab_sweep.h"
#include "heap/tick.h"

/* The mailbox is emptied when a class has nothing left, and after so many refills at the latest:
 * the longer it waits, the more frees a slab's visit collects. */
enum { DRAIN_TURNS = 16 };

/* Another slab has become current while somebody watches. */
static no_inline void refilled(struct heap *heap, unsigned class, unsigned freed,
                               unsigned free_slots)
{
    if (heap_is_sampling() && heap->program == NULL)
        heap_passed(heap, class, freed + free_slots);
    if (class_is_small(class))
        heap_profile_enter(heap, class, free_slots);
}

/* One kept, else a new one. Who allocates from a program's heap adds one without its lock. */
static struct span *take_empty(struct heap *heap, unsigned class)
{
    if (unlikely(heap->program != NULL))
        return NULL;
    heaps_tick();
    if (heap->slab_pages >= heap->sweep_pages)
        sweep_heap(heap);
    struct span *slab = run_cache_take_slab(&heap->runs, class);
    if (slab) {
        remote_open(heap, slab);
        store_release(&slab->owner, (uintptr_t)heap); /* pairs with load_acquire of who looks */
        return slab;
    }
    slab = slab_make(heap, class);
    if (unlikely(slab == NULL) && heaps_empty_run_caches())
        slab = slab_make(heap, class);
    return slab;
}

struct span *heap_refill(struct heap *heap, unsigned class)
{
    struct bin *bin = &heap->bins[class];
    unsigned freed = 0; /* of a small one, since it was counted */
    if (heap_is_watched() && class_is_small(class) && heap->current[class] != &empty_slab)
        freed = heap_profile_granted(heap, class) - heap->current[class]->until;
    heap_leave_current(heap, class);
    if (unlikely(heap->look_after_fork) && bin->first == NULL)
        heap_look_after_fork(heap);
    bool due = bin->first == NULL || ++heap->turns % DRAIN_TURNS == 0;
    if (due && load_relaxed(&heap->mailbox) != NULL)
        heap_drain(heap);
    struct span *slab = bin->first;
    while (slab && heap->program == NULL && !slab_try_use(slab, SLAB_CURRENT))
        slab = slab->next; /* being purged just now */
    if (slab) {
        bin_remove(bin, slab);
        heap->slabs_aside--;
    } else {
        slab = take_empty(heap, class);
        if (slab == NULL)
            return NULL;
        slab_set_use(slab, SLAB_CURRENT);
        heap->slab_pages += size_classes[class].pages;
        heap->smallest_slabs += class == 0;
    }
    unsigned free_slots = slab->capacity - (unsigned)slab->until;
    heap_make_current(heap, class, slab);
    if (heap_is_watched())
        refilled(heap, class, freed, free_slots);
    return slab;
}

void heap_trim(struct heap *heap)
{
    if (heap->look_after_fork)
        heap_look_after_fork(heap);
    heap_drain(heap);
    quarantine_flush(heap);
    packed_trim(heap);
    packed_sweep(heap, true);
    for (unsigned class = 0; class < CLASS_COUNT; class ++) {
        heap_put_aside(heap, class);
        for (struct span *slab = heap->bins[class].first, *next; slab; slab = next) {
            next = slab->next;
            if (slab->until == 0)
                heap_retire_listed(heap, slab);
        }
    }
    run_cache_empty(&heap->runs);
    heap_verify(heap);
}

void heap_verify(struct heap *heap)
{
    if (!config_debug)
        return;
    slab_lists_verify(heap);
    class_table_verify(heap);
    packed_verify(heap);
}
