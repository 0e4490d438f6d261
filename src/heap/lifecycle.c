/* The life of heaps, sweeps of other threads' heaps, and the start of the layer: see lifecycle.h.
 *
 * The ready heap. To make slabs and to give them back is most of what a short thread costs. So the
 * heap of the thread that ended last is left ready: its small current slabs that hold little stay
 * current, for the next thread. Only one heap is left ready, and only while no other thread needs
 * memory. The ready heap is trimmed by the next thread that ends, by a thread that takes a slab
 * from the pages, by decay, and when memory is out. `ready.heap` is a hint where to find it. A
 * thread that trims it holds it first, like every orphan, and then `left_ready` is certain.
 *
 * Adoption. A new thread takes an orphan, usually the one that was left last, which is the ready
 * one (thread_heap.c). Threads that run one after another then get the same heap each time.
 *
 * Ended threads. The heap of an ended thread is idle: remote frees wait in its mailboxes until a
 * thread adopts it, or decay or a trim drains it. A thread that frees a block of it moves the
 * block's slab to its own heap (heap_reclaim), unless it has a listed slab of that class. The other
 * frees of a slab that was moved are its own, and the slab is retired with its last block.
 *
 * Slabs that a heap cannot use soon stay where they are. Otherwise the slabs of many short threads
 * gather in the heap of the thread that frees their last blocks, and the next threads make new
 * ones. Full hardened builds take every slab, because their quarantine keeps slabs listed.
 *
 * Sweeps: purging free pages inside slabs. A free block contains no metadata, so any thread may
 * purge a page on which no block is in use. The page reads zero when it is used again.
 *
 * The owner does not know of a purge and takes no lock. Two rules make sure that it hands out no
 * block of such a page during the purge.
 *
 *   1. A slab that is aside: its use word says PURGED during the purge, so its owner does not make
 *   it current (slab.h), and blocks are handed out of current slabs only. The owner may free blocks
 *   of it: that makes more of its pages free, not fewer. Slabs of a group (decay.h) say PURGED from
 *   the look at their links until their pages are purged.
 *
 *   2. A slab that was in a mailbox of its heap: the thread that took it out purges pages on which
 *   every slot says REMOTE, also while the slab is current. Only a thread that collects the slab
 *   changes such a link byte. A later drain can collect the slab only after it has taken it out of
 *   the mailbox; but the purging thread has it, and it is QUEUED, so no other thread pushes it
 *   again or retires it (remote.c). The holder may still be collecting it since an earlier drain,
 *   in which it opened the slab, or since it reclaimed the slab, and the slab was posted again at
 *   once. Then `drains` is odd. The odd value was written before the slab was opened or moved, so
 *   the purging thread reads that value, or the one that was written when all was collected.
 *   Meanwhile the owner may miss the slab, as if its blocks were freed a little later.
 *
 * The accesses of a block's last user happen before the purge. The free that marked the block is
 * read with acquire; or it was a free by the owner, whose late stores would only bring back a page
 * without content.
 *
 * `given` holds the pages of a slab that were purged since it was put aside, so that the system is
 * not called for them again. These pages do not count for the limits (page/limits.h) until the slab
 * becomes current. Pages that were purged while the slab was current are not in it and still count;
 * only one slab of each class is current.
 *
 * A slab that gave all its free pages is looked at again once a block of it was freed. The sweep of
 * a heap's own lists (decay.h) leaves alone a slab that changed between two looks, so the slabs
 * that are empty longest give their pages first, and busy slabs keep theirs.
 *
 * A packed slab is swept by rule 1 only: its bits do not say which thread freed a block. Slabs of
 * blocks of 0 bytes are not swept, because they have no memory. Slabs of private heaps are not
 * swept, because these heaps have a lock of their own and can end with blocks in use; the use word
 * of their slabs never says ASIDE.
 */
#include "heap/lifecycle.h"

#include "base/test_delay.h"
#include "heap/decay.h"
#include "heap/harden.h"
#include "heap/hooks.h"
#include "heap/quarantine.h"
#include "heap/refill.h"
#include "heap/remote.h"
#include "os/memory.h"
#include "os/process.h"
#include "unwind/unwind.h"

