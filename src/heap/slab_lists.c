/* The states of a heap's slabs, and making and counting slabs: see slab_lists.h. */
#include "heap/slab_lists.h"

#include "base/bits.h"
#include "base/check.h"
#include "base/test_delay.h"
#include "heap/decay.h"
#include "heap/harden.h"
#include "heap/hooks.h"
#include "heap/profiling.h"
#include "heap/remote.h"
#include "heap/thread_heap.h"

#include <string.h>

struct span *slab_take(unsigned class, bool *is_new)
{
    const struct size_class *shape = &size_classes[class];
    struct span *slab =
        class_is_zero_size(class) ? pages_take_zero_size_slab(class) : pages_take_slab(class);
    if (slab == NULL)
        return NULL;
    *is_new = !class_is_zero_size(class) && slab->dirty_pages < shape->pages;
    /* A header that served a slab before has link bytes of that slab; the link bytes of a new
     * header are zero and stay untouched. `mail_state` and the words behind the links stay as they
     * are, because late frees still read them: see remote.c and thread_heap.c. */
    if (slab->capacity != 0)
        memset(slab_link(slab, 1), 0,
               (size_t)shape->side_units * 64 - sizeof(struct slab_hot_line) -
                   sizeof(struct slab_cold_area));
    slab->base -= shape->size_bytes;
    slab->size_inverse = shape->inverse;
    store_relaxed(&slab->fresh_slot, (uint64_t)1);
    slab->size_bytes = shape->size_bytes;
    slab_hot(slab)->frees_to_attention = 0;
    slab_hot(slab)->head = LINK_END;
    slab->capacity = shape->capacity;
    return slab;
}

void slab_open(struct heap *heap, struct span *slab)
{
    if (config_random_slots)
        harden_shuffle(heap, slab);
    store_relaxed(&slab_cold(slab)->swept.given, (uint64_t)0);
    slab_set_use(slab, SLAB_IDLE);
    remote_open(heap, slab);
    slab_set_owner(slab, heap);
}

struct span *slab_make(struct heap *heap, unsigned class)
{
    bool is_new = false;
    struct span *slab = slab_take(class, &is_new);
    if (slab)
        slab_open(heap, slab);
    if (is_new && heap->private_heap == NULL)
        (void)run_cache_empty(&heap->runs);
    return slab;
}

/* Other threads continue meanwhile, and the slab may be given back or become one of another class
 * at any step. The header of the slab and its link bytes stay readable, and a header only serves
 * slabs of classes with the given number of link bytes. So the figures may be wrong then, but no
 * other memory is read. */
struct slab_count heap_count_slab(const struct span *slab, unsigned class)
{
    if (class_is_packed(class)) {
        size_t blocks = packed_live(slab);
        return (struct slab_count){.live_blocks = blocks,
                                   .slots = PACKED_SLOTS * 64,
                                   .live_bytes = blocks * PACKED_BYTES,
                                   .slab_bytes = PACKED_SLOTS * PACKED_SLOT_BYTES};
    }
    const struct size_class *shape = &size_classes[class];
    size_t handed_out = smaller_of(load_relaxed(&slab->fresh_slot) - 1, (uint64_t)shape->capacity);
    size_t live = 0;
    size_t freed = 0;
    for (unsigned slot = 1; slot <= handed_out; slot++)
        live += link_shows_use(load_relaxed(slab_link(slab, slot)));
    bool words_count =
        slab_is_inherited(slab) && load_acquire(&slab_cold(slab)->generation) == heap_generation;
    for (unsigned i = 0; i < INHERITED_WORDS && words_count; i++)
        freed += count_bits(load_relaxed(&slab_cold(slab)->words[i]));
    live -= smaller_of(live, freed);
    bool no_memory = class_is_zero_size(class);
    return (struct slab_count){.live_blocks = live,
                               .slots = shape->capacity,
                               .live_bytes = no_memory ? 0 : live * shape->size_bytes,
                               .slab_bytes = no_memory ? 0 : (size_t)shape->pages << PAGE_SHIFT};
}

