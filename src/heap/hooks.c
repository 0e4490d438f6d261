/* The state of the hooks, the table of classes, marks, the reports of frees and resizes, and the
 * choice of guarded blocks: hooks.h. */
#include "heap/hooks.h"

#include "base/alone.h"
#include "base/check.h"
#include "base/random.h"
#include "os/process.h"

#include <string.h>

struct heap_hooks heap_hooks;

/* These hooks divert all classes of all heaps. */
enum { DIVERT_ALL = HOOK_TRACE | HOOK_DENSE_GUARDS };

/* The first size of class 0 in the table. Requests of 0 bytes always take the slow path where they
 * get zero-size blocks: their size maps to CLASS_COUNT. */
enum { FIRST_SHOWN = config_zero_size_blocks ? CANARY_BYTES + 1 : 0 };

static bool hooks_is_diverted(const struct heap *heap, unsigned class)
{
    return heap->guard_choice.diverted == class + 1 || heap_profile_diverts(heap, class);
}

void heap_route_class(struct heap *heap, unsigned class)
{
    bool diverted = heap_has_hook(DIVERT_ALL) || hooks_is_diverted(heap, class);
    unsigned shown = diverted ? (unsigned)CLASS_COUNT : class;
    size_t first = class != 0    ? (size_t)size_classes[class - 1].size_bytes + 1
                   : heap->packs ? (size_t)PACKED_BYTES + 1 /* packed_turn_on wrote these sizes */
                                 : (size_t)FIRST_SHOWN;
    memset(&heap->small_class[first], (int)shown, size_classes[class].size_bytes + 1 - first);
}

static void hooks_route_all(struct heap *heap)
{
    for (unsigned class = 0; class < SMALL_CLASSES; class ++)
        heap_route_class(heap, class);
}

void heap_divert_none(struct heap *heap)
{
    unsigned diverted = heap->guard_choice.diverted;
    heap->guard_choice.diverted = 0;
    if (diverted != 0)
        heap_route_class(heap, diverted - 1);
}

void heap_divert_class(struct heap *heap, unsigned class)
{
    heap_divert_none(heap);
    heap->guard_choice.diverted = (uint8_t)(class + 1);
    heap_route_class(heap, class);
}

at_process_start void heap_set_up_classes(struct heap *heap)
{
    heap->emptied = NULL;
    for (unsigned class = 0; class <= CLASS_COUNT; class ++)
        heap->current[class] = &empty_slab.header;
    for (size_t size = 0; size <= SMALL_BLOCK_MAX; size++)
        heap->small_class[size] = (uint8_t)small_class(size);
    memset(heap->small_class, CLASS_COUNT, FIRST_SHOWN);
    if (heap_has_hook(DIVERT_ALL))
        hooks_route_all(heap);
}

void hooks_verify(const struct heap *heap)
{
    if (heap_has_hook(DIVERT_ALL | HOOK_TRACED))
        return;
    for (unsigned class = 0; class < SMALL_CLASSES; class ++)
        check_internal(heap->small_class[size_classes[class].size_bytes] ==
                       (hooks_is_diverted(heap, class) ? (unsigned)CLASS_COUNT : class));
}

/* Updates the table of this thread's heap after these bits have changed. */
static void hooks_follow(uint32_t changed)
{
    if ((changed & DIVERT_ALL) != 0 && thread_heap != &no_heap)
        hooks_route_all(thread_heap);
}

void hooks_set(uint32_t bits)
{
    fetch_or_acq_rel(&heap_hooks.on, bits); /* release: pairs with heap_has_hook */
    hooks_follow(bits);
}

void hooks_clear(uint32_t bits)
{
    fetch_and_acq_rel(&heap_hooks.on, ~bits);
    hooks_follow(bits);
}

void heap_trace_start(const struct heap_tracer *tracer)
{
    store_relaxed(&heap_hooks.tracer, tracer);
    hooks_set(HOOK_TRACE | HOOK_TRACED);
}

void heap_trace_stop(void) { hooks_clear(HOOK_TRACE); }

/* The tracer, or NULL while none is set. */
static const struct heap_tracer *hooks_tracer_now(void)
{
    return likely(heap_has_hook(HOOK_TRACE)) ? load_relaxed(&heap_hooks.tracer) : NULL;
}

/* Sets or removes the mark of a block. Packed and zero-size blocks are never marked. */
static void hooks_set_mark(struct span *span, const void *block, bool marks)
{
    if (!span_is_slab(span)) {
        span->mark = marks;
        return;
    }
    if (slab_is_packed(span) || slab_is_zero_size(span))
        return;
    uint8_t *link = slab_link(span, (unsigned)slab_slot(span, block));
    uint8_t from = marks ? LINK_LIVE : LINK_PROFILED;
    uint8_t to = marks ? LINK_PROFILED : LINK_LIVE;
    if (likely(load_relaxed(link) == from))
        (void)compare_swap_if_threaded(link, &from, to);
}

void hooks_mark(struct span *span, const void *block) { hooks_set_mark(span, block, true); }

