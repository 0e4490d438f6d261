/* Which blocks a tracer hears of: all of them.
 *
 * While a tracer is set every small class is armed (see class_table.h): each malloc takes the slow
 * path, whose end reports the block. A block that was reported has the mark of the profiler's
 * samples, LINK_PROFILED or `until` of its span, so that its free leaves the fast path by itself
 * and is reported first. A heap that is not traced pays nothing for it on the fast path.
 *
 * What is reported when is the tracer's order of events: a block after it was handed out, a free
 * before it takes effect. A resize that may move reports its beginning before the old block may be
 * another thread's, and its end. See docs/TRACE-FORMAT.md.
 *
 * Not reported: blocks of first-class heaps, and those of 0 bytes where these have no memory.
 *
 * Threading: the tracer is set once, before there are threads; it is stopped by any thread, and
 * each heap goes back to its fast path with its next malloc of each class.
 */
#ifndef CAIRN_HEAP_TRACING_H
#define CAIRN_HEAP_TRACING_H

#include "heap/profiling.h"

struct heap_tracer {
    /* Returns the block, as whoever hands it out last does. */
    void *(*allocated)(void *block, size_t asked_bytes, size_t alignment_bytes, bool zeroed);
    void (*freed)(void *block, bool resize); /* `resize`: at the beginning of one */
    /* `began`: this thread has reported its beginning. Then NULL: nothing has happened to it. */
    void (*resized)(void *block, size_t asked_bytes, bool began);
};

void heap_trace_start(const struct heap_tracer *tracer);
void heap_trace_stop(void);

/* A block was handed out; whoever did so, only when traced. Not NULL. Returns it. */
void *heap_trace_block(void *block, size_t asked_bytes, size_t alignment_bytes, bool zeroed);

/* Reports the free of a sample, or of a block that is traced, and takes its mark away. Any thread
 * that is about to free it. */
void heap_forget_marked_slot(struct span *slab, unsigned slot);
void heap_forget_marked_span(struct span *span);

/* A block that has the mark is about to be freed; it loses the mark after. */
void heap_trace_free(void *block);

/* In this order, only when traced: the first before the block may move, the second after it with
 * what the first gave; `now` NULL: the block is what and where it was. Or the third, of a block
 * that stayed. A large block that is where it was is held, but for the third. */
struct span_sample heap_trace_resize_begin(void *block);
void heap_trace_resize_end(void *block, void *now, size_t asked_bytes, struct span_sample held);
void heap_trace_resized(void *block, size_t asked_bytes);

#endif