/* The limit of a heap's spare bytes: its emptied medium slabs stay current for the next block of
 * their classes up to this sum. slab_lists_spare_count says what a slab counts for. One block of
 * each class has room.
 *
 * A heap that retires SPARE_SHORT_BYTES of spare slabs in one decay interval probably takes them
 * again and again. It may raise the limit to SPARE_RAISED_BYTES until the end of the interval.
 * A sleeping thread's heap stays raised, so at most RAISED_HEAPS are. */
enum {
    SPARE_MAX_BYTES = 768 << 10,
    SPARE_SHORT_BYTES = 4 << 20,
    SPARE_RAISED_BYTES = 3 << 20,
    RAISED_HEAPS = 8
};
static uint32_t raised_heaps; /* atomic */
/* With more spare bytes than this, slab_lists_settle is called. A slab that alone counts for more
 * is not exempt from it. */
enum { SETTLE_BYTES = 64 << 10 };
/* A spare slab is emptied this number of times between two checks of what is due by age. */
enum { TICK_CYCLES = 64 };

/* Whether a heap that had at least 16 MiB in this decay interval or the one before has at most an
 * eighth of it left. The thread of such a heap is freeing what it has and may sleep next, so the
 * heap keeps nothing: its run cache is emptied, once an interval. */
static bool slab_lists_shrinks(struct heap *heap, size_t pages)
{
    enum { MUCH_PAGES = (16 << 20) >> PAGE_SHIFT, LEFT_PART = 8 };
    uint64_t now = pages_interval_ms();
    if (unlikely(heap->most_ms != now)) {
        heap->most_ms = now;
        heap->most_before = heap->most_pages;
        heap->most_pages = 0;
    }
    heap->most_pages = larger_of(heap->most_pages, heap->slab_pages + pages);
    size_t most = larger_of(heap->most_pages, heap->most_before);
    if (likely(most < MUCH_PAGES) || heap->slab_pages > most / LEFT_PART)
        return false;
    if (heap->shrunk_ms != now) {
        heap->shrunk_ms = now;
        (void)run_cache_empty(&heap->runs);
    }
    return true;
}

/* Retires an empty slab that is in no list. A thread heap keeps the slab in its run cache if the
 * cache has room, no page of the slab is purged, and the heap does not shrink. A private
 * heap gives the slab back when the heap's lock is released. */
static void slab_lists_retire(struct heap *heap, struct span *slab)
{
    if (unlikely(heap->private_heap != NULL)) {
        store_relaxed(&slab->owner, (uintptr_t)0); /* a free of one of its blocks dies */
        slab->next = heap->retired;
        heap->retired = slab;
        return;
    }
    size_t pages = size_classes[slab_class(slab)].pages;
    heap->slab_pages -= pages;
    heap->retired_pages += pages;
    size_t given = slab_count_given(slab);
    bool keeps = given == 0 && heap == thread_heap && !slab_lists_shrinks(heap, pages);
    if (!keeps || !run_cache_put_slab(&heap->runs, slab))
        slab_retire_swept(slab, given);
}

/* Notes that the slab is no longer current. The use word of private heaps' slabs does not change,
 * so no other thread purges them. */
static void slab_lists_note_aside(struct heap *heap, struct span *slab)
{
    heap->slabs_aside++;
    if (heap->private_heap == NULL)
        slab_put_aside(slab);
}

void heap_retire_listed(struct heap *heap, struct span *slab)
{
    test_delay();
    bool shared = heap->private_heap == NULL;
    if (shared && !slab_try_leave(slab))
        return;
    if (!remote_close(heap, slab)) {
        if (shared)
            slab_set_use(slab, SLAB_ASIDE);
        return;
    }
    heap_unlist(heap, slab);
    heap->slabs_aside--;
    heap->smallest_slabs -= slab_class(slab) == 0;
    slab_lists_retire(heap, slab);
}

void heap_list_slab(struct heap *heap, struct span *slab, unsigned used)
{
    slab_hot(slab)->frees_to_attention = (uint8_t)used;
    bin_append(&heap->bins[slab_class(slab)], slab);
    if (used == 0)
        heap_retire_listed(heap, slab);
}

