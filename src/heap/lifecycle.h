/* The life of heaps: they are made, adopted by new threads, held for a moment, left by threads that
 * end, and inherited through a fork (thread_heap.h). Also the visit to all heaps, and the start of
 * the heap layer.
 *
 * The heap layer must be started (heap_start) before any other call but heap_watch_threads. */
#ifndef CAIRN_HEAP_LIFECYCLE_H
#define CAIRN_HEAP_LIFECYCLE_H

#include "heap/thread_heap.h"

/* Registers the function that is called when a thread ends. Called when the library starts, while a
 * key of thread-specific data is still available, and when the heap starts, which may be earlier.
 * Threads: any. */
void heap_watch_threads(void);

/* Gives the calling thread a heap, by adopting one or making one.
 * Returns: NULL when out of memory, when the thread has ended, or when its end could not be noticed
 * because no key of thread-specific data was left. */
struct heap *heap_enter(void);

/* The calling thread's heap; heap_enter gives it one if it has none.
 * Returns: NULL where heap_enter does. */
inline_always struct heap *heap_at_hand(void)
{
    return thread_heap == &no_heap ? heap_enter() : thread_heap;
}

/* Holds a heap for one operation of a thread that has none. heap_return must follow.
 * Returns: NULL when out of memory. Threads: any. */
struct heap *heap_hold_any(void);

/* Moves a slab to the calling thread's heap and collects it. The slab was `ended`'s when the caller
 * read its owner.
 * Returns: false if the calling thread has no heap, if it has a listed slab of that class and
 * this slab has slots that were never handed out, if another thread holds `ended` or purges the
 * slab, or if the slab is in a mailbox or was retired.
 * Threads: any. Cost: constant. */
bool heap_reclaim(struct heap *ended, struct span *slab);

/* Takes over the heaps in the child of a fork. The calling thread's heap stays in use; the slabs of
 * all others are inherited.
 * Threads: the child of a fork.
 * Cost: a few stores, because most children start another program next. */
void heaps_after_fork(void);

/* Sets the function that heaps_after_fork calls at its end, for private heaps. */
void heaps_on_fork(void (*in_child)(void));

/* Does a part of the visit to all heaps, which is due once a decay interval: see lifecycle.c.
 * Returns: true if a part was done and another one is left.
 * Threads: any, no lock held. Cost: bounded by SWEEP_WORK. */
bool heaps_visit(bool interval_ends);

/* Gives back what the heaps of ended threads keep, and empties the run caches of all threads.
 * Returns: true if there was any memory to give back.
 * Threads: any, no lock held. */
bool heaps_empty_run_caches(void);

/* The tracer's state of the calling thread. Returns: NULL where heap_enter does. */
struct traced_thread *heap_traced_thread(void);

/* Starts the heap layer and the layers below, before the first block. Further calls do nothing.
 * Threads: any. */
void heap_start(void);

#endif