#include <errno.h>
#include <limits.h>

/* Whether this thread has no heap of its own for the rest of its life, because it has ended or its
 * end would not be noticed. Each of its calls holds a heap for a moment. */
static thread_local_word bool goes_without;
static struct {
    struct heap *heap; /* atomic: the heap that may have been left ready */
} cache_aligned ready;
static void (*private_heaps_fork)(void); /* atomic: called in the child of a fork */

void heaps_on_fork(void (*in_child)(void)) { store_relaxed(&private_heaps_fork, in_child); }

/* Makes a heap, which the caller holds.
 * Returns: NULL when out of memory. */
static struct heap *heap_make(void)
{
    struct heap *heap = meta_take(META_HOT, sizeof *heap);
    if (heap == NULL)
        return NULL;
    heap_set_up_classes(heap);
    heap->generation = heap_generation;
    heap->frees = heap->calls_to_look = 1;
    heap->runs.turns = RUN_CACHE_TURNS;
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

/* Replaces `ready.heap`. Acquire and release pair with one another; the content of the heap is
 * published by its state.
 * Returns: the heap that it was. */
static struct heap *heap_exchange_ready(struct heap *heap)
{
    return exchange_acq_rel(&ready.heap, heap);
}

/* Trims a heap that was taken out of `ready.heap`, if it is an orphan and still left ready.
 * Returns: true if it was. */
static bool heap_trim_ready(struct heap *heap)
{
    if (heap == NULL || !heap_try_hold(heap))
        return false;
    bool was_ready = heap->left_ready;
    if (was_ready)
        heap_park(heap, false);
    heap_return(heap);
    return was_ready;
}

bool heap_trim_ended(void)
{
    return load_relaxed(&ready.heap) != NULL && heap_trim_ready(heap_exchange_ready(NULL));
}

/* Ends the calling thread's use of its heap. The heap becomes an orphan, and is left ready if free
 * pages may be kept. */
static void heap_leave(struct heap *heap)
{
    store_relaxed(&heap->state, (uint32_t)HEAP_BUSY);
    bool keeps_cheap = !config_hardened && pages_most_kept() >= SMALL_CLASSES;
    heap_park(heap, keeps_cheap);
    pages_leave_shard(heap->shard);
    run_caches_add(-1);
    heap_return(heap);
    if (!keeps_cheap)
        return;
    struct heap *before = heap_exchange_ready(heap);
    if (before != heap)
        (void)heap_trim_ready(before);
}

/* Called when a thread ends, with the heap that it had. The thread may still allocate afterwards.
 */
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
    store_relaxed(&ready.heap, (struct heap *)NULL);
    store_relaxed(&all_heaps, own);
    run_caches_reset(own ? 1 : 0);
    if (own) {
        own->generation = heap_generation;
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

/* The work that a visit to a heap counts for, in addition to what is found there: see SWEEP_WORK.
 */
enum { VISIT_WORK = 16 };
/* Slabs of a mailbox that were looked at and gave nothing are looked at again after 1, 3, 7, and
 * then each 15 visits. */
enum { RELOOK_WAIT_MAX = 15 };

/* Purges free pages of a slab that was taken out of a mailbox of the heap, or adds the slab to a
 * group that has no slabs or that it touches. The first slab of a group is looked at for the whole
 * huge page.
 * Returns: the number of pages that were purged by rule 1 above; 0 if the slab was added. */
static seldom_called unsigned sweep_mailed(struct heap *heap, struct span *slab,
                                           struct purge_group *group)
{
    if (!class_is_swept(slab_class(slab)) || (group->slabs == NULL && slab_keeps_huge_page(slab)))
        return 0;
    unsigned pages = 0;
    if (slab_try_use(slab, SLAB_PURGED)) {
        pages = slab_purge_aside(slab, group);
        if (group->slabs != slab)
            (void)slab_end_purge(slab);                /* the slab is posted in any case */
    } else if (load_acquire(&heap->drains) % 2 == 0) { /* pairs with mailbox.c */
        (void)pages_purge_marked(slab_start(slab), slab_free_pages(slab, SLOTS_ALL_REMOTE));
    }
    return pages;
}

/* Purges the pages of a group and moves its slabs to the mailbox for slabs that were looked at.
 * Afterwards the group has no slabs.
 * Returns: the number of purged pages. */
static seldom_called unsigned sweep_group(struct heap *heap, unsigned mailbox,
                                          struct purge_group *group)
{
    unsigned pages = group->slabs ? purge_group_purge(group) : 0;
    for (struct span *slab = group->slabs, *next; slab; slab = next) {
        next = slab->mail_next;
        (void)slab_end_purge(slab); /* the slab is posted in any case */
        test_delay();
        remote_push_mail(heap, mailbox_of_looked_at(mailbox), slab);
    }
    group->slabs = NULL;
    return pages;
}

/* Looks at the slabs in a mailbox of a heap that the caller does not hold, and moves them to the
 * mailbox for slabs that were looked at. Adds the purged pages to `*pages`. The last group may
 * exceed `work`.
 * Returns: the part of `work` that was not used, 0 or less if slabs may be left. */
static long sweep_mailbox(struct heap *heap, unsigned mailbox, long work, unsigned *pages)
{
    struct purge_group group = {.slabs = NULL};
    struct span *slab = remote_take_mail(heap, mailbox);
    unsigned gave = 0;
    while (slab) {
        if (!purge_group_touches(&group, slab)) {
            gave += sweep_group(heap, mailbox, &group);
            if (work <= SWEEP_PAGE_WORK * (long)gave)
                break;
        }
        struct span *next = slab->mail_next;
        gave += sweep_mailed(heap, slab, &group);
        test_delay();
        if (group.slabs != slab)
            remote_push_mail(heap, mailbox_of_looked_at(mailbox), slab);
        work--;
        slab = next;
    }
    if (slab)
        remote_return_mail(heap, mailbox, slab);
    else
        gave += sweep_group(heap, mailbox, &group);
    *pages += gave;
    return work - SWEEP_PAGE_WORK * (long)gave;
}

/* Does what sweep_mailbox does with all mailboxes of the heap for slabs that no sweep has looked
 * at. */
static long sweep_mail(struct heap *heap, long work, unsigned *pages)
{
    for (unsigned mailbox = MAILBOXES; mailbox-- > 0 && work > 0;)
        work = sweep_mailbox(heap, mailbox, work, pages);
    return work;
}

/* Whether a mailbox of the heap holds slabs that no sweep has looked at. */
static bool sweep_has_new_mail(const struct heap *heap)
{
    for (unsigned mailbox = 0; mailbox < MAILBOXES; mailbox++)
        if (remote_has_mail(heap, mailbox))
            return true;
    return false;
}

/* Moves all slabs of the heap that were looked at back to their mailboxes. */
static void sweep_look_again(struct heap *heap)
{
    for (unsigned mailbox = 0; mailbox < MAILBOXES; mailbox++)
        remote_look_again(heap, mailbox);
}

/* Visits a heap whose thread may be running: looks at its mailboxes if the owner has drained none
 * since the visit before. `again` says that a part of the visit was done.
 * Returns: the part of `work` that was not used, 0 or less if slabs may be left. */
static long sweep_visit_active(struct heap *heap, bool again, long work)
{
    if (!again) {
        uint32_t drains = load_relaxed(&heap->drains);
        bool is_idle = heap->drained == drains;
        heap->drained = drains;
        if (!is_idle) {
            heap->relook_wait = 0;
            return work;
        }
        if (sweep_has_new_mail(heap)) { /* the next visit looks again */
            heap->visits_until_relook = (uint8_t)smaller_of(heap->visits_until_relook, 2);
            heap->relook_wait = 0;
        }
        if (heap->visits_until_relook != 0)
            heap->visits_until_relook--;
    }
    unsigned pages = 0;
    work = sweep_mail(heap, work, &pages);
    /* When the mailboxes are empty: to join two lists would take a step for each slab of one. */
    if (work > 0 && heap->visits_until_relook == 0) {
        sweep_look_again(heap);
        if (heap->relook_wait < RELOOK_WAIT_MAX)
            heap->relook_wait = (uint8_t)(heap->relook_wait * 2 + 1);
        heap->visits_until_relook = heap->relook_wait;
        work = sweep_mail(heap, work, &pages);
    }
    if (pages != 0 && heap->visits_until_relook != 0) { /* the next visit looks again */
        heap->visits_until_relook = 1;
        heap->relook_wait = 0;
    }
    return work;
}

/* Visits the heap of an ended thread, which the caller holds, and returns the heap: drains it and
 * sweeps its lists.
 * Returns: the part of `work` that was not used, 0 or less if a part is left. */
static long sweep_visit_ended(struct heap *heap, bool again, long work)
{
    if (heap->left_ready)
        heap_park(heap, false);
    if (!again)
        sweep_begin(heap);
    work = heap_drain_some(heap) ? sweep_lists(heap, work - VISIT_WORK) : 0;
    heap_return(heap);
    return work;
}

/* Visits a heap. `again` says that a part of the visit was done.
 * Returns: the part of `work` that was not used, 0 or less if a part of the visit is left. */
static long sweep_visit_heap(struct heap *heap, bool again, long work)
{
    work -= VISIT_WORK;
    if (heap->private_heap == NULL && !again) {
        run_cache_age(&heap->runs);
        borrow_age(heap);
    }
    if (heap->private_heap != NULL || heap == thread_heap)
        return work > 0 ? work : 1;
    return heap_try_hold(heap) ? sweep_visit_ended(heap, again, work)
                               : sweep_visit_active(heap, again, work);
}

/* The visit to all heaps, which one thread at a time makes. */
static struct {
    uint32_t visitor;     /* atomic: 1 + number of the process of the thread that makes a part of
                             the visit; 0 for none. That thread writes the other fields */
    uint32_t generation;  /* visitor: number of the process that began the visit */
    uint64_t interval_ms; /* visitor: decay interval in which the visit began */
    struct heap *heap;    /* visitor: heap to visit next; NULL when the visit is over */
    bool again;           /* visitor: a part of the visit to that heap was done */
} cache_aligned tour;

bool sweep_others(void)
{
    uint32_t seen = load_relaxed(&tour.visitor);
    uint32_t own = heap_generation + 1;
    if (seen == own || !compare_swap_acq_rel(&tour.visitor, &seen, own))
        return true;
    bool begins = tour.generation != heap_generation ||
                  (tour.heap == NULL && tour.interval_ms != pages_interval_ms());
    if (begins) {
        tour.generation = heap_generation;
        tour.interval_ms = pages_interval_ms();
        tour.heap = load_acquire(&all_heaps);
        tour.again = false;
    }
    for (long work = SWEEP_WORK; tour.heap && work > 0;) {
        work = sweep_visit_heap(tour.heap, tour.again, work);
        tour.again = work <= 0;
        if (!tour.again)
            tour.heap = tour.heap->next;
    }
    bool goes_on = tour.heap != NULL;
    store_release(&tour.visitor, (uint32_t)0); /* pairs with the compare-and-swap above */
    return goes_on;
}

/* Trims the heap of an ended thread; of another heap, purges what its mailboxes allow. For
 * heaps_each. */
static seldom_called void sweep_trim_other(struct heap *heap, void *context)
{
    bool *any = context;
    if (heap == thread_heap || heap->private_heap != NULL)
        return;
    if (heap_try_hold(heap)) {
        heap_trim(heap);
        heap_return(heap);
    } else {
        unsigned pages = 0;
        borrow_return(heap);
        sweep_look_again(heap);
        (void)sweep_mail(heap, LONG_MAX, &pages);
        *any = pages != 0 || *any;
    }
}

/* Purges the free pages of a slab that is aside. The slab may be given back or become another one
 * until its use word says PURGED; headers and their cold areas serve nothing else. Slabs of a
 * parent process are inherited, and left alone. For pages_each_slab. */
static seldom_called bool sweep_visit(struct span *span, char *start, void *context)
{
    (void)start;
    bool *any = context;
    unsigned class = load_relaxed(&span->tag) - (unsigned)SPAN_SLAB;
    uintptr_t owner = load_acquire(&span->owner); /* pairs with slab_set_owner */
    struct heap *heap = (struct heap *)(owner & OWNER_HEAP_MASK);
    if (!class_is_swept(class) || heap == NULL || heap->generation != heap_generation ||
        slab_is_swept(span) || !slab_try_use(span, SLAB_PURGED))
        return true;
    *any = slab_purge_aside(span, NULL) != 0 || *any;
    bool emptied = slab_end_purge(span);
    /* From then on its owner may give it back by itself: then no heap has it, and no post is
     * needed. */
    if (emptied && (heap = slab_heap(span)) != NULL)
        (void)remote_post(heap, span);
    return true;
}

/* Does what sweep_visit does with the slabs of idle heaps, whose owners began no sweep since
 * `*context`. For pages_each_slab. */
static seldom_called bool sweep_idle_visit(struct span *span, char *start, void *context)
{
    const uint64_t *since_ms = context;
    struct heap *heap = (struct heap *)(load_acquire(&span->owner) & OWNER_HEAP_MASK);
    bool any = false;
    /* Heaps are never unmapped, so at worst a stale owner is read in vain. */
    if (heap == NULL || heap->private_heap != NULL || load_relaxed(&heap->swept_ms) >= *since_ms)
        return true;
    return sweep_visit(span, start, &any);
}

seldom_called bool sweep_idle(uint64_t since_ms)
{
    bool all = true;
    for (const struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        all = all && (heap->private_heap != NULL || load_relaxed(&heap->swept_ms) < since_ms);
    pages_each_slab(sweep_idle_visit, &since_ms);
    return all;
}

/* Gives back what other threads have freed of an ended thread's blocks. For heaps_each. */
static seldom_called void heap_trim_orphan(struct heap *heap, void *context)
{
    bool *any = context;
    if (!heap_is_ended(heap) || !heap_has_mail(heap) || !heap_try_hold(heap))
        return;
    size_t pages = heap->slab_pages;
    heap_drain(heap);
    heap_park(heap, false);
    *any = heap->slab_pages < pages || *any;
    heap_return(heap);
}

/* Gives back what the heaps of ended threads and the run caches keep, for pages_on_refusal. */
static seldom_called bool heaps_give_kept(void)
{
    bool any = heaps_empty_run_caches();
    heaps_each(heap_trim_orphan, &any);
    return any;
}

seldom_called bool sweep_all(void)
{
    bool any = false;
    heaps_each(sweep_trim_other, &any);
    pages_each_slab(sweep_visit, &any);
    return any;
}

enum { NOT_STARTED, STARTING, STARTED };

static uint32_t started; /* atomic: written by the thread that changes it from NOT_STARTED */
/* The slabs of each class, for the page layer. Const after the start. */
static struct slab_shape shapes[sealed_count(struct slab_shape, CLASS_COUNT)] sealed_data;
sealed_fills(shapes);

void heap_start(void)
{
    if (likely(load_acquire(&started) == STARTED)) /* pairs with the release below */
        return;
    uint32_t expected = NOT_STARTED;
    if (!compare_swap_acq_rel(&started, &expected, (uint32_t)STARTING)) {
        while (load_acquire(&started) != STARTED)
            pause_processor();
        return;
    }
    os_init();
    size_classes_init();
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        const struct size_class *class = &size_classes[i];
        size_t slot_bytes = class_is_packed(i) ? (size_t)PACKED_SLOT_BYTES : class->size_bytes;
        size_t alignment = larger_of((size_t)1 << lowest_bit(class->size_bytes), PAGE_BYTES);
        shapes[i] = (struct slab_shape){.pages = class->pages,
                                        .side_units = class->side_units,
                                        .unit_bytes = (uint16_t)slot_bytes,
                                        .alignment_pages = (uint16_t)(alignment >> PAGE_SHIFT)};
    }
    if (config_sealed) { /* if the system refuses, they stay writable */
        (void)os_protect(size_classes, sizeof size_classes, OS_READ);
        (void)os_protect(shapes, sizeof shapes, OS_READ);
    }
    if (config_hardened)
        canary_start();
    pages_init(shapes);
    pages_on_fork(heaps_after_fork);
    pages_on_refusal(heaps_give_kept);
    heap_watch_threads();
    heaps_on_decay(sweep_others, heap_trim_ended);
    store_release(&started, (uint32_t)STARTED);
    pages_start();
}
