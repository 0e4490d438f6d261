/* The next slab, trim, verifier: see heap_slabs.h. */
#include "heap/heap_slabs.h"

#include "base/bits.h"
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
#include "os/os.h"

/* A class's mailbox is emptied when the class has nothing left, and at one of so many refills: the
 * longer it waits, the more frees a slab's visit collects. All are before pages are taken. */
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

/* A block is looked at before it is written, where it has to be zero when it is handed out: of a
 * fresh page that makes two faults. So a class that has filled a slab gets the pages of the next at
 * once, but not in a small heap, nor for blocks that are longer than what is used of them, maybe.
 */
static void fault_in(const struct heap *heap, struct span *slab)
{
    enum { FROM_BYTES = 2 << 20, BLOCK_MOST = 8 << 10 };
    if (heap->slab_pages < FROM_BYTES >> PAGE_SHIFT || slab->size_bytes > BLOCK_MOST ||
        slab_is_void(slab))
        return;
    uintptr_t start = align_down((uintptr_t)slab_start(slab), os_page_size());
    size_t bytes = (size_t)slab->capacity * slab->size_bytes;
    (void)os_populate((void *)start, align_down(bytes, os_page_size()));
}

/* One kept, else a new one. Who allocates from a program's heap adds one without its lock. */
static struct span *take_empty(struct heap *heap, unsigned class, bool fills)
{
    heap_drain(heap);
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
    (void)heaps_trim_ended();
    slab = slab_make(heap, class);
    if (unlikely(slab == NULL) && heaps_empty_run_caches())
        slab = slab_make(heap, class);
    if (config_zero_freed && fills && slab)
        fault_in(heap, slab);
    return slab;
}

/* The usual refill: the next slab of the list becomes current, nothing else is due. What
 * heap_refill does, in a third of the instructions. NULL where it is not so simple; then nothing
 * has changed. */
static struct span *take_listed(struct heap *heap, unsigned class, bool *refused)
{
    struct bin *bin = &heap->bins[class];
    struct span *slab = bin->first;
    struct span *full = heap->current[class];
    if (slab == NULL || full == &empty_slab.header || (heap->turns + 1) % DRAIN_TURNS == 0 ||
        !slab_try_current(slab, refused))
        return NULL;
    heap->turns++;
    bin_remove_first(bin);
    slab_wait(full);
    slab_put_aside(full); /* and so as many are aside as before */
    heap_make_current(heap, class, slab);
    return slab;
}

/* The first slab of the list that nobody purges just now, and whose pages the hard limit admits. */
static struct span *find_listed(const struct heap *heap, unsigned class, bool *refused)
{
    struct span *slab = heap->bins[class].first;
    while (slab && heap->program == NULL && !slab_try_current(slab, refused))
        slab = slab->next;
    return slab;
}

struct span *heap_refill(struct heap *heap, unsigned class)
{
    bool refused = false;
    if (likely(!heap_is_watched() && heap->program == NULL)) {
        struct span *slab = take_listed(heap, class, &refused);
        if (likely(slab != NULL))
            return slab;
    }
    struct bin *bin = &heap->bins[class];
    unsigned freed = 0; /* of a small one, since it was counted */
    if (heap_is_watched() && class_is_small(class) && heap->current[class] != &empty_slab.header)
        freed = heap_profile_granted(heap, class) - slab_own(heap->current[class])->until;
    bool fills = heap->current[class] != &empty_slab.header;
    heap_leave_current(heap, class);
    if (unlikely(heap->look_after_fork) && bin->first == NULL)
        heap_look_after_fork(heap);
    bool due = bin->first == NULL || ++heap->turns % DRAIN_TURNS == 0;
    struct span *slab = due ? NULL : find_listed(heap, class, &refused);
    if (slab == NULL) {
        heap_drain_mailbox(heap, remote_mailbox(class));
        slab = find_listed(heap, class, &refused);
    }
    if (slab) {
        bin_remove(bin, slab);
        heap->slabs_aside--;
    } else {
        slab = take_empty(heap, class, fills);
        if (slab == NULL)
            return NULL;
        slab_set_use(slab, SLAB_CURRENT);
        heap->slab_pages += size_classes[class].pages;
        heap->smallest_slabs += class == 0;
    }
    unsigned free_slots = slab->capacity - (unsigned)slab_own(slab)->until;
    heap_make_current(heap, class, slab);
    if (heap_is_watched())
        refilled(heap, class, freed, free_slots);
    return slab;
}

/* A small slab that is not worth making anew: of what it has handed out it holds a page at most. */
static bool is_cheap_to_keep(const struct span *slab)
{
    size_t handed_out = (size_t)load_relaxed(&slab->limit) - 1;
    return class_is_small(slab_class(slab)) && handed_out * slab->size_bytes <= PAGE_BYTES;
}

/* Slabs that were in the mailbox when their last block was freed. */
static void retire_empty(struct heap *heap, const struct bin *bin)
{
    for (struct span *slab = bin->first, *next; slab; slab = next) {
        next = slab->next;
        if (slab_own(slab)->until == 0)
            heap_retire_listed(heap, slab);
    }
}

static void trim(struct heap *heap, bool keeps_cheap)
{
    heap->left_ready = keeps_cheap;
    if (heap->look_after_fork)
        heap_look_after_fork(heap);
    heap_drain(heap);
    quarantine_flush(heap);
    packed_trim(heap);
    packed_sweep(heap, true);
    for (unsigned class = 0; class < CLASS_COUNT; class ++) {
        struct span *current = heap->current[class];
        if (current != &empty_slab.header && !(keeps_cheap && is_cheap_to_keep(current)))
            heap_put_aside(heap, class);
        if (heap->slabs_aside != 0)
            retire_empty(heap, &heap->bins[class]);
    }
    run_cache_empty(&heap->runs);
    heap_verify(heap);
}

void heap_trim(struct heap *heap) { trim(heap, false); }

void heap_trim_for_next(struct heap *heap) { trim(heap, true); }

void heap_verify(struct heap *heap)
{
    if (!config_debug)
        return;
    slab_lists_verify(heap);
    class_table_verify(heap);
    packed_verify(heap);
}
