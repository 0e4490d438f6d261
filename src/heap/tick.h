/* What is due by age: pages that a decay interval did not need, runs that threads keep, free pages
 * inside slabs. Asked on slow paths, where no lock is held. */
#ifndef CAIRN_HEAP_TICK_H
#define CAIRN_HEAP_TICK_H

#include "heap/thread_heap.h"

/* What is due by age: pages_tick, and the runs that all threads keep. Any thread. */
void heaps_tick(void);

/* What to do once an interval about the slabs of other threads, and how what ended ones left ready
 * is given back. Once, at the start. */
void heaps_on_tick(void (*sweep)(void), bool (*trim_ended)(void));

/* Before more is taken than threads have: what an ended one left ready for the next goes back to
 * the pages. Whether there was anything. Any thread. */
bool heaps_trim_ended(void);

/* The same, and empties the caches of runs of all threads. */
bool heaps_empty_run_caches(void);

#endif
