/* Chooses the profiler's samples: a Poisson process over the allocated bytes, exact, without a
 * counter on the fast path.
 *
 * With R the mean interval, a block of s bytes is a sample with probability 1 - exp(-s / R). A
 * Poisson process is the sum of independent ones, so every class has a clock of its own: the number
 * of its mallocs up to the next sample, drawn as ceil(E * R / s) with E exponential.
 *
 * Medium and large blocks take a slow path for each malloc, where the clock counts them. For a
 * small class the heap knows a bound: until the next slow path, the number of mallocs that are not
 * seen is at most unseen + granted:
 *  - unseen: free slots of the current slab when they were counted last, and slots that were freed
 *    since;
 *  - granted: frees until `frees_to_attention` of the slab becomes 0, which calls free_attend.
 *
 * The exact number of mallocs since the last count is unseen + granted - frees_to_attention - free
 * slots.
 *
 * Invariant of a small class that is not diverted: unseen + granted < left, the clock. When `left`
 * is too small for a useful grant, the class is diverted (hooks.h): each malloc takes the slow path
 * and is counted, up to the one that is due. Then a new number is drawn, and the class returns to
 * the fast path. A sample is an ordinary block with the mark of hooks.h.
 * Threads: the profiler is set once. Any thread switches it and sets its interval; each heap
 * follows on its next slow path. The clocks of a heap belong to its holder. Any thread may free a
 * sample: it reports to the profiler first and then changes the link byte.
 * Locking: heap held, for functions without another tag.
 * Not here: private heaps have no clocks, and their blocks are no samples. */
#ifndef CAIRN_HEAP_PROFILING_H
#define CAIRN_HEAP_PROFILING_H

#include "heap/hooks.h"

/* Turns the profiler on, with a mean interval in bytes, not 0. All heaps draw new numbers. A `seed`
 * of 0 takes the random numbers of the system.
 * Threads: any, one at a time. */
void heap_profile_start(const struct heap_profiler *profiler, uint64_t interval_bytes,
                        uint64_t seed);
/* Turns the profiler off. Threads: any. */
void heap_profile_stop(void);

/* Notes that `frees_to_attention` of the class's current slab became 0 and was renewed. */
void heap_profile_attend(struct heap *heap, unsigned size_class);
/* Notes that the current slab of the class, with that number of free slots, stops being current. */
void heap_profile_leave(struct heap *heap, unsigned size_class, unsigned free_slots);
/* Notes that a slab with that number of free slots became current. */
void heap_profile_enter(struct heap *heap, unsigned size_class, unsigned free_slots);
/* Notes that slots of the class's current slab were collected. */
void heap_profile_collect(struct heap *heap, unsigned size_class, unsigned slots);

/* Counts a block of the class, which the guards may have allocated, and samples it if it is due. */
void heap_profile_take(struct heap *heap, unsigned size_class, void *block, size_t asked_bytes);
/* Counts a new large block or a new length of one, and samples it if it is due. `heap` is this
 * thread's heap, held, or NULL if the thread has none. */
void heap_profile_large(struct heap *heap, struct span *span, size_t asked_bytes);

/* The value with which `frees_to_attention` of the class's current slab began. */
inline_always unsigned heap_profile_granted(const struct heap *heap, unsigned size_class)
{
    uint32_t granted = heap->profiling ? heap->profiling->clocks[size_class].granted : 0;
    return granted != 0 ? granted : (uint32_t)FREES_MAX;
}

#endif
