/* Heaps: their slabs, their life between threads, their mailbox. See thread_heap.h. */
#include "heap/thread_heap.h"

#include "base/check.h"
#include "base/test_delay.h"
#include "heap/harden.h"
#include "heap/heap.h"
#include "heap/packed.h"
#include "os/os.h"

#include <string.h>

/* Keeps an emptied medium slab for the next block of its class, up to so much of them a heap: the
 * one emptied last among them. */
enum { SPARE_MAX_BYTES = 512 << 10 };

/* The mailbox is emptied when a class has nothing left, and after so many refills at the latest:
 * the longer it waits, the more frees a slab's visit collects. */
enum { DRAIN_REFILLS = 16 };

static struct span empty_slab = {
    .limit = 1, .until = UINT8_MAX, .head = LINK_END}; /* const: never written */

const struct heap no_heap = {.current = {[0 ... CLASS_COUNT] = &empty_slab}};

thread_local_word struct heap *thread_heap = (struct heap *)(uintptr_t)&no_heap;

static thread_local_word bool thread_ended; /* this thread's heap was given back for good */
static struct heap *all_heaps;              /* atomic: stack that only grows */
static size_t orphan_count;                 /* atomic: hint, orphans not borrowed */
static bool all_armed;                      /* written once, before there are threads */
uint32_t heap_generation; /* written in the child of a fork, before it has threads */

/* Bins. */

static bool is_small(unsigned class) { return class < SMALL_CLASSES; }

/* Void blocks always take the slow path: their size shows a class whose current slab is the empty
 * one. */
enum { FIRST_SHOWN = config_void_blocks ? CANARY_BYTES + 1 : 0 };

/* The class that the fast path sees for the sizes of a small one. */
static void show_class(struct heap *heap, unsigned class, unsigned shown)
{
    size_t first = class == 0 ? FIRST_SHOWN : (size_t)size_classes[class - 1].size_bytes + 1;
    memset(&heap->small_class[first], (int)shown, size_classes[class].size_bytes + 1 - first);
}

void heap_disarm(struct heap *heap)
{
    unsigned armed = heap->sampling.armed;
    heap->sampling.armed = 0;
    if (armed != 0)
        show_class(heap, armed - 1, armed - 1);
}

void heap_arm(struct heap *heap, unsigned class)
{
    heap_disarm(heap);
    heap->sampling.armed = (uint8_t)(class + 1);
    show_class(heap, class, CLASS_COUNT);
}

static void arm_all(struct heap *heap)
{
    for (unsigned class = 0; class < SMALL_CLASSES; class ++)
        show_class(heap, class, CLASS_COUNT);
}

void heap_arm_all(void)
{
    all_armed = true;
    if (thread_heap != &no_heap)
        arm_all(thread_heap);
}

void bin_append(struct bin *bin, struct span *slab)
{
    slab->next = NULL;
    *slab_prev(slab) = bin->last;
    if (bin->last)
        bin->last->next = slab;
    else
        bin->first = slab;
    bin->last = slab;
}

void bin_remove(struct bin *bin, struct span *slab)
{
    struct span *prev = *slab_prev(slab);
    if (slab->next)
        *slab_prev(slab->next) = prev;
    else
        bin->last = prev;
    if (prev)
        prev->next = slab->next;
    else
        bin->first = slab->next;
}

/* No poster is still on its way to the slab, and none has left bits: see slab.h. */
static bool is_settled(const struct span *slab, const struct heap *heap)
{
    return load_acquire(&slab->owner) == (uintptr_t)heap;
}

/* A thread's own heap keeps it. */
static void retire(struct heap *heap, struct span *slab)
{
    if (heap != thread_heap || !run_cache_put_slab(&heap->runs, slab))
        slab_retire(slab);
}

/* A slab of a bin's list is empty now. One that is not settled stays in the list: the post that is
 * still to come brings it back here, or it is used again. */
static void retire_listed(struct heap *heap, struct span *slab)
{
    if (!is_settled(slab, heap))
        return;
    test_delay();
    bin_remove(&heap->bins[slab_class(slab)], slab);
    heap->smallest_slabs -= slab_class(slab) == 0;
    retire(heap, slab);
}

/* Into the list of its class, with `live` blocks in use. */
static void list(struct heap *heap, struct span *slab, unsigned live)
{
    slab->until = (uint8_t)live;
    bin_append(&heap->bins[slab_class(slab)], slab);
    if (live == 0)
        retire_listed(heap, slab);
}

static size_t slab_bytes(const struct span *slab)
{
    if (slab_is_void(slab))
        return 0;
    return (size_t)size_classes[slab_class(slab)].pages << PAGE_SHIFT;
}

