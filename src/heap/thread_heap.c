/* A heap's slabs and its mailbox. See thread_heap.h. */
#include "heap/thread_heap.h"

#include "base/check.h"
#include "base/test_delay.h"
#include "heap/harden.h"
#include "heap/heap.h"
#include "heap/heap_sweep.h"
#include "heap/packed_sweep.h"
#include "heap/profiling.h"
#include "heap/program_heap.h"
#include "heap/remote.h"
#include "heap/tracing.h"

#include <string.h>

/* Keeps an emptied medium slab for the next block of its class, up to so much of them a heap: the
 * one emptied last among them. Counted are the slots that were handed out, and an eighth of the
 * rest, which may have memory from whatever the pages served before. */
enum { SPARE_MAX_BYTES = 352 << 10 };
/* With more than this spare it is asked whether all of the heap comes to its end; or in one slab.
 */
enum { SETTLE_BYTES = 64 << 10 };

/* The mailbox is emptied when a class has nothing left, and after so many refills at the latest:
 * the longer it waits, the more frees a slab's visit collects. So many emptied slabs that stay
 * spare ask once what is due by age. */
enum { DRAIN_TURNS = 16, TICK_TURNS = 64 };

static struct span empty_slab = {
    .limit = 1, .until = UINT8_MAX, .head = LINK_END}; /* const: never written */

const struct heap no_heap = {.current = {[0 ... CLASS_COUNT] = &empty_slab}};

thread_local_word struct heap *thread_heap = (struct heap *)(uintptr_t)&no_heap;

static bool all_armed;  /* written once, before there are threads */
static bool all_traced; /* atomic: likewise, and taken back by any thread */

/* Bins. */

static bool is_small(unsigned class) { return class < SMALL_CLASSES; }

/* Void blocks always take the slow path: their size shows a class whose current slab is the empty
 * one. */
enum { FIRST_SHOWN = config_void_blocks ? CANARY_BYTES + 1 : 0 };

void heap_show_class(struct heap *heap, unsigned class)
{
    bool armed = all_armed || load_relaxed(&all_traced) || heap->sampling.armed == class + 1 ||
                 heap_profile_arms(heap, class);
    unsigned shown = armed ? (unsigned)CLASS_COUNT : class;
    size_t first = class != 0        ? (size_t)size_classes[class - 1].size_bytes + 1
                   : heap->packed.on ? (size_t)PACKED_BYTES + 1 /* packed_turn_on's stay */
                                     : (size_t)FIRST_SHOWN;
    memset(&heap->small_class[first], (int)shown, size_classes[class].size_bytes + 1 - first);
}

void heap_disarm(struct heap *heap)
{
    unsigned armed = heap->sampling.armed;
    heap->sampling.armed = 0;
    if (armed != 0)
        heap_show_class(heap, armed - 1);
}

void heap_arm(struct heap *heap, unsigned class)
{
    heap_disarm(heap);
    heap->sampling.armed = (uint8_t)(class + 1);
    heap_show_class(heap, class);
}

static void arm_all(struct heap *heap)
{
    for (unsigned class = 0; class < SMALL_CLASSES; class ++)
        heap_show_class(heap, class);
}

void heap_set_up_classes(struct heap *heap)
{
    for (unsigned class = 0; class <= CLASS_COUNT; class ++)
        heap->current[class] = &empty_slab;
    for (size_t size = 0; size <= SMALL_MAX; size++)
        heap->small_class[size] = (uint8_t)small_class(size);
    memset(heap->small_class, CLASS_COUNT, FIRST_SHOWN);
    if (all_armed || load_relaxed(&all_traced))
        arm_all(heap);
}

void heap_arm_all(void)
{
    all_armed = true;
    if (thread_heap != &no_heap)
        arm_all(thread_heap);
}

