/* The table of classes by size that the fast path of malloc reads, and who watches it.
 *
 * A class whose mallocs somebody wants to see is armed: its sizes show class CLASS_COUNT, whose
 * current slab is always the empty one, so each of them takes the slow path. Sampling arms one
 * class at a time, or all for good (sampling.h), the profiler some (profiling.h), the tracer all
 * (tracing.h), sites all for good (by_site.h).
 *
 * Threading: a heap's table is its holder's; who watches is set and cleared by any thread.
 */
#ifndef CAIRN_HEAP_CLASS_TABLE_H
#define CAIRN_HEAP_CLASS_TABLE_H

#include "heap/thread_heap.h"

/* What makes slow paths look closer. */
enum {
    WATCH_GUARDED = 1,  /* a sampler is set: sampling.h */
    WATCH_PROFILE = 2,  /* the profiler is on */
    WATCH_PROFILED = 4, /* it was: heaps may have armed classes */
    WATCH_TRACE = 8,    /* a tracer is set: tracing.h */
    WATCH_TRACED = 16,  /* it was: heaps may have armed classes */
    WATCH_SITES = 32,   /* blocks are served by their sites: by_site.h */
};
extern hidden_data uint32_t heap_watch; /* atomic: bits are set and cleared by any thread */

inline_always bool heap_is_watched(void) { return unlikely(load_acquire(&heap_watch) != 0); }

/* Whether one is set, or was. */
inline_always bool heap_is_traced(void)
{
    return unlikely((load_acquire(&heap_watch) & (WATCH_TRACE | WATCH_TRACED)) != 0);
}

/* Whether the class is a small one that is armed. */
inline_always bool heap_profile_arms(const struct heap *heap, unsigned size_class)
{
    return heap->profiling != NULL && size_class < SMALL_CLASSES &&
           (heap->profiling->armed >> size_class & 1) != 0;
}

/* The next mallocs of a small class take the slow path, until it is disarmed or another one is
 * armed. The holder's. */
void heap_arm(struct heap *heap, unsigned size_class);
void heap_disarm(struct heap *heap);

/* The fast path sees the small class, or the empty slab while it is armed: by the functions above,
 * or by the profiler. The holder's. */
void heap_show_class(struct heap *heap, unsigned size_class);

/* A new heap's tables: no slab is current yet. */
void heap_set_up_classes(struct heap *heap);

/* All small classes for good, of this thread's heap and of heaps to come. Before there are threads.
 */
void heap_arm_all(void);
/* The same for the tracer, which may end; other heaps follow by heap_show_class. */
void heap_arm_traced(bool on);

void class_table_verify(const struct heap *heap);

#endif