/* While a small slab is current its count only has to stay above zero; a medium one's is exact. */
static void make_current(struct heap *heap, struct span *slab)
{
    if (is_small(slab_class(slab)))
        slab->until = UINT8_MAX;
    else if (slab->until == 0)
        heap->spare_bytes += slab_bytes(slab);
    heap->current[slab_class(slab)] = slab;
}

void heap_unspare(struct heap *heap, const struct span *slab)
{
    heap->spare_bytes -= slab_bytes(slab);
}

/* Empty medium slabs in turn, until few enough are left; `newest` last. */
static no_inline void retire_spares(struct heap *heap, const struct span *newest)
{
    unsigned class = slab_class(newest);
    do {
        class = class + 1 == CLASS_COUNT ? (unsigned)SMALL_CLASSES : class + 1;
        struct span *slab = heap->current[class];
        if (slab->until != 0 || !is_settled(slab, heap))
            continue;
        heap_unspare(heap, slab);
        heap->current[class] = &empty_slab;
        retire(heap, slab);
    } while (heap->spare_bytes > SPARE_MAX_BYTES && class != slab_class(newest));
}

void heap_attend(struct heap *heap, struct span *slab)
{
    if (heap->current[slab_class(slab)] != slab) {
        if (slab_is_waiting(slab))
            list(heap, slab, slab->capacity - (unsigned)slab_patience(slab));
        else
            retire_listed(heap, slab);
        return;
    }
    if (is_small(slab_class(slab))) {
        slab->until = UINT8_MAX;
        if (heap_is_sampling())
            heap_passed(heap, slab_class(slab), UINT8_MAX);
        return;
    }
    heap->spare_bytes += slab_bytes(slab);
    if (heap->spare_bytes > SPARE_MAX_BYTES)
        retire_spares(heap, slab);
}

/* The current slab has neither a free slot nor an unused one. */
static void leave_current(struct heap *heap, unsigned class)
{
    struct span *slab = heap->current[class];
    if (slab == &empty_slab)
        return;
    slab_wait(slab);
    heap->current[class] = &empty_slab;
}

/* One kept, else a new one. */
static struct span *take_empty(struct heap *heap, unsigned class)
{
    heaps_tick();
    struct span *slab = run_cache_take_slab(&heap->runs, class);
    if (slab) {
        store_release(&slab->owner, (uintptr_t)heap); /* pairs with load_acquire in block_of_slab */
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
    unsigned passed =
        UINT8_MAX - (unsigned)heap->current[class]->until; /* of a small one, freed again */
    leave_current(heap, class);
    bool due = bin->first == NULL || ++heap->refills % DRAIN_REFILLS == 0;
    if (due && load_relaxed(&heap->mailbox) != NULL)
        heap_drain(heap);
    struct span *slab = bin->first;
    if (slab) {
        bin_remove(bin, slab);
    } else {
        slab = take_empty(heap, class);
        if (slab == NULL)
            return NULL;
        heap->smallest_slabs += class == 0;
    }
    if (heap_is_sampling())
        heap_passed(heap, class, passed + slab->capacity - (unsigned)slab->until);
    make_current(heap, slab);
    return slab;
}

/* Puts the current slab aside with an exact count: into the list, among the full, or away. */
static void put_aside(struct heap *heap, unsigned class)
{
    struct span *slab = heap->current[class];
    if (slab == &empty_slab)
        return;
    heap->current[class] = &empty_slab;
    if (!is_small(class) && slab->until == 0)
        heap_unspare(heap, slab);
    unsigned live = slab_used(slab);
    if (live == slab->capacity)
        slab_wait(slab);
    else
        list(heap, slab, live);
}

void heap_trim(struct heap *heap)
{
    heap_drain(heap);
    harden_flush(heap);
    packed_trim(heap);
    for (unsigned class = 0; class < CLASS_COUNT; class ++) {
        put_aside(heap, class);
        for (struct span *slab = heap->bins[class].first, *next; slab; slab = next) {
            next = slab->next;
            if (slab->until == 0)
                retire_listed(heap, slab);
        }
    }
    run_cache_empty(&heap->runs);
    heap_verify(heap);
}

/* Mailbox. */

static void collect(struct heap *heap, struct span *slab)
{
    unsigned collected = slab_collect(slab);
    if (heap->current[slab_class(slab)] == slab) {
        if (!is_small(slab_class(slab)) && collected != 0 &&
            (slab->until = (uint8_t)(slab->until - collected)) == 0)
            heap_attend(heap, slab);
    } else if (slab_is_waiting(slab)) {
        unsigned freed = slab_patience(slab) - (unsigned)slab->until + collected;
        if (freed < slab_patience(slab))
            slab->until = (uint8_t)(slab->until - collected);
        else
            list(heap, slab, slab->capacity - freed);
    } else {
        slab->until = (uint8_t)(slab->until - collected);
        if (slab->until == 0)
            retire_listed(heap, slab);
    }
}

void heap_drain(struct heap *heap)
{
    struct span *slab =
        exchange_acquire(&heap->mailbox, (struct span *)NULL); /* pairs with the push in post() */
    while (slab) {
        struct span *next = slab_remote(slab)->mail_next;
        test_delay();
        /* From here on a new post enters the slab again; collecting comes after, so nothing is
         * missed. */
        fetch_and_seq_cst(&slab->owner, ~(uintptr_t)OWNER_QUEUED);
        test_delay();
        if (slab_is_packed(slab))
            packed_attend(heap, slab);
        else
            collect(heap, slab);
        slab = next;
    }
}

/* Life. */

static struct heap *heap_make(void)
{
    struct heap *heap = meta_take(META_HOT, sizeof *heap);
    if (heap == NULL)
        return NULL;
    for (unsigned class = 0; class <= CLASS_COUNT; class ++)
        heap->current[class] = &empty_slab;
    for (size_t size = 0; size <= SMALL_MAX; size++)
        heap->small_class[size] = (uint8_t)small_class(size);
    memset(heap->small_class, CLASS_COUNT, FIRST_SHOWN);
    if (all_armed)
        arm_all(heap);
    heap->generation = heap_generation;
    if (config_hardened)
        harden_seed(heap);
    store_relaxed(&heap->state, (uint32_t)HEAP_BUSY);
    heap->next = load_relaxed(&all_heaps);
    while (
        !compare_swap_acq_rel(&all_heaps, &heap->next, heap)) /* release: pairs with heaps_each */
        pause_processor();
    return heap;
}

/* Orphan to BUSY. Acquire: pairs with the release of whoever held it before. */
static bool try_hold(struct heap *heap)
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
    } while (load_seq_cst(&heap->mailbox) != NULL && try_hold(heap));
}

