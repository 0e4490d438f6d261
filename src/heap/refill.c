/* The next slab, trimming and parking a heap: see refill.h. */
#include "heap/refill.h"

#include "heap/hooks.h"
#include "heap/profiling.h"
#include "heap/quarantine.h"
#include "heap/remote.h"
#include "heap/slab_lists.h"
#include "os/memory.h"

/* A class that has a slab at hand drains its mailbox at one of DRAIN_TURNS refills: the longer it
 * waits, the more frees one visit of a slab collects. */
enum { DRAIN_TURNS = 16 };

/* Tells the guards and the profiler that another slab, with `free_slots` free slots, has become
 * current. `freed` slots of the previous slab were freed since it was counted last. */
static no_inline void refill_refilled(struct heap *heap, unsigned class, unsigned freed,
                                      unsigned free_slots)
{
    if (heap_is_guarding() && heap->private_heap == NULL)
        heap_passed(heap, class, freed + free_slots);
    if (class_is_small(class))
        heap_profile_enter(heap, class, free_slots);
}

/* Faults in the pages of a new slab. In full hardened builds each block is read before it is
 * written, to check that it is zero; on a fresh page that makes two faults. Not in a small heap,
 * and not for long blocks, which may be used in part only. */
static void refill_fault_in(const struct heap *heap, struct span *slab)
{
    enum { FROM_BYTES = 2 << 20, BLOCK_MAX = 8 << 10 };
    if (heap->slab_pages < FROM_BYTES >> PAGE_SHIFT || slab->size_bytes > BLOCK_MAX ||
        slab_is_zero_size(slab))
        return;
    uintptr_t start = align_down((uintptr_t)slab_start(slab), os_page_size());
    size_t bytes = (size_t)slab->capacity * slab->size_bytes;
    (void)os_populate((void *)start, align_down(bytes, os_page_size()));
}

/* Takes the empty slab that the run cache keeps for the class. Returns: NULL if there is none. */
inline_always struct span *refill_take_kept(struct heap *heap, unsigned class)
{
    struct span *slab = run_cache_take_slab(&heap->runs, class);
    if (slab == NULL)
        return NULL;
    remote_open(heap, slab);
    slab_set_owner(slab, heap);
    slab_set_use(slab, SLAB_CURRENT);
    heap_add_to_sums(heap, class, 1);
    return slab;
}

/* Takes an empty slab of the run cache, or makes one. `fills` says that the class has filled a
 * slab, so that all of the next one is likely to be needed. Returns NULL for a private heap: its
 * caller adds a slab after it has released the heap's lock. No mailbox is drained between a take
 * and the moment when the slab is current: a thread that freed a block of an earlier life of the
 * slab may post it late, and a drain would retire it. */
static struct span *refill_take_empty(struct heap *heap, unsigned class, bool fills)
{
    if (unlikely(heap->private_heap != NULL))
        return NULL;
    struct span *slab = refill_take_kept(heap, class);
    if (slab)
        return slab;
    pages_tick();
    slab = slab_make(heap, class);
    if (slab == NULL)
        return NULL;
    if (config_zero_freed && fills)
        refill_fault_in(heap, slab);
    slab_set_use(slab, SLAB_CURRENT);
    heap_add_to_sums(heap, class, 1);
    return slab;
}

/* Takes the first slab of the list that no thread is purging and whose pages the hard limit admits,
 * and makes its use word CURRENT. A first slab with purged pages becomes the last one before: such
 * slabs are used last. Private heaps take the first slab.
 * Returns: NULL if there is no such slab. */
static struct span *refill_take_listed(struct heap *heap, unsigned class)
{
    struct bin *bin = &heap->bins[class];
    struct span *slab = bin->first;
    bool refused = false;
    if (slab && slab->next && slab_count_given(slab) != 0) {
        bin_remove(bin, slab);
        bin_append(bin, slab);
    }
    for (slab = bin->first; slab; slab = slab->next)
        if (heap->private_heap != NULL || slab_try_current(slab, &refused)) {
            bin_remove(bin, slab);
            break;
        }
    return slab;
}

/* Continues the search for what a fork lost. At its begin no block of an own slab may be in the
 * supply of borrowed blocks. */
static seldom_called void refill_look_after_fork(struct heap *heap, size_t spans)
{
    if (heap->looked_at == 0)
        borrow_return(heap);
    heap_look_after_fork(heap, spans);
}

/* Whether the heap has a slab with free slots of the class that is not current. */
inline_always bool refill_has_slab(const struct heap *heap, unsigned class)
{
    return heap->bins[class].first != NULL || run_cache_has_slab(&heap->runs, class);
}

bool heap_gather(struct heap *heap, unsigned class)
{
    bool at_hand = refill_has_slab(heap, class);
    if (at_hand && ++heap->turns % DRAIN_TURNS != 0)
        return false;
    if (unlikely(heap->look_after_fork))
        refill_look_after_fork(heap, DRAIN_SLABS);
    (void)mailbox_drain_pair(heap, remote_mailbox(class), DRAIN_SLABS);
    if (!at_hand && heap->bins[class].first == NULL)
        (void)heap_drain_some(heap, DRAIN_SLABS);
    return true;
}