void heap_recount_packed(struct heap *heap, struct span *slab)
{
    if (!slab_is_waiting(slab)) {
        slab_hot(slab)->frees_to_attention = (uint8_t)slab_used(slab);
        if (slab_hot(slab)->frees_to_attention == 0)
            heap_retire_listed(heap, slab);
        return;
    }
    unsigned ready = packed_ready(slab);
    if (ready < slab_relist_after(slab))
        slab_hot(slab)->frees_to_attention = (uint8_t)(slab_relist_after(slab) - ready);
    else
        heap_list_slab(heap, slab, slab_used(slab));
}

/* The bytes that an empty slab of a medium class counts for: the slots below `limit`, which were
 * handed out, and an eighth of the others. Those may have memory from an earlier use of their
 * pages. A limit of 0 says that the slab is not spare. */
static size_t slab_lists_spare_count(unsigned class, unsigned limit)
{
    const struct size_class *shape = &size_classes[class];
    if (limit == 0 || class_is_zero_size(class))
        return 0;
    return shape->size_bytes * (shape->capacity + 7 * ((size_t)limit - 1)) / 8;
}

static_check(CAPACITY_MAX + 1 <= UINT8_MAX, "spare_limits holds every limit");

/* Makes the class's current slab count as spare with this `limit`; 0 for a slab that is not spare.
 */
static void slab_lists_count_spare(struct heap *heap, unsigned class, unsigned limit)
{
    uint8_t *counted = &heap->spare_limits[class];
    heap->spare_bytes +=
        slab_lists_spare_count(class, limit) - slab_lists_spare_count(class, *counted);
    *counted = (uint8_t)limit;
}

/* Notes that the current slab of a medium class is not spare, or that no slab is current. */
static void slab_lists_count_in_use(struct heap *heap, unsigned class)
{
    slab_lists_count_spare(heap, class, 0);
    if (heap->current[class] != &empty_slab.header)
        heap->current[class]->spare_mark = 0;
}

void heap_make_current(struct heap *heap, unsigned class, struct span *slab)
{
    heap->current[class] = slab;
    if (class_is_medium(class)) {
        slab_lists_count_in_use(heap, class);
    } else if (slab != &empty_slab.header) {
        slab_hot(slab)->frees_to_attention = UINT8_MAX;
        if (class_is_packed(class))
            slab_hot(slab)->head = 0;
    }
}

void heap_reset_raised(const struct heap *own)
{
    store_relaxed(&raised_heaps, own && own->spare_is_raised ? 1u : 0u);
}

void heap_lower_spare(struct heap *heap)
{
    if (likely(!heap->spare_is_raised))
        return;
    heap->spare_is_raised = false;
    fetch_sub_relaxed(&raised_heaps, 1u);
}

/* Whether the heap may raise its limit. Spare slabs are not given back at a refusal of the hard
 * limit, and under memory pressure nothing is kept. */
static bool slab_lists_may_raise(void)
{
    if (pages_have_hard_limit() || pages_most_kept() < SPARE_RAISED_BYTES >> PAGE_SHIFT)
        return false;
    if (fetch_add_relaxed(&raised_heaps, 1u) < RAISED_HEAPS)
        return true;
    fetch_sub_relaxed(&raised_heaps, 1u);
    return false;
}

/* Counts a spare slab that is retired, and raises the limit if there were many. */
static void slab_lists_count_short(struct heap *heap, size_t bytes)
{
    uint64_t now = pages_interval_ms();
    if (heap->short_ms != now) {
        heap->short_ms = now;
        heap->short_bytes = 0;
    }
    heap->short_bytes += bytes;
    if (heap->short_bytes < SPARE_SHORT_BYTES || heap->spare_is_raised || heap->private_heap)
        return;
    heap->short_bytes = 0;
    heap->spare_is_raised = slab_lists_may_raise();
}

static size_t slab_lists_spare_max(const struct heap *heap)
{
    return heap->spare_is_raised ? SPARE_RAISED_BYTES : SPARE_MAX_BYTES;
}

/* Retires spare slabs of the classes after `newest`, in turn, until the rest is within
 * slab_lists_spare_max. The slab of `newest`, which was just emptied, stays, and so does a slab in
 * the mailbox. A slab that is in use again no longer counts as spare. */
