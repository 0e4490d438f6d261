/* The life of heaps, the visit to all heaps, and the start of the layer: see lifecycle.h.
 *
 * To make slabs and to give them back is most of what a short thread costs. So the heap of a thread
 * that ends is left ready for the thread that adopts it: its small current slabs that hold little
 * stay current. The next visit parks it, and so do a trim and a lack of memory. Threads that run
 * one after another get one heap in turn (heap_hold_orphan).
 *
 * A thread that frees a block of an ended thread's heap reclaims the block's slab (heap_reclaim),
 * unless it has a listed slab of that class. Otherwise the slabs of many short threads would gather
 * in the heap of the thread that frees their last blocks, and the next threads would make new ones.
 * Full hardened builds take every slab, because their quarantine keeps slabs listed.
 *
 * The visit. Once a decay interval a thread visits all heaps, in parts: the runs and the borrowed
 * blocks that a heap keeps without use are given back, and the heap of an ended thread is drained.
 * Then it walks over the slabs (sweep.h). */
#include "heap/lifecycle.h"

#include "heap/harden.h"
#include "heap/hooks.h"
#include "heap/quarantine.h"
#include "heap/refill.h"
#include "heap/sweep.h"
#include "os/memory.h"
#include "os/process.h"
#include "unwind/unwind.h"

#include <errno.h>

/* Whether this thread has no heap of its own for the rest of its life, because it has ended or its
 * end would not be noticed. Each of its calls holds a heap for a moment. */
static thread_local_word bool goes_without;
static void (*private_heaps_fork)(void); /* atomic: called in the child of a fork */

void heaps_on_fork(void (*in_child)(void)) { store_relaxed(&private_heaps_fork, in_child); }

/* Makes a heap, which the caller holds. Returns: NULL when out of memory. */
static struct heap *heap_make(void)
{
    struct heap *heap = meta_take(META_HOT, sizeof *heap);
    if (heap == NULL)
        return NULL;
    heap_set_up_classes(heap);
    heap->generation = heap_generation;
    heap->frees = heap->calls_to_look = 1;
    if (config_hardened)
        harden_seed(heap);
    store_relaxed(&heap->state, (uint32_t)HEAP_BUSY);
    heap_enlist(heap);
    return heap;
}

bool heap_reclaim(struct heap *ended, struct span *slab)
{
    struct heap *own = thread_heap;
    unsigned tag = load_relaxed(&slab->tag); /* no slab's if another thread retired it */
    if (own == &no_heap || tag < SPAN_SLAB)
        return false;
    unsigned class = tag - SPAN_SLAB;
    bool takes_few = config_quarantine || own->bins[class].first == NULL;
    if ((!takes_few && load_relaxed(&slab->fresh_slot) <= size_classes[class].capacity) ||
        !heap_try_hold(ended))
        return false;
    quarantine_flush(ended); /* may retire the slab */
    /* Where slots have a random order, all of them count as handed out from the start. */
    if (slab_heap(slab) == ended && (takes_few || !config_random_slots || slab_is_waiting(slab)))
        return heap_take_over(ended, own, slab);
    heap_return(ended);
    return false;
}

struct heap *heap_hold_any(void)
{
    struct heap *heap = heap_hold_orphan();
    return heap ? heap : heap_make();
}

/* Makes the calling thread's heap an orphan, left ready if free pages may be kept. */
static void heap_leave(struct heap *heap)
{
    store_relaxed(&heap->state, (uint32_t)HEAP_BUSY);
    heap_park(heap, !config_hardened && pages_most_kept() >= SMALL_CLASSES);
    pages_leave_shard(heap->shard);
    run_caches_add(-1);
    heap_return(heap);
}

/* Called at a thread's end, with the heap that it had. The thread may still allocate afterwards. */
static void heap_thread_end(void *value)
{
    struct heap *heap = value;
    if (thread_heap != heap)
        return;
    goes_without = true;
    thread_heap = (struct heap *)(uintptr_t)&no_heap;
    unwind_forget_thread();
    heap_leave(heap);
}

at_process_start void heap_watch_threads(void)
{
    static bool registered; /* atomic */
    if (!exchange_acq_rel(&registered, true))
        (void)os_thread_end_register(heap_thread_end);
}

/* Whether the end of the calling thread will give its heap back. Also true for the first thread,
 * whose end is usually that of the process. */
static bool heap_end_is_noticed(struct heap *heap)
{
    int error = os_thread_end_arm(heap); /* may allocate */
    if (likely(error == 0) || os_thread_id() == os_process_id())
        return true;
    goes_without = error != -ENOMEM; /* when out of memory, its next call tries again */
    return false;
}

struct heap *heap_enter(void)
{
    if (goes_without)
        return NULL;
    struct heap *heap = heap_hold_any();
    if (heap == NULL)
        return NULL;
    run_caches_add(1);
    heap->left_ready = false;
    store_relaxed(&heap->state, (uint32_t)HEAP_ACTIVE);
    heap->traced = (struct traced_thread){0};
    unwind_forget_thread();
    thread_heap = heap;
    heap->shard = pages_enter_shard(heap->shard);
    if (likely(heap_end_is_noticed(heap)))
        return heap;
    thread_heap = (struct heap *)(uintptr_t)&no_heap;
    heap_leave(heap);
    return NULL;
}