void heap_tend_orphan(struct heap *heap)
{
    if (try_hold(heap))
        heap_return(heap);
}

struct heap *heap_borrow(void)
{
    if (load_relaxed(&orphan_count) != 0)
        for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
            if (try_hold(heap))
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
    thread_heap = heap;
    /* May allocate, which now works. Refused, the thread's heap is never adopted: its blocks stay
     * valid. */
    (void)os_thread_end_arm(heap);
    return heap;
}

static void age_runs(void)
{
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        run_cache_age(&heap->runs);
}

void heaps_tick(void) { pages_tick(age_runs); }

bool heaps_empty_run_caches(void)
{
    bool any = false;
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        any = run_cache_empty(&heap->runs) || any;
    return any;
}

void heaps_each(heap_visit *visit, void *context)
{
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        visit(heap, context);
}

/* Posts of other threads may have stopped half-way: what the remote words say is what counts. */
static bool repost_visit(struct span *span, char *start, void *context)
{
    (void)start;
    struct heap *heap = context;
    if (!span_is_slab(span) || slab_heap(span) != heap)
        return true;
    struct remote *remote = slab_remote(span);
    uintptr_t owner = (uintptr_t)heap;
    bool attend;
    if (slab_is_packed(span)) {
        owner |= OWNER_PACKED;
        attend = packed_after_fork(heap, span);
    } else {
        uintptr_t words = 0;
        for (unsigned i = 0; i < REMOTE_WORDS; i++)
            words += remote->words[i] != 0;
        owner |= words << OWNER_POST_SHIFT;
        attend = words != 0;
    }
    if (attend) {
        owner |= OWNER_QUEUED;
        remote->mail_next = heap->mailbox;
        heap->mailbox = span;
    }
    if (span->owner != owner) /* a write would copy the page */
        span->owner = owner;
    return true;
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
        pages_each(repost_visit, own);
    }
}

void heap_verify(struct heap *heap)
{
    if (!config_debug)
        return;
    for (unsigned class = 0; class < CLASS_COUNT; class ++) {
        struct bin *bin = &heap->bins[class];
        struct span *current = heap->current[class];
        check_internal(current == &empty_slab || slab_heap(current) == heap);
        bool armed = heap->sampling.armed == class + 1;
        if (is_small(class) && !all_armed)
            check_internal(heap->small_class[size_classes[class].size_bytes] ==
                           (armed ? (unsigned)CLASS_COUNT : class));
        struct span *prev = NULL;
        for (struct span *slab = bin->first; slab; prev = slab, slab = slab->next) {
            check_internal(*slab_prev(slab) == prev && slab_class(slab) == class &&
                           slab_heap(slab) == heap);
            check_internal(slab->until == slab_used(slab));
            slab_verify(slab);
        }
        check_internal(bin->last == prev);
    }
    packed_verify(heap);
}
