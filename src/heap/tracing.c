/* What a tracer hears of: see tracing.h. */
#include "heap/tracing.h"

static const struct heap_tracer *tracer; /* atomic: written before WATCH_TRACE is set */

void heap_trace_start(const struct heap_tracer *starts)
{
    store_relaxed(&tracer, starts);
    fetch_or_acq_rel(&heap_watch, (uint32_t)(WATCH_TRACE | WATCH_TRACED)); /* pairs with
                                                                              tracer_now */
    heap_arm_traced(true);
}

void heap_trace_stop(void)
{
    fetch_and_acq_rel(&heap_watch, ~(uint32_t)WATCH_TRACE);
    heap_arm_traced(false);
}

/* NULL while none is set. */
static const struct heap_tracer *tracer_now(void)
{
    bool on = (load_acquire(&heap_watch) & WATCH_TRACE) != 0; /* pairs with heap_trace_start */
    return on ? load_relaxed(&tracer) : NULL;
}

/* The tracer has stopped: the block's class leaves the slow path. */
static void disarm(const struct span *span)
{
    struct heap *heap = thread_heap;
    if (span_is_slab(span) && !slab_is_packed(span) && slab_heap(span) == heap &&
        slab_class(span) < SMALL_CLASSES)
        heap_show_class(heap, slab_class(span));
}

/* Its free leaves the fast path. */
static void mark(struct span *span, const void *block)
{
    if (!span_is_slab(span))
        span->until = 1;
    else if (!slab_is_packed(span) && !slab_is_void(span))
        store_relaxed(slab_link(span, (unsigned)slab_slot(span, block)), (uint8_t)LINK_PROFILED);
}

void *heap_trace_block(void *block, size_t asked_bytes, size_t alignment_bytes, bool zeroed)
{
    struct span *span = page_map_find(block);
    const struct heap_tracer *now = tracer_now();
    if (now == NULL) {
        disarm(span);
        return block;
    }
    mark(span, block);
    return now->allocated(block, asked_bytes, alignment_bytes, zeroed);
}

void heap_trace_free(void *block)
{
    const struct heap_tracer *now = tracer_now();
    if (now)
        now->freed(block, false);
}

struct span_sample heap_trace_resize_begin(void *block)
{
    const struct heap_tracer *now = tracer_now();
    if (now)
        now->freed(block, true);
    return heap_profile_hold_block(page_map_find(block), block);
}

void heap_trace_resize_end(void *block, void *now_at, size_t asked_bytes, struct span_sample held)
{
    const struct heap_tracer *now = tracer_now();
    heap_profile_let_go_block(block, now_at, held);
    if (now == NULL)
        return;
    void *stays = now_at ? now_at : block;
    heap_profile_mark_again(page_map_find(stays), stays);
    now->resized(now_at, asked_bytes, true);
}

void heap_trace_resized(void *block, size_t asked_bytes)
{
    const struct heap_tracer *now = tracer_now();
    if (now)
        now->resized(block, asked_bytes, false);
}

void heap_forget_marked_slot(struct span *slab, unsigned slot)
{
    if (heap_is_traced())
        heap_trace_free(slab_block(slab, slot));
    heap_profile_leave_slot(slab, slot);
}

void heap_forget_marked_span(struct span *span)
{
    if (heap_is_traced())
        heap_trace_free(span->base);
    heap_profile_leave_span(span);
}
