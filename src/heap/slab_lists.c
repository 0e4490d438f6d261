/* The states of a heap's slabs, and making and counting slabs: see slab_lists.h. */
#include "heap/slab_lists.h"

#include "base/bits.h"
#include "base/check.h"
#include "base/test_delay.h"
#include "heap/harden.h"
#include "heap/hooks.h"
#include "heap/profiling.h"
#include "heap/remote.h"
#include "os/process.h"

#include <string.h>

struct span *slab_take(unsigned class)
{
    const struct slab_shape *shape = &size_classes[class];
    struct span *slab =
        class_is_zero_size(class) ? pages_take_zero_size_slab(class) : pages_take_slab(class);
    if (slab == NULL)
        return NULL;
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
    store_relaxed(&slab_cold(slab)->swept.given, (uint64_t)0);
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
    slab_set_use(slab, SLAB_IDLE);
    remote_open(heap, slab);
    slab_set_owner(slab, heap);
}

struct span *slab_make(struct heap *heap, unsigned class)
{
    struct span *slab = slab_take(class);
    if (slab)
        slab_open(heap, slab);
    return slab;
}

/* The slab may be given back or become one of another class at any step. Its header stays readable
 * and only serves slabs with as many link bytes. So the figures may be wrong, but no other memory
 * is read. */
seldom_called struct slab_count heap_count_slab(const struct span *slab, unsigned class)
{
    const struct slab_shape *shape = &size_classes[class];
    struct slab_count count = {.slots = shape->capacity};
    size_t handed_out = smaller_of(load_relaxed(&slab->fresh_slot) - 1, (uint64_t)shape->capacity);
    if (class_is_packed(class)) {
        count.slots *= 64;
        count.live_blocks = packed_live(slab);
    } else {
        for (unsigned slot = 1; slot <= handed_out; slot++)
            count.live_blocks += link_shows_use(load_relaxed(slab_link(slab, slot)));
    }
    if (!class_is_zero_size(class)) {
        count.live_bytes = count.live_blocks * shape->size_bytes;
        count.slab_bytes = (size_t)shape->pages << PAGE_SHIFT;
    }
    return count;
}

/* Looks at the clock that are LOOK_MS apart are rare: then each slow call, and each free into a
 * small current slab, looks again, so that a thread that comes rarely looks in time. Otherwise the
 * numbers of frees and of slow calls between two looks double, up to FREES_MAX and CALLS_MAX. To
 * settle a heap takes some microseconds. */
enum { LOOK_MS = 20, CALLS_MAX = 16, SETTLE_MS = 50 };

/* Whether the heap has returned a MiB, and as many pages as it has left. It probably returns the
 * others, too, and its thread may sleep afterwards. */
static bool slab_lists_shrinks(const struct heap *heap)
{
    enum { MUCH_PAGES = (1 << 20) >> PAGE_SHIFT };
    return heap->returned_pages >= larger_of(heap->slab_pages, (size_t)MUCH_PAGES);
}

/* Retires an empty slab that is in no list. A thread heap keeps the slab in its run cache if the
 * cache has room and no page of the slab is purged. A private heap gives the slab back when the
 * heap's lock is released. */
static void slab_lists_retire(struct heap *heap, struct span *slab)
{
    if (unlikely(heap->private_heap != NULL)) {
        store_relaxed(&slab->owner, (uintptr_t)0); /* a free of one of its blocks dies */
        slab->next = heap->retired;
        heap->retired = slab;
        return;
    }
    heap_add_to_sums(heap, slab_class(slab), -1);
    if (slab_count_given(slab) == 0 && heap == thread_heap && run_cache_put_slab(&heap->runs, slab))
        return;
    heap->returned_pages += size_classes[slab_class(slab)].pages;
    if (slab_lists_shrinks(heap))
        heap->calls_to_look = 1;
    slab_retire(slab);
}

/* Retires a LISTED slab that is empty now. A slab that is in a mailbox, or about to be, stays in
 * the list: it is retired when the mailbox is drained, unless it is used again. A slab that is
 * being purged stays in the list too: the purging thread posts it afterwards. */