void *hooks_trace_block(void *block, size_t asked_bytes, size_t alignment_bytes, bool zeroed)
{
    struct span *span = page_map_find(block);
    const struct heap_tracer *tracer = hooks_tracer_now();
    if (tracer) {
        hooks_mark(span, block);
        return tracer->allocated(block, asked_bytes, alignment_bytes, zeroed);
    }
    /* The tracer has stopped: ends the diversion of the block's class in this thread's heap. */
    struct heap *heap = thread_heap;
    if (span_is_slab(span) && class_is_small(slab_class(span)) && slab_heap(span) == heap)
        heap_route_class(heap, slab_class(span));
    return block;
}

void hooks_end_mark(struct span *span, void *block)
{
    const struct heap_profiler *profiler = load_relaxed(&heap_hooks.profiler);
    if (profiler)
        profiler->freed(block);
    hooks_set_mark(span, block, false);
}

void free_hooked(struct span *span, void *block)
{
    const struct heap_tracer *tracer = hooks_tracer_now();
    if (tracer)
        tracer->freed(block, false);
    hooks_end_mark(span, block);
}

/* The new name of the sample is an address with the lowest bit set, which no block has. */
void *hooks_hold_sample(const struct span *span)
{
    const struct heap_profiler *profiler = load_relaxed(&heap_hooks.profiler);
    if (profiler == NULL || span->mark == 0)
        return NULL;
    profiler->renamed(span->base, span->base + 1);
    return span->base + 1;
}

void hooks_release_sample(const struct span *span, void *name, bool resumes)
{
    const struct heap_profiler *profiler = load_relaxed(&heap_hooks.profiler);
    if (name && resumes)
        profiler->renamed(name, span->base);
    else if (name)
        profiler->freed(name);
}

void hooks_resize_begin(void *block)
{
    const struct heap_tracer *tracer = hooks_tracer_now();
    if (tracer)
        tracer->freed(block, true);
}

void hooks_resize_end(void *block, void *now, size_t asked_bytes)
{
    const struct heap_tracer *tracer = hooks_tracer_now();
    if (tracer == NULL)
        return;
    if (now && now != block)
        hooks_mark(page_map_find(now), now);
    tracer->resized(now, asked_bytes, true);
}

void hooks_resize_stays(void *block, size_t asked_bytes)
{
    const struct heap_tracer *tracer = hooks_tracer_now();
    if (tracer)
        tracer->resized(block, asked_bytes, false);
}

enum {
    /* Up to this interval, counting on the slow path costs less than choosing by diversion. */
    DENSE_INTERVAL_MAX = 1000,
    SKIPPED_MAX = 32,
};

static uint64_t guard_random_word(struct heap *heap)
{
    while (heap->guard_choice.random == 0)
        heap->guard_choice.random = os_random();
    return random_next(&heap->guard_choice.random) >> 32;
}

/* A number of blocks from 1 to 2 * interval - 1, uniformly distributed. */
static int64_t guard_next_interval(struct heap *heap)
{
    uint64_t span = 2 * (uint64_t)heap_hooks.guard->interval - 1;
    return 1 + (int64_t)(guard_random_word(heap) % span);
}

/* Counts blocks. Returns: whether one of these blocks is to be guarded. */
static bool guard_count_down(struct heap *heap, unsigned blocks)
{
    struct guard_choice *choice = &heap->guard_choice;
    if (unlikely(choice->random == 0))
        choice->left = guard_next_interval(heap);
    choice->left -= blocks;
    if (likely(choice->left > 0))
        return false;
    choice->left = guard_next_interval(heap);
    return true;
}

void heap_set_guard(const struct heap_guard *guard)
{
    bool dense = guard->interval <= DENSE_INTERVAL_MAX;
    store_relaxed(&heap_hooks.guard, guard);
    hooks_set(dense ? HOOK_GUARDS | HOOK_DENSE_GUARDS : HOOK_GUARDS);
}

void *heap_guard_block(struct heap *heap, unsigned class, size_t size_bytes, size_t alignment_bytes)
{
    struct guard_choice *choice = &heap->guard_choice;
    if (heap_hooks.guard->interval > DENSE_INTERVAL_MAX && class < SMALL_CLASSES) {
        if (choice->diverted != class + 1)
            return NULL;
        if (choice->skipped > 0) {
            choice->skipped--;
            return NULL;
        }
        heap_divert_none(heap);
    } else if (!guard_count_down(heap, 1)) {
        return NULL;
    }
    return heap_hooks.guard->allocate(size_bytes, alignment_bytes);
}

void heap_passed(struct heap *heap, unsigned class, unsigned blocks)
{
    if (heap_hooks.guard->interval <= DENSE_INTERVAL_MAX || class >= SMALL_CLASSES ||
        !guard_count_down(heap, blocks))
        return;
    heap->guard_choice.skipped = (uint8_t)(guard_random_word(heap) % SKIPPED_MAX);
    heap_divert_class(heap, class);
}
