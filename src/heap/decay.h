/* Decay: the work that is due by age. Pages that a decay interval did not need are purged
 * (page/purge.h). Once an interval all heaps are visited (lifecycle.c): what they keep without use
 * is given back, and then free pages inside slabs are purged (sweep.h). This file has the functions
 * that slow paths call; each call does a part of what is due.
 */
#ifndef CAIRN_HEAP_DECAY_H
#define CAIRN_HEAP_DECAY_H

#include "heap/thread_heap.h"

/* Does a part of the work that is due by age: purges pages, and visits heaps.
 * Threads: any, no lock held.
 * Cost: bounded by SWEEP_WORK and, for pages that the page layer purges, as in purge.h. */
void heaps_decay(void);

/* Does a part of the visit to all heaps, if it is due.
 * Returns: true if a part was done and another one is left.
 * Threads: any, no lock held.
 * Cost: bounded by SWEEP_WORK. */
bool heaps_visit_due(void);

/* Sets the functions that this file calls in lifecycle.c. `visit` does a part of the visit to all
 * heaps, unless another thread does; `*left` says whether more of it is left. `trim_ended` gives
 * back the memory that the heaps of ended threads keep, and returns true if there was any.
 * Threads: one, at the start. */
void heaps_on_decay(bool (*visit)(bool *left), bool (*trim_ended)(void));

/* Gives back the memory that the heaps of ended threads keep, and empties the run caches of all
 * threads.
 * Returns: true if there was any memory to give back.
 * Threads: any, no lock held. */
bool heaps_empty_run_caches(void);

#endif