static void heap_retire_listed(struct heap *heap, struct span *slab)
{
    test_delay();
    bool shared = heap->private_heap == NULL;
    if (shared && !slab_try_leave(slab))
        return;
    if (!remote_move(heap, NULL, slab)) {
        if (shared)
            slab_set_use(slab, SLAB_ASIDE);
        return;
    }
    bin_remove(&heap->bins[slab_class(slab)], slab);
    slab_lists_retire(heap, slab);
}

void heap_list_slab(struct heap *heap, struct span *slab, unsigned used)
{
    slab_hot(slab)->frees_to_attention = (uint8_t)used;
    bin_append(&heap->bins[slab_class(slab)], slab);
    if (used == 0)
        heap_retire_listed(heap, slab);
}

/* Counts the slots of a packed slab that is aside. Lists it, leaves it FULL, or retires it. */
static void heap_recount_packed(struct heap *heap, struct span *slab)
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

/* The count of frees with which the current slab of a small class begins. */
static uint8_t slab_lists_frees(const struct heap *heap)
{
    return heap_is_hooked() || heap->frees == 0 ? (uint8_t)FREES_MAX : heap->frees;
}

void heap_make_current(struct heap *heap, unsigned class, struct span *slab)
{
    if (heap->emptied == heap->current[class])
        heap->emptied = NULL;
    heap->current[class] = slab;
    if (slab == &empty_slab.header || class_is_medium(class))
        return;
    slab_hot(slab)->frees_to_attention = slab_lists_frees(heap);
    if (class_is_packed(class))
        slab_hot(slab)->head = 0;
}

/* The work of the guards and the profiler when the current slab of a small class has used up its
 * count of frees. */
static no_inline void slab_lists_went_on(struct heap *heap, unsigned class)
{
    if (heap_is_guarding())
        heap_passed(heap, class, heap_profile_granted(heap, class));
    heap_profile_attend(heap, class);
}

/* Puts the current slab of the class aside, which has `used` slots in use. The use word of private
 * heaps' slabs does not change, so no other thread purges them. */
static void slab_lists_put_aside(struct heap *heap, unsigned class, unsigned used)
{
    struct span *slab = heap->current[class];
    if (heap_is_hooked() && class_is_small(class))
        heap_profile_leave(heap, class, slab->capacity - used);
    heap_make_current(heap, class, &empty_slab.header);
    if (heap->private_heap == NULL)
        slab_put_aside(slab);
    if (class_is_packed(class) || used == slab->capacity)
        slab_wait(slab);
    else
        heap_list_slab(heap, slab, used);
    if (class_is_packed(class))
        heap_recount_packed(heap, slab);
}

void heap_put_aside(struct heap *heap, unsigned class)
{
    struct span *slab = heap->current[class];
    if (slab != &empty_slab.header)
        slab_lists_put_aside(heap, class, slab_used(slab));
}

/* A packed slab is counted: other threads may have freed blocks behind its head. */
void heap_leave_current(struct heap *heap, unsigned class)
{
    struct span *slab = heap->current[class];
    if (slab != &empty_slab.header)
        slab_lists_put_aside(heap, class,
                             class_is_packed(class) ? slab_used(slab) : slab->capacity);
}

static void slab_lists_settle(struct heap *heap)
{
    heap->settled_ms = heap->looked_ms;
    heap->returned_pages = 0;
    for (unsigned class = 0; class < CLASS_COUNT; class ++)
        heap_put_aside(heap, class);
    run_cache_count_room(&heap->runs);
}

void heap_look(struct heap *heap)
{
    heap->calls_to_look = CALLS_MAX;
    if (heap != thread_heap || heap->drains % 2 != 0)
        return;
    uint64_t now = os_now_ms();
    bool is_rare = now - heap->looked_ms >= LOOK_MS;
    heap->looked_ms = now;
    heap->frees = is_rare ? 1 : (uint8_t)smaller_of(heap->frees * 2u, (unsigned)FREES_MAX);
    heap->calls_to_look = (uint8_t)smaller_of((unsigned)heap->frees, (unsigned)CALLS_MAX);
    pages_tick();
    bool shrinks = slab_lists_shrinks(heap);
    if (shrinks || now >= heap->settled_ms + SETTLE_MS)
        slab_lists_settle(heap);
    if (shrinks)
        (void)run_cache_empty(&heap->runs);
}