static no_inline void slab_lists_retire_spares(struct heap *heap, unsigned newest)
{
    unsigned class = newest;
    while (heap->spare_bytes > slab_lists_spare_max(heap)) {
        class = class + 1 == CLASS_COUNT ? (unsigned)SMALL_CLASSES : class + 1;
        if (class == newest)
            return;
        struct span *slab = heap->current[class];
        if (heap->spare_limits[class] == 0)
            continue;
        if (slab_hot(slab)->frees_to_attention != 0) {
            slab_lists_count_in_use(heap, class);
        } else if (remote_close(heap, slab)) {
            slab_lists_count_short(heap, slab_lists_spare_count(class, heap->spare_limits[class]));
            heap_make_current(heap, class, &empty_slab.header);
            slab_set_use(slab, SLAB_IDLE);
            slab_lists_retire(heap, slab);
        }
    }
}

/* Does a part of the work that is due by age, unless the caller holds the lock of a private heap.
 */
static void slab_lists_ask_what_is_due(struct heap *heap)
{
    if (unlikely(heap->private_heap != NULL))
        return;
    heaps_decay();
    if (unlikely(heap->spare_is_raised) && heap->short_ms != pages_interval_ms()) {
        heap_lower_spare(heap);
        slab_lists_retire_spares(heap, SMALL_CLASSES);
    }
}

/* The work of the guards and the profiler when the current slab of a small class has used up its
 * count of frees. */
static no_inline void slab_lists_went_on(struct heap *heap, unsigned class)
{
    if (heap_is_guarding())
        heap_passed(heap, class, heap_profile_granted(heap, class));
    heap_profile_attend(heap, class);
}

void heap_put_aside(struct heap *heap, unsigned class)
{
    struct span *slab = heap->current[class];
    if (slab == &empty_slab.header)
        return;
    unsigned live = slab_used(slab);
    if (heap_is_hooked() && class_is_small(class))
        heap_profile_leave(heap, class, slab->capacity - live);
    heap_make_current(heap, class, &empty_slab.header);
    slab_lists_note_aside(heap, slab);
    if (class_is_packed(class) || live == slab->capacity)
        slab_wait(slab);
    else
        heap_list_slab(heap, slab, live);
    if (class_is_packed(class))
        heap_recount_packed(heap, slab);
}

/* Puts all current slabs aside if the heap has no other slabs. The blocks of a current slab may be
 * coming to an end, and nothing would notice that: a current slab of a small class has no exact
 * count, and no other thread purges a current slab. Once it is aside, each slab is retired with its
 * last block, or used again by the next malloc.
 *
 * The slab of the class `kept` stays current. The kept slab was used just now and may be in a
 * cycle; a small slab holds little memory, and a medium one has an exact count. This happens once a
 * decay interval, or when the retired pages since the last time are at least the pages that are
 * counted and taken again. */
static void slab_lists_settle(struct heap *heap, unsigned kept)
{
    if (heap->slabs_aside != 0 || heap->slab_pages == 0 || heap->private_heap != NULL)
        return;
    uint64_t interval = pages_interval_ms();
    if (heap->retired_pages < heap->slab_pages && heap->settled_ms == interval)
        return;
    heap->settled_ms = interval;
    heap_lower_spare(heap);
    for (unsigned class = 0; class < CLASS_COUNT; class ++)
        if (class != kept)
            heap_put_aside(heap, class);
    heap->retired_pages = 0;
}

