/* The life of heaps: see heap_life.h.
 *
 * To make slabs and to give them back is most of what a short thread costs. So the heap of the
 * thread that ended last is left ready: what small slabs it has current stay where they are, for
 * the next thread. One heap only, and as long as nobody else needs memory: the next thread that
 * ends trims it whole, and so does whoever takes a slab from the pages, ticks or runs out of
 * memory. `ready_heap` is where to look for it, no more: whoever means to trim it holds it first,
 * as any orphan, and then `left_ready` is sure.
 *
 * A new thread takes the first orphan of the list, ready or not: threads that come one after
 * another still get the same heap, and several get the same heaps in the same order. Where they
 * take over blocks of threads that ended, that needs less memory than the one left last: a sixth
 * less with four such threads.
 *
 * Mail of a heap without a thread. No post is forgotten: into a mailbox of an orphan nothing was
 * pushed but by those who have yet to look at the state.
 */
/* clang-format off */
/*   poster:  (p) pushes to a mailbox, then looks at the state
 *                  ACTIVE, POSTED  leaves it at that
 *                  ORPHAN          -> BUSY, empties the mailbox that it pushed to, lets go
 *                  BUSY            -> POSTED
 *   holder:  lets go: (h) BUSY -> ORPHAN; while it finds POSTED: -> BUSY, and empties all mailboxes
 *   thread:  ends:    (e) ACTIVE -> BUSY, empties all mailboxes, lets go
 */
/* clang-format on */
/* All of it is sequentially consistent: the push, the stores and looks at the state, the look into
 * a mailbox. Who leaves a post at ACTIVE pushed before (e), and who leaves it at POSTED before the
 * holder's next BUSY; both come before a look into that mailbox. A new thread's first state is
 * ACTIVE again, and the mail is its own, whatever the state said before.
 */
#include "heap/heap_life.h"

#include "base/test_delay.h"
#include "heap/class_table.h"
#include "heap/harden.h"
#include "heap/heap_slabs.h"
#include "heap/mailbox.h"
#include "heap/remote.h"
#include "os/os.h"

static thread_local_word bool thread_ended; /* this thread's heap was given back for good */
static size_t orphan_count;                 /* atomic: hint, orphans not borrowed */
static struct heap *ready_heap;             /* atomic: hint, left by the thread that ended last */
static void (*programs_fork)(void);         /* atomic: what first-class heaps do in the child */

void heaps_on_fork(void (*in_child)(void)) { store_relaxed(&programs_fork, in_child); }

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

/* (h) */
static void let_go(struct heap *heap)
{
    for (;;) {
        uint32_t state = HEAP_BUSY;
        test_delay();
        if (compare_swap_seq_cst(&heap->state, &state, (uint32_t)HEAP_ORPHAN))
            return;
        store_seq_cst(&heap->state, (uint32_t)HEAP_BUSY);
        test_delay();
        heap_drain(heap);
    }
}

void heap_return(struct heap *heap)
{
    fetch_add_relaxed(&orphan_count, (size_t)1);
    let_go(heap);
}

void heap_tend_threadless(struct heap *heap, unsigned mailbox)
{
    uint32_t state = HEAP_ORPHAN;
    test_delay();
    while (!compare_swap_seq_cst(&heap->state, &state,
                                 (uint32_t)(state == HEAP_ORPHAN ? HEAP_BUSY : HEAP_POSTED)))
        if (state != HEAP_ORPHAN && state != HEAP_BUSY)
            return;
    if (state == HEAP_BUSY)
        return; /* now POSTED */
    test_delay();
    heap_drain_mailbox(heap, mailbox);
    let_go(heap);
}

struct heap *heap_borrow(void)
{
    if (load_relaxed(&orphan_count) != 0)
        for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
            if (heap_try_hold(heap))
                return heap;
    return heap_make();
}

/* What was there. Acquire and release pair with one another; what the heap holds comes with its
 * state. */
static struct heap *exchange_ready(struct heap *heap)
{
    return exchange_acq_rel(&ready_heap, heap);
}

static struct heap *take_ready(void)
{
    return load_relaxed(&ready_heap) == NULL ? NULL : exchange_ready(NULL);
}

static bool trim_ready(struct heap *heap)
{
    if (heap == NULL || !heap_try_hold(heap))
        return false;
    bool was_ready = heap->left_ready;
    if (was_ready)
        heap_trim(heap);
    heap_return(heap);
    return was_ready;
}

bool heap_trim_ended(void) { return trim_ready(take_ready()); }

static void leave(struct heap *heap)
{
    store_seq_cst(&heap->state, (uint32_t)HEAP_BUSY); /* (e); to trim empties mailboxes */
    test_delay();
    if (config_hardened || !pages_may_keep(SMALL_CLASSES)) {
        heap_trim(heap);
        heap_return(heap);
        return;
    }
    heap_trim_for_next(heap);
    heap_return(heap);
    struct heap *before = exchange_ready(heap);
    if (before != heap)
        (void)trim_ready(before);
}

static void thread_end(void *value)
{
    struct heap *heap = value;
    if (thread_heap != heap)
        return;
    thread_ended = true;
    thread_heap = (struct heap *)(uintptr_t)&no_heap;
    os_stack_forget();
    leave(heap);
}

void heap_watch_threads(void) { (void)os_thread_end_register(thread_end); }

struct heap *heap_enter(void)
{
    if (thread_ended)
        return NULL;
    struct heap *heap = heap_borrow();
    if (heap == NULL)
        return NULL;
    heap->left_ready = false;
    store_relaxed(&heap->state, (uint32_t)HEAP_ACTIVE);
    heap->traced = (struct traced_thread){0};
    os_stack_forget();
    thread_heap = heap;
    /* May allocate, which now works. Refused, the thread's heap is never adopted: its blocks stay
     * valid. */
    (void)os_thread_end_arm(heap);
    return heap;
}

void heaps_after_fork(void)
{
    heap_generation++;
    struct heap *own = thread_heap == &no_heap ? NULL : thread_heap;
    store_relaxed(&orphan_count, (size_t)0);
    store_relaxed(&ready_heap, (struct heap *)NULL);
    store_relaxed(&all_heaps, own);
    pages_reset_kept(own ? run_cache_claimed(&own->runs) : 0);
    if (own) {
        own->generation = heap_generation;
        if (config_hardened)
            harden_seed(own);
        own->next = NULL;
        remote_lose_mail(own);
        own->look_after_fork = true;
    }
    void (*after)(void) = load_relaxed(&programs_fork);
    if (after)
        after();
}

struct traced_thread *heap_traced_thread(void)
{
    struct heap *heap = heap_at_hand();
    return heap ? &heap->traced : NULL;
}
