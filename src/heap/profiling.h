/* Which blocks the profiler hears of: a Poisson process over the bytes handed out, exact, without a
 * counter on the fast path.
 *
 * A block of s bytes is to be a sample with P = 1 - exp(-s / R), R the mean interval. A Poisson
 * process is the sum of independent ones, so every class has a clock of its own: the number of its
 * mallocs up to the next sample, drawn as ceil(E * R / s) with E exponential. Where each malloc
 * takes a slow path (medium and large blocks) the clock counts them. For a small class the heap
 * knows a bound in advance: until the next slow path, what goes by unseen is at most
 *
 *   unseen + granted,  unseen:  free slots of the current slab when they were counted last, and
 *                               slots that were freed since,
 *                      granted: frees until the slab's `until` runs out, which calls heap_attend
 *
 * and that is held below `left`; what went by exactly is unseen + granted - until - free slots.
 * When `left` has come so near that no grant is worth while, the class is armed: its sizes show the
 * class whose slab is always empty, so each malloc takes the slow path and is counted, to the one
 * that is due. Then a new number is drawn and the fast path is back. So a sample is the very malloc
 * that the process hits, by whatever site, and no estimate.
 *
 * A sample stays where it is, an ordinary block. Its link byte says PROFILED, in place of LIVE; the
 * fast path of free takes that for no block in use, and the slow path behind it reports the free
 * and goes on. Large and guarded blocks carry the mark in `until` of their span.
 *
 * Invariant of a small class that is not armed: unseen + granted < left.
 *
 * First-class heaps have no clocks: their blocks are no samples.
 *
 * Threading: the profiler is set once; it is switched and its interval set by any thread, and each
 * heap follows on its next slow path. A heap's clocks are its holder's. Blocks may be freed by any
 * thread: whoever frees reports to the profiler first, then changes the link byte.
 */
#ifndef CAIRN_HEAP_PROFILING_H
#define CAIRN_HEAP_PROFILING_H

#include "heap/class_table.h"

struct heap_profiler {
    /* A sample, handed out just now; `size_bytes` as it was rounded. True: its free is reported. */
    bool (*allocated)(void *block, size_t asked_bytes, size_t size_bytes);
    /* It is about to be freed. Perhaps by two threads at once. */
    void (*freed)(void *block);
    /* It goes by another name from now on: see heap_profile_hold. */
    void (*renamed)(void *from, void *to);
};

/* On, with a mean interval in bytes, not 0; heaps draw anew. `seed` 0 takes the system's random
 * numbers. Any thread, one at a time. */
void heap_profile_start(const struct heap_profiler *profiler, uint64_t interval_bytes,
                        uint64_t seed);
void heap_profile_stop(void);

/* The current slab of a small class ran out of its count of frees, which has been renewed. */
void heap_profile_attend(struct heap *heap, unsigned size_class);
/* It stops being current with so many free slots; another one, with so many, became current. */
void heap_profile_leave(struct heap *heap, unsigned size_class, unsigned free_slots);
void heap_profile_enter(struct heap *heap, unsigned size_class, unsigned free_slots);
/* So many slots of it were collected. */
void heap_profile_collect(struct heap *heap, unsigned size_class, unsigned slots);

/* A block of the class was taken for a program; not from a slab, if it is guarded. The holder's. */
void heap_profile_take(struct heap *heap, unsigned size_class, void *block, size_t asked_bytes,
                       bool guarded);
/* A large block was made, or has another length now. `heap` is this thread's; NULL: it has none. */
void heap_profile_large(struct heap *heap, struct span *span, size_t asked_bytes);

/* Reports to the profiler that a sample is about to be freed, and takes its mark away. Any thread
 * that is about to free it. */
void heap_profile_leave_slot(struct span *slab, unsigned slot);
void heap_profile_leave_span(struct span *span);

/* A large sample is about to be resized, which may fail, and which may give its address to another
 * block. While it is held it goes by a name that no block has. Its realloc's thread. */
struct span_sample {
    void *name;   /* NULL: it is no sample */
    size_t pages; /* heap_profile_hold_block: its length then, unless a slab has it */
};
struct span_sample heap_profile_hold(struct span *span);
/* It stays what it was; or it is another block now, with a length of its own, and perhaps a sample
 * again, of `asked_bytes`. */
void heap_profile_resume(struct span *span, struct span_sample held);
void heap_profile_resized(struct heap *heap, struct span *span, struct span_sample held,
                          size_t asked_bytes);

/* The same of any block, for the tracer: it loses its mark, so that nobody hears of its free. Then
 * where it is; NULL: it did not move. A sample that is what it was has the mark again, another
 * one's ends. A large block that is where it was is held, both times: see large_hold. */
struct span_sample heap_profile_hold_block(struct span *span, void *block);
void heap_profile_let_go_block(void *block, void *now, struct span_sample held);

/* Marks a block that may have been freed since it was handed out: a slab's, unless it was; a large
 * one, which is held. */
void heap_profile_mark_again(struct span *span, const void *block);

/* What `until` of the current slab of a small class began with. */
inline_always unsigned heap_profile_granted(const struct heap *heap, unsigned size_class)
{
    uint32_t granted = heap->profiling ? heap->profiling->clocks[size_class].granted : 0;
    return granted != 0 ? granted : UINT8_MAX;
}

#endif
