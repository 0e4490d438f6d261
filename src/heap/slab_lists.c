/* Which slabs a heap has, in which state: see slab_lists.h. */
#include "heap/slab_lists.h"

#include "base/check.h"
#include "base/test_delay.h"
#include "heap/profiling.h"
#include "heap/program_state.h"
#include "heap/remote.h"
#include "heap/sampling.h"
#include "heap/tick.h"

/* Keeps an emptied medium slab for the next block of its class, up to so much of them a heap: the
 * one emptied last among them. Counted are the slots that were handed out, and an eighth of the
 * rest, which may have memory from whatever the pages served before. */
enum { SPARE_MAX_BYTES = 352 << 10 };
/* With more than this spare it is asked whether all of the heap comes to its end; or in one slab.
 */
enum { SETTLE_BYTES = 64 << 10 };
/* So often a slab that stays spare is emptied until it is asked what is due by age. */
enum { TICK_CYCLES = 64 };

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
    size_t given = slab_count_given(slab);
    if (given != 0 || heap != thread_heap || !run_cache_put_slab(&heap->runs, slab))
        slab_retire_swept(slab, given);
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

void heap_retire_listed(struct heap *heap, struct span *slab)
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

void heap_list_slab(struct heap *heap, struct span *slab, unsigned used)
{
    slab_own(slab)->until = (uint8_t)used;
    bin_append(&heap->bins[slab_class(slab)], slab);
    if (used == 0)
        heap_retire_listed(heap, slab);
}

/* What an empty slab of a medium class counts for, of which slots below `limit` were handed out; 0:
 * none. */
static size_t spare_count(unsigned class, unsigned limit)
{
    const struct size_class *shape = &size_classes[class];
    if (limit == 0 || class_is_void(class))
        return 0;
    return shape->size_bytes * (shape->capacity + 7 * ((size_t)limit - 1)) / 8;
}

static_check(CAPACITY_MAX + 1 <= UINT8_MAX, "spare_limits holds every limit");

static void count_spare(struct heap *heap, unsigned class, unsigned limit)
{
    uint8_t *counted = &heap->spare_limits[class];
    heap->spare_bytes += spare_count(class, limit) - spare_count(class, *counted);
    *counted = (uint8_t)limit;
}

/* The current slab of a medium class is not spare any more, or never was. */
static void count_in_use(struct heap *heap, unsigned class)
{
    count_spare(heap, class, 0);
    if (heap->current[class] != &empty_slab.header)
        heap->current[class]->spare_mark = 0;
}

void heap_make_current(struct heap *heap, unsigned class, struct span *slab)
{
    heap->current[class] = slab;
    if (!class_is_small(class))
        count_in_use(heap, class);
    else if (slab != &empty_slab.header)
        slab_own(slab)->until = UINT8_MAX;
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
        if (heap->spare_limits[class] == 0)
            continue;
        if (slab_own(slab)->until != 0) {
            count_in_use(heap, class);
        } else if (remote_close(heap, slab)) {
            heap_make_current(heap, class, &empty_slab.header);
            slab_set_use(slab, SLAB_IDLE);
            retire(heap, slab);
        }
    }
}

/* A small class's current slab ran out of its count while somebody watches. */
static no_inline void went_on(struct heap *heap, unsigned class)
{
    if (heap_is_sampling())
        heap_passed(heap, class, heap_profile_granted(heap, class));
    heap_profile_attend(heap, class);
}

void heap_put_aside(struct heap *heap, unsigned class)
{
    struct span *slab = heap->current[class];
    if (slab == &empty_slab.header)
        return;
    unsigned live = slab_used(slab);
    if (heap_is_watched() && class_is_small(class))
        heap_profile_leave(heap, class, slab->capacity - live);
    heap_make_current(heap, class, &empty_slab.header);
    note_aside(heap, slab);
    if (live == slab->capacity)
        slab_wait(slab);
    else
        heap_list_slab(heap, slab, live);
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
            heap_put_aside(heap, class);
    heap->retired_pages = 0;
}

void heap_attend_slab(struct heap *heap, struct span *slab)
{
    unsigned class = slab_class(slab);
    if (heap->current[class] != slab) {
        if (slab_is_waiting(slab))
            heap_list_slab(heap, slab, slab->capacity - (unsigned)slab_patience(slab));
        else
            heap_retire_listed(heap, slab);
        settle(heap, class);
    } else if (class_is_small(class)) {
        slab_own(slab)->until = UINT8_MAX;
        tick(heap);
        if (heap_is_watched() && heap->program == NULL)
            went_on(heap, class);
        settle(heap, class);
    } else {
        unsigned limit = (unsigned)load_relaxed(&slab->limit);
        size_t counts = spare_count(class, limit);
        if (heap->spare_limits[class] == limit)
            tick(heap);
        count_spare(heap, class, limit);
        slab->spare_mark = slab_spare_mark(limit);
        slab->cycles = TICK_CYCLES;
        if (heap->spare_bytes > SPARE_MAX_BYTES)
            retire_spares(heap, class);
        if (heap->spare_bytes > SETTLE_BYTES)
            settle(heap, counts > SETTLE_BYTES ? (unsigned)CLASS_COUNT : class);
    }
}

void heap_leave_current(struct heap *heap, unsigned class)
{
    struct span *slab = heap->current[class];
    if (slab == &empty_slab.header)
        return;
    if (heap_is_watched() && class_is_small(class))
        heap_profile_leave(heap, class, 0);
    slab_wait(slab);
    heap_make_current(heap, class, &empty_slab.header);
    note_aside(heap, slab);
}

void heap_add_slab(struct heap *heap, struct span *slab)
{
    heap->smallest_slabs += slab_class(slab) == 0;
    slab_own(slab)->until = 0;
    note_aside(heap, slab);
    bin_append(&heap->bins[slab_class(slab)], slab);
}

void slab_lists_verify(struct heap *heap)
{
    size_t spare = 0;
    size_t listed = 0;
    for (unsigned class = 0; class < CLASS_COUNT; class ++) {
        struct bin *bin = &heap->bins[class];
        struct span *current = heap->current[class];
        check_internal(current == &empty_slab.header || slab_heap(current) == heap);
        check_internal(slab_count_given(current) == 0);
        unsigned counted = heap->spare_limits[class];
        if (class_is_small(class)) {
            check_internal(counted == 0);
        } else {
            bool empty = current != &empty_slab.header && slab_own(current)->until == 0;
            check_internal(empty ? counted == load_relaxed(&current->limit)
                                 : counted == 0 || current != &empty_slab.header);
            check_internal(counted != 0 || (current->spare_mark & 1) == 0);
            spare += spare_count(class, counted);
        }
        struct span *prev = NULL;
        for (struct span *slab = bin->first; slab; prev = slab, slab = slab->next) {
            check_internal((prev == NULL || *slab_prev(slab) == prev) &&
                           slab_class(slab) == class && slab_heap(slab) == heap);
            check_internal(slab_own(slab)->until == slab_used(slab));
            slab_verify(slab);
            listed++;
        }
        check_internal(bin->last == prev);
    }
    check_internal(listed <= heap->slabs_aside);
    check_internal(spare == heap->spare_bytes);
}