void heap_count_expired_slab(struct heap *heap, struct span *slab)
{
    unsigned class = slab_class(slab);
    if (heap->current[class] != slab) {
        if (class_is_packed(class))
            heap_recount_packed(heap, slab);
        else if (slab_is_waiting(slab))
            heap_list_slab(heap, slab, slab->capacity - (unsigned)slab_relist_after(slab));
        else
            heap_retire_listed(heap, slab);
        slab_lists_settle(heap, class);
    } else if (!class_is_medium(class)) {
        slab_hot(slab)->frees_to_attention = UINT8_MAX;
        slab_lists_ask_what_is_due(heap);
        if (heap_is_hooked() && class_is_small(class) && heap->private_heap == NULL)
            slab_lists_went_on(heap, class);
        slab_lists_settle(heap, class);
    } else {
        unsigned limit = (unsigned)load_relaxed(&slab->fresh_slot);
        size_t counts = slab_lists_spare_count(class, limit);
        if (heap->spare_limits[class] == limit)
            slab_lists_ask_what_is_due(heap);
        slab_lists_count_spare(heap, class, limit);
        slab->spare_mark = slab_spare_mark(limit);
        slab->cycles = TICK_CYCLES;
        if (heap->spare_bytes > slab_lists_spare_max(heap))
            slab_lists_retire_spares(heap, class);
        if (heap->spare_bytes > SETTLE_BYTES)
            slab_lists_settle(heap, counts > SETTLE_BYTES ? (unsigned)CLASS_COUNT : class);
    }
}

void heap_leave_current(struct heap *heap, unsigned class)
{
    struct span *slab = heap->current[class];
    if (slab == &empty_slab.header)
        return;
    if (class_is_packed(class)) { /* other threads may have freed blocks behind its head */
        heap_put_aside(heap, class);
        return;
    }
    if (heap_is_hooked() && class_is_small(class))
        heap_profile_leave(heap, class, 0);
    slab_wait(slab);
    heap_make_current(heap, class, &empty_slab.header);
    slab_lists_note_aside(heap, slab);
}

void heap_add_slab(struct heap *heap, struct span *slab)
{
    heap->smallest_slabs += slab_class(slab) == 0;
    slab_hot(slab)->frees_to_attention = 0;
    slab_lists_note_aside(heap, slab);
    bin_append(&heap->bins[slab_class(slab)], slab);
}

/* Adds `count` slabs of the class to the heap's sums, or subtracts them if `count` is negative. */
static void slab_lists_count_slabs(struct heap *heap, unsigned class, ptrdiff_t count)
{
    heap->slabs_aside += (size_t)count;
    heap->slab_pages += (size_t)count * size_classes[class].pages;
    if (class == 0)
        heap->smallest_slabs += (uint32_t)count;
}

bool heap_move_slab(struct heap *from, struct heap *to, struct span *slab)
{
    unsigned class = slab_class(slab);
    if (from->current[class] == slab)
        heap_put_aside(from, class);
    if (slab_heap(slab) != from || !slab_try_use(slab, SLAB_IDLE))
        return false; /* it was empty and was retired, or another thread purges it */
    if (!remote_move(from, to, slab)) {
        slab_set_use(slab, SLAB_ASIDE);
        return false;
    }
    slab_set_owner(slab, to);
    slab_lists_count_slabs(from, class, -1);
    slab_lists_count_slabs(to, class, 1);
    if (!slab_is_waiting(slab)) {
        heap_unlist(from, slab);
        bin_append(&to->bins[class], slab);
    }
    slab_put_aside(slab);
    return true;
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
        if (!class_is_medium(class)) {
            check_internal(counted == 0);
        } else {
            bool empty =
                current != &empty_slab.header && slab_hot(current)->frees_to_attention == 0;
            check_internal(empty ? counted == load_relaxed(&current->fresh_slot)
                                 : counted == 0 || current != &empty_slab.header);
            check_internal(counted != 0 || (current->spare_mark & 1) == 0);
            spare += slab_lists_spare_count(class, counted);
        }
        struct span *prev = NULL;
        for (struct span *slab = bin->first; slab; prev = slab, slab = slab->next) {
            check_internal((prev == NULL || *slab_prev(slab) == prev) &&
                           slab_class(slab) == class && slab_heap(slab) == heap);
            unsigned used = slab_used(slab); /* fewer if others freed blocks of a packed slab */
            check_internal(class_is_packed(class) ? slab_hot(slab)->frees_to_attention >= used
                                                  : slab_hot(slab)->frees_to_attention == used);
            slab_verify(slab);
            listed++;
        }
        check_internal(bin->last == prev);
    }
    check_internal(listed <= heap->slabs_aside);
    check_internal(spare == heap->spare_bytes);
}