/* Retires the current slab of a medium class if it is still empty. One in a mailbox is retired when
 * it is collected. */
static void slab_lists_retire_current(struct heap *heap, struct span *slab)
{
    if (slab_hot(slab)->frees_to_attention != 0 || !remote_move(heap, NULL, slab))
        return;
    heap_make_current(heap, slab_class(slab), &empty_slab.header);
    slab_set_use(slab, SLAB_IDLE);
    slab_lists_retire(heap, slab);
}

void heap_count_expired(struct heap *heap, struct span *slab)
{
    unsigned class = slab_class(slab);
    if (heap->current[class] != slab) {
        if (class_is_packed(class))
            heap_recount_packed(heap, slab);
        else if (slab_is_waiting(slab))
            heap_list_slab(heap, slab, slab->capacity - (unsigned)slab_relist_after(slab));
        else
            heap_retire_listed(heap, slab);
    } else if (!class_is_medium(class)) {
        slab_hot(slab)->frees_to_attention = slab_lists_frees(heap);
        heap->calls_to_look = 1;
        if (heap_is_hooked() && class_is_small(class) && heap->private_heap == NULL)
            slab_lists_went_on(heap, class);
    } else if (heap->emptied != slab) {
        struct span *before = heap->emptied;
        heap->emptied = slab;
        if (before)
            slab_lists_retire_current(heap, before);
    }
}

bool heap_move_slab(struct heap *from, struct heap *to, struct span *slab)
{
    unsigned class = slab_class(slab);
    if (load_relaxed(&to->look_after_fork) || load_relaxed(&from->look_after_fork))
        return false;
    if (from->current[class] == slab)
        heap_put_aside(from, class);
    if (slab_heap(slab) != from || !slab_try_use(slab, SLAB_IDLE))
        return false; /* it was empty and was retired, or another thread purges it */
    if (!remote_move(from, to, slab)) {
        slab_set_use(slab, SLAB_ASIDE);
        return false;
    }
    slab_set_owner(slab, to);
    heap_add_to_sums(from, class, -1);
    heap_add_to_sums(to, class, 1);
    if (!slab_is_waiting(slab)) {
        bin_remove(&from->bins[class], slab);
        bin_append(&to->bins[class], slab);
    }
    slab_put_aside(slab);
    return true;
}

void slab_lists_verify(struct heap *heap)
{
    check_internal(heap->emptied == NULL ||
                   heap->current[slab_class(heap->emptied)] == heap->emptied);
    for (unsigned class = 0; class < CLASS_COUNT; class ++) {
        struct bin *bin = &heap->bins[class];
        struct span *current = heap->current[class];
        check_internal(current == &empty_slab.header || slab_heap(current) == heap);
        check_internal(slab_count_given(current) == 0);
        if (class_is_medium(class) && current != &empty_slab.header) {
            unsigned used = slab_used(current);
            check_internal(slab_hot(current)->frees_to_attention == used);
            check_internal(used != 0 || current == heap->emptied ||
                           remote_is_posted(heap, current));
        }
        struct span *prev = NULL;
        for (struct span *slab = bin->first; slab; prev = slab, slab = slab->next) {
            check_internal((prev == NULL || *slab_prev(slab) == prev) &&
                           slab_class(slab) == class && slab_heap(slab) == heap);
            unsigned used = slab_used(slab); /* fewer if others freed blocks of a packed slab */
            check_internal(class_is_packed(class) ? slab_hot(slab)->frees_to_attention >= used
                                                  : slab_hot(slab)->frees_to_attention == used);
            slab_verify(slab);
        }
        check_internal(bin->last == prev);
    }
}
