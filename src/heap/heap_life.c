/* The life of heaps: made, adopted and borrowed, left by threads that end, frozen by a fork. See
 * thread_heap.h. */
#include "base/test_delay.h"
#include "heap/harden.h"
#include "heap/heap.h"
#include "heap/heap_sweep.h"
#include "heap/packed.h"
#include "heap/program_heap.h"
#include "heap/remote.h"
#include "os/os.h"

static thread_local_word bool thread_ended; /* this thread's heap was given back for good */
struct heap *all_heaps;
static size_t orphan_count; /* atomic: hint, orphans not borrowed */
/* Written in the child of a fork, before it has threads. On a line that nobody writes else: every
 * remote free reads it. */
uint32_t heap_generation __attribute__((aligned(64)));

void heap_enlist(struct heap *heap)
{
    heap->next = load_relaxed(&all_heaps);
    while (
        !compare_swap_acq_rel(&all_heaps, &heap->next, heap)) /* release: pairs with heaps_each */
        pause_processor();
}

static struct heap *heap_make(void)
{
    struct heap *heap = meta_take(META_HOT, sizeof *heap);
    if (heap == NULL)
        return NULL;
    heap_set_up_classes(heap);
    heap->generation = heap_generation;
    if (config_hardened)
        harden_seed(heap);
    store_relaxed(&heap->state, (uint32_t)HEAP_BUSY);
    heap_enlist(heap);
    return heap;
}

/* Orphan to BUSY. Acquire: pairs with the release of whoever held it before. */
bool heap_try_hold(struct heap *heap)
{
    uint32_t expected = HEAP_ORPHAN;
    if (load_relaxed(&heap->state) != HEAP_ORPHAN ||
        !compare_swap_seq_cst(&heap->state, &expected, (uint32_t)HEAP_BUSY))
        return false;
    fetch_sub_relaxed(&orphan_count, (size_t)1);
    return true;
}

void heap_return(struct heap *heap)
{
    do {
        heap_drain(heap);
        test_delay();
        fetch_add_relaxed(&orphan_count, (size_t)1);
        store_seq_cst(&heap->state, (uint32_t)HEAP_ORPHAN);
        test_delay();
        /* A poster between our drain and the store saw a heap that was held and went away; we look
         * again. */
    } while (load_seq_cst(&heap->mailbox) != NULL && heap_try_hold(heap));
}

void heap_tend_orphan(struct heap *heap)
{
    if (heap_try_hold(heap))
        heap_return(heap);
}

struct heap *heap_borrow(void)
{
    if (load_relaxed(&orphan_count) != 0)
        for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
            if (heap_try_hold(heap))
                return heap;
    heap_start();
    return heap_make();
}

static void thread_end(void *value)
{
    struct heap *heap = value;
    if (thread_heap != heap)
        return;
    thread_ended = true;
    thread_heap = (struct heap *)(uintptr_t)&no_heap;
    heap_trim(heap);
    heap_return(heap);
}

void heap_watch_threads(void) { (void)os_thread_end_register(thread_end); }

struct heap *heap_enter(void)
{
    if (thread_ended)
        return NULL;
    struct heap *heap = heap_borrow();
    if (heap == NULL)
        return NULL;
    store_relaxed(&heap->state, (uint32_t)HEAP_ACTIVE);
    heap->traced = (struct traced_thread){0};
    thread_heap = heap;
    /* May allocate, which now works. Refused, the thread's heap is never adopted: its blocks stay
     * valid. */
    (void)os_thread_end_arm(heap);
    return heap;
}

static void age_all(void)
{
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        if (heap->program == NULL) /* has no run cache in use */
            run_cache_age(&heap->runs);
    sweep_others();
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

void heaps_each(heap_visit *visit, void *context)
{
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        visit(heap, context);
}

/* Other threads of the parent may have stopped anywhere within a free, and the mailbox is lost. */
static bool look_visit(struct span *span, char *start, void *context)
{
    (void)start;
    struct heap *heap = context;
    if (!span_is_slab(span) || slab_heap(span) != heap)
        return true;
    if (slab_is_packed(span))
        packed_after_fork(heap, span);
    else if (slab_has_remote(span))
        remote_post(heap, span);
    return true;
}

void heap_look_after_fork(struct heap *heap)
{
    heap->look_after_fork = false;
    pages_each(look_visit, heap);
}

void heaps_after_fork(void)
{
    heap_generation++;
    struct heap *own = thread_heap == &no_heap ? NULL : thread_heap;
    store_relaxed(&orphan_count, (size_t)0);
    store_relaxed(&all_heaps, own);
    if (own) {
        own->generation = heap_generation;
        if (config_hardened)
            harden_seed(own);
        own->next = NULL;
        store_relaxed(&own->mailbox, (struct span *)NULL);
        own->look_after_fork = true;
    }
    programs_after_fork();
}