void heaps_after_fork(void)
{
    heap_generation++;
    struct heap *own = thread_heap == &no_heap ? NULL : thread_heap;
    heaps_forget_orphans();
    store_relaxed(&all_heaps, own);
    run_caches_reset(own ? 1 : 0);
    if (own) {
        own->generation = heap_generation;
        own->shard = pages_enter_shard(own->shard);
        if (config_hardened)
            harden_seed(own);
        own->next = NULL;
        store_relaxed(&own->is_stacked, 0u);
        if (!pages_forked_alone())
            run_cache_recount(&own->runs);
        heap_lose_mail(own);
    }
    void (*after)(void) = load_relaxed(&private_heaps_fork);
    if (after)
        after();
}

struct traced_thread *heap_traced_thread(void)
{
    struct heap *heap = heap_at_hand();
    return heap ? &heap->traced : NULL;
}

/* Visits a heap. `again` says that a part of the visit was done.
 * Returns: false if a part is left. */
static bool heap_tend(struct heap *heap, bool again)
{
    if (heap->private_heap != NULL)
        return true;
    if (!again) {
        uint32_t drains = load_relaxed(&heap->drains);
        heap->drains_never = heap->drained == drains;
        heap->drained = drains;
        run_cache_age(&heap->runs);
        borrow_age(heap);
    }
    if (heap == thread_heap || !heap_try_hold(heap))
        return true;
    if (heap->left_ready)
        heap_park(heap, false);
    bool all = heap_drain_some(heap, DRAIN_SLABS);
    heap_return(heap);
    return all;
}

static struct {
    bool is_due; /* atomic: a visit to all heaps is not complete */
} cache_aligned next_visit;

static struct {
    uint32_t visitor;    /* atomic: 1 + number of the process of the thread that makes a part of
                            the visit; 0 for none. That thread writes the other fields */
    uint32_t generation; /* visitor: number of the process that began the visit */
    struct heap *heap;   /* visitor: heap to visit next; NULL after the last one */
    bool again;          /* visitor: a part of the visit to that heap was done */
    bool walks;          /* visitor: the walk over the slabs is not complete */
} cache_aligned visit;

/* Does a part of the visit. Returns: whether a part is left. */
static bool heaps_visit_part(void)
{
    if (visit.generation != heap_generation || (visit.heap == NULL && !visit.walks)) {
        visit.generation = heap_generation;
        visit.heap = load_acquire(&all_heaps);
        visit.again = false;
        visit.walks = true;
        sweep_begin();
    }
    long work = SWEEP_WORK;
    for (bool goes_on = true; visit.heap && goes_on && work > 0; work -= SWEEP_PART) {
        goes_on = heap_tend(visit.heap, visit.again);
        visit.again = !goes_on;
        if (goes_on)
            visit.heap = visit.heap->next;
    }
    if (visit.heap == NULL)
        visit.walks = sweep_walk(work);
    return visit.heap != NULL || visit.walks;
}

bool heaps_visit(bool interval_ends)
{
    if (interval_ends)
        store_relaxed(&next_visit.is_due, true);
    if (likely(!load_relaxed(&next_visit.is_due)))
        return false;
    uint32_t seen = load_relaxed(&visit.visitor);
    uint32_t own = heap_generation + 1;
    if (seen == own || !compare_swap_acq_rel(&visit.visitor, &seen, own))
        return false;
    bool left = false;
    if (load_relaxed(&next_visit.is_due)) {
        store_relaxed(&next_visit.is_due, false); /* first: the interval may end meanwhile */
        left = heaps_visit_part();
    }
    if (left)
        store_relaxed(&next_visit.is_due, true);
    store_release(&visit.visitor, (uint32_t)0); /* pairs with the compare-and-swap above */
    return left;
}

seldom_called bool heaps_empty_run_caches(void)
{
    bool any = false;
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next) {
        if (heap->private_heap != NULL)
            continue;
        if (heap != thread_heap && heap_try_hold(heap)) {
            size_t pages = heap->slab_pages;
            heap_trim(heap);
            any = any || heap->slab_pages < pages;
            heap_return(heap);
        }
        any = run_cache_empty(&heap->runs) || any;
    }
    return any;
}

enum { NOT_STARTED };
#define STARTED UINT32_MAX
/* atomic: NOT_STARTED; 1 + fork_lock_process of the thread that starts the layer; or STARTED */
static uint32_t started;

/* Makes the tables writable that a start has sealed. */
static seldom_called void heap_unseal(void)
{
    (void)os_protect(size_classes, sizeof size_classes, OS_WRITE);
    (void)os_protect(secrets_of_process, sizeof secrets_of_process, OS_WRITE);
}

/* Begins the start, or waits until another thread has ended it. In the child of a fork the start of
 * a thread of the parent has no end, so it begins anew; each of its steps may be done twice.
 * Returns: false if the layer is started. */
static bool heap_begin_start(void)
{
    for (;; pause_processor()) {
        uint32_t seen = load_acquire(&started); /* pairs with the release in heap_start */
        if (seen == STARTED)
            return false;
        uint32_t own = fork_lock_process() + 1;
        if (seen != own && compare_swap_acq_rel(&started, &seen, own)) {
            if (config_sealed && seen != NOT_STARTED)
                heap_unseal();
            return true;
        }
    }
}

void heap_start(void)
{
    if (likely(!heap_begin_start()))
        return;
    os_init();
    size_classes_init();
    if (config_sealed) /* if the system refuses, it stays writable */
        (void)os_protect(size_classes, sizeof size_classes, OS_READ);
    if (config_hardened)
        canary_start();
    pages_init(size_classes);
    pages_on_fork(heaps_after_fork);
    pages_on_refusal(heaps_empty_run_caches);
    heap_watch_threads();
    pages_on_tick(heaps_visit);
    store_release(&started, STARTED);
    pages_start();
}