void heap_arm_traced(bool on)
{
    store_relaxed(&all_traced, on);
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

/* A thread's own heap keeps it; that of the program gives it back when its lock is free. */
static void retire(struct heap *heap, struct span *slab)
{
    if (unlikely(heap->program != NULL)) {
        program_let_go(heap->program, slab);
        return;
    }
    size_t pages = size_classes[slab_class(slab)].pages;
    heap->slab_pages -= pages;
    heap->retired_pages += pages;
    if (heap != thread_heap || !run_cache_put_slab(&heap->runs, slab))
        slab_retire(slab);
}

/* What is due by age, where no lock is held. */
static void tick(const struct heap *heap)
{
    if (likely(heap->program == NULL))
        heaps_tick();
}

/* The slab is current no more. Whoever purges leaves the slabs of first-class heaps alone. */
static void note_aside(struct heap *heap, struct span *slab)
{
    heap->slabs_aside++;
    if (heap->program == NULL)
        slab_put_aside(slab);
}

/* A slab of a bin's list is empty now. One in the mailbox, or about to be, stays in the list: the
 * mail brings it back here, or it is used again. So one that is being purged, which is posted
 * after.
 */
static void retire_listed(struct heap *heap, struct span *slab)
{
    test_delay();
    bool shared = heap->program == NULL;
    if (shared && !slab_try_leave(slab))
        return;
    if (!remote_close(heap, slab)) {
        if (shared)
            slab_set_use(slab, SLAB_ASIDE);
        return;
    }
    bin_remove(&heap->bins[slab_class(slab)], slab);
    heap->slabs_aside--;
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

/* What an empty slab counts for. */
static uint32_t spare_count(const struct span *slab)
{
    uint32_t used = (uint32_t)load_relaxed(&slab->limit) - 1;
    return slab_is_void(slab) ? 0 : slab->size_bytes * (slab->capacity + 7 * used) / 8;
}

static void count_spare(struct heap *heap, unsigned class, uint32_t count)
{
    uint32_t *counted = &heap->spares[class - SMALL_CLASSES];
    heap->spare_bytes += (size_t)count - *counted;
    *counted = count;
}

/* Makes another slab current, or none. While a small one is it, its count only has to stay above
 * zero; a medium one's is exact. */
static void make_current(struct heap *heap, unsigned class, struct span *slab)
{
    heap->current[class] = slab;
    if (!is_small(class))
        count_spare(heap, class, 0);
    else if (slab != &empty_slab)
        slab->until = UINT8_MAX;
}

/* Too much is spare: slabs of the next classes go, but not one that is in the mailbox, and not
 * that of `newest`, just emptied. Those in use again were counted for nothing. */
static no_inline void retire_spares(struct heap *heap, unsigned newest)
{
    unsigned class = newest;
    while (heap->spare_bytes > SPARE_MAX_BYTES) {
        class = class + 1 == CLASS_COUNT ? (unsigned)SMALL_CLASSES : class + 1;
        if (class == newest)
            return;
        struct span *slab = heap->current[class];
        if (heap->spares[class - SMALL_CLASSES] == 0)
            continue;
        if (slab->until != 0) {
            count_spare(heap, class, 0);
        } else if (remote_close(heap, slab)) {
            make_current(heap, class, &empty_slab);
            slab_set_use(slab, SLAB_IDLE);
            retire(heap, slab);
        }
    }
}

/* A small class's current slab ran out of its count, or another one has become current, while
 * somebody watches. */
static no_inline void heap_went_on(struct heap *heap, unsigned class)
{
    if (heap_is_sampling())
        heap_passed(heap, class, heap_profile_granted(heap, class));
    heap_profile_attend(heap, class);
}

static no_inline void heap_refilled(struct heap *heap, unsigned class, unsigned freed,
                                    unsigned free_slots)
{
    if (heap_is_sampling() && heap->program == NULL)
        heap_passed(heap, class, freed + free_slots);
    if (is_small(class))
        heap_profile_enter(heap, class, free_slots);
}

/* Puts the current slab aside with an exact count: into the list, among the full, or away. */
static void put_aside(struct heap *heap, unsigned class)
{
    struct span *slab = heap->current[class];
    if (slab == &empty_slab)
        return;
    unsigned live = slab_used(slab);
    if (heap_is_watched() && is_small(class))
        heap_profile_leave(heap, class, slab->capacity - live);
    make_current(heap, class, &empty_slab);
    note_aside(heap, slab);
    if (live == slab->capacity)
        slab_wait(slab);
    else
        list(heap, slab, live);
}

/* All slabs of a heap are current, so its blocks may be coming to an end, and then nobody would
 * hear of it: a current slab has no exact count, and its memory is its owner's alone. Put aside,
 * each is retired with its last block, or used again by the next malloc. All but that of the class
 * just seen, which may be in a cycle: a small slab holds 32 KiB, a medium one has an exact count.
 * Once an interval, or when as much was retired as is counted and taken again for it. */
static void settle(struct heap *heap, unsigned kept)
{
    if (heap->slabs_aside != 0 || heap->slab_pages == 0 || heap->program != NULL)
        return;
    uint64_t interval = pages_interval_ms();
    if (heap->retired_pages < heap->slab_pages && heap->settled_ms == interval)
        return;
    heap->settled_ms = interval;
    for (unsigned class = 0; class < CLASS_COUNT; class ++)
        if (class != kept)
            put_aside(heap, class);
    heap->retired_pages = 0;
}

void heap_attend(struct heap *heap, struct span *slab)
{
    unsigned class = slab_class(slab);
    if (heap->current[class] != slab) {
        if (slab_is_waiting(slab))
            list(heap, slab, slab->capacity - (unsigned)slab_patience(slab));
        else
            retire_listed(heap, slab);
        settle(heap, class);
    } else if (is_small(class)) {
        slab->until = UINT8_MAX;
        tick(heap);
        if (heap_is_watched() && heap->program == NULL)
            heap_went_on(heap, class);
        settle(heap, class);
    } else {
        uint32_t counts = spare_count(slab);
        if (++heap->turns % TICK_TURNS == 0)
            tick(heap);
        else if (likely(heap->spares[class - SMALL_CLASSES] == counts))
            return; /* a cycle: all that is spare was looked at when it came to this */
        count_spare(heap, class, counts);
        if (heap->spare_bytes > SPARE_MAX_BYTES)
            retire_spares(heap, class);
        if (heap->spare_bytes > SETTLE_BYTES)
            settle(heap, counts > SETTLE_BYTES ? (unsigned)CLASS_COUNT : class);
    }
}

/* The current slab has neither a free slot nor an unused one. */
static void leave_current(struct heap *heap, unsigned class)
{
    struct span *slab = heap->current[class];
    if (slab == &empty_slab)
        return;
    if (heap_is_watched() && is_small(class))
        heap_profile_leave(heap, class, 0);
    slab_wait(slab);
    make_current(heap, class, &empty_slab);
    note_aside(heap, slab);
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
    if (heap_is_watched() && is_small(class) && heap->current[class] != &empty_slab)
        freed = heap_profile_granted(heap, class) - heap->current[class]->until;
    leave_current(heap, class);
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
    make_current(heap, class, slab);
    if (heap_is_watched())
        heap_refilled(heap, class, freed, free_slots);
    return slab;
}

void heap_add_slab(struct heap *heap, struct span *slab)
{
    heap->smallest_slabs += slab_class(slab) == 0;
    slab->until = 0;
    note_aside(heap, slab);
    bin_append(&heap->bins[slab_class(slab)], slab);
}

void heap_trim(struct heap *heap)
{
    if (heap->look_after_fork)
        heap_look_after_fork(heap);
    heap_drain(heap);
    harden_flush(heap);
    packed_trim(heap);
    packed_sweep(heap, true);
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
        if (is_small(slab_class(slab))) {
            if (heap_is_watched())
                heap_profile_collect(heap, slab_class(slab), collected);
        } else if (collected != 0 && (slab->until = (uint8_t)(slab->until - collected)) == 0) {
            heap_attend(heap, slab);
        }
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
    store_relaxed(&heap->drains, heap->drains + 1); /* odd from here on: see heap_sweep.c */
    struct span *slab = remote_take_mail(heap);
    while (slab) {
        struct span *next = slab_remote(slab)->mail_next;
        test_delay();
        remote_open(heap, slab); /* (b): a free that is missed from here on posts again */
        test_delay();
        if (slab_is_packed(slab))
            packed_attend(heap, slab);
        else
            collect(heap, slab);
        slab = next;
    }
    store_release(&heap->drains, heap->drains + 1); /* pairs with sweep_mail */
}

void heap_forget_mail(struct heap *heap)
{
    struct span *slab =
        exchange_acquire(&heap->mailbox, (struct span *)NULL); /* pairs with the push in mail() */
    for (struct span *next; slab; slab = next) {
        next = slab_remote(slab)->mail_next;
        remote_open(heap, slab);
    }
}

void heap_verify(struct heap *heap)
{
    if (!config_debug)
        return;
    size_t spare = 0;
    for (unsigned class = 0; class < CLASS_COUNT; class ++) {
        struct bin *bin = &heap->bins[class];
        struct span *current = heap->current[class];
        check_internal(current == &empty_slab || slab_heap(current) == heap);
        if (!is_small(class)) {
            uint32_t counted = heap->spares[class - SMALL_CLASSES];
            bool empty = current != &empty_slab && current->until == 0;
            check_internal(empty ? counted == spare_count(current)
                                 : counted == 0 || current != &empty_slab);
            spare += counted;
        }
        bool armed = heap->sampling.armed == class + 1 || heap_profile_arms(heap, class);
        if (is_small(class) && !all_armed && !heap_is_traced())
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
    check_internal(spare == heap->spare_bytes);
    packed_verify(heap);
}