struct span *heap_refill(struct heap *heap, unsigned class)
{
    const struct span *before = heap->current[class];
    bool fills = before != &empty_slab.header;
    unsigned freed = 0; /* slots of a small slab that were freed since it was counted */
    if (heap_is_hooked() && class_is_small(class) && fills)
        freed = heap_profile_granted(heap, class) - slab_hot(before)->frees_to_attention;
    heap_leave_current(heap, class);
    struct span *slab = refill_take_listed(heap, class);
    if (slab == NULL && (slab = refill_take_empty(heap, class, fills)) == NULL)
        return NULL;
    unsigned free_slots = slab->capacity - (unsigned)slab_hot(slab)->frees_to_attention;
    heap_make_current(heap, class, slab);
    if (heap_is_hooked())
        refill_refilled(heap, class, freed, free_slots);
    return slab;
}

struct span *heap_refill_drained(struct heap *heap, unsigned class)
{
    uint32_t drains = heap->drains;
    (void)heap_drain_some(heap, DRAIN_SLABS);
    return heap->drains != drains ? heap_refill(heap, class) : NULL;
}

/* Whether the class is a medium one whose slab was put aside. While it was current and other blocks
 * stayed in use, no count showed the calls that it served. So the next one looks at the clock. */
inline_always bool refill_is_aside(const struct heap *heap, unsigned class)
{
    return heap->bins[class].first != NULL && class_is_medium(class) &&
           heap->current[class] == &empty_slab.header;
}

/* Takes a block of the current slab. If the heap's thread comes to slow paths so rarely that each
 * of them looks at the clock, a slab of a medium class does not stay current. */
inline_always void *refill_take_current(struct heap *heap, unsigned class)
{
    void *block = heap_take_current(heap, class);
    if (unlikely(heap->frees == 1) && class_is_medium(class))
        heap_put_aside(heap, class);
    return block;
}

/* The usual refill of a medium class that has no slab: takes the empty one of the run cache.
 * Returns: NULL in all other cases. */
static void *refill_from_cache(struct heap *heap, unsigned class)
{
    bool usual = class_is_medium(class) && heap->current[class] == &empty_slab.header &&
                 heap->bins[class].first == NULL && !heap_is_hooked();
    struct span *slab = usual ? refill_take_kept(heap, class) : NULL;
    if (slab == NULL)
        return NULL;
    heap_make_current(heap, class, slab);
    return refill_take_current(heap, class);
}

void *heap_take_slow(struct heap *heap, unsigned class)
{
    if (refill_is_aside(heap, class))
        heap->calls_to_look = 1;
    heap_note_call(heap);
    void *block = refill_from_cache(heap, class);
    bool borrows = class < SIZED_CLASSES && heap->private_heap == NULL;
    if (block == NULL && borrows)
        block = borrow_take(heap, class);
    if (block)
        return block;
    if (heap_gather(heap, class))
        block = heap_take_current(heap, class);
    if (block == NULL && borrows && !refill_has_slab(heap, class) && borrow_is_due(heap, class) &&
        borrow_fill(heap, class))
        block = borrow_take(heap, class); /* unless a trim has taken them back */
    if (block)
        return block;
    if (likely(heap_refill(heap, class) != NULL) || heap_refill_drained(heap, class) != NULL)
        return refill_take_current(heap, class);
    /* Out of memory, or at the hard limit. To borrow may move a slab to this heap. */
    if (borrows && borrow_fill(heap, class))
        block = borrow_take(heap, class);
    if (block == NULL && heap->bins[class].first != NULL && heap_refill(heap, class) != NULL)
        block = refill_take_current(heap, class);
    return block;
}

/* Whether making the small slab again would cost more than it holds: the slots that it has handed
 * out are one page at most. */
static bool refill_is_cheap_to_keep(const struct span *slab)
{
    size_t handed_out = (size_t)load_relaxed(&slab->fresh_slot) - 1;
    return class_is_small(slab_class(slab)) && handed_out * slab->size_bytes <= PAGE_BYTES;
}

/* LISTED slabs stay as they are: an empty one in a mailbox is retired when it is collected. */
void heap_park(struct heap *heap, bool keeps_cheap)
{
    (void)heap_drain_some(heap, DRAIN_SLABS);
    heap->left_ready = keeps_cheap;
    borrow_return(heap);
    quarantine_flush(heap);
    for (unsigned class = 0; class < CLASS_COUNT; class ++)
        if (!keeps_cheap || !refill_is_cheap_to_keep(heap->current[class]))
            heap_put_aside(heap, class);
    run_cache_empty(&heap->runs);
    heap_verify(heap);
}

seldom_called void heap_trim(struct heap *heap)
{
    if (heap->look_after_fork)
        refill_look_after_fork(heap, SIZE_MAX);
    heap_drain(heap);
    heap_park(heap, false);
}

void heap_verify(struct heap *heap)
{
    if (!config_debug)
        return;
    slab_lists_verify(heap);
    hooks_verify(heap);
}
