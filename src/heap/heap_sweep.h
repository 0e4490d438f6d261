/* Sweeping: pages inside slabs on which no block lives go back to the system, whoever the owner is.
 * See heap_sweep.c. */
#ifndef CAIRN_HEAP_HEAP_SWEEP_H
#define CAIRN_HEAP_HEAP_SWEEP_H

#include "heap/thread_heap.h"

/* Orphans likewise; and what others freed of the blocks of heaps whose owners did not look at it
 * for a decay interval. Once an interval, any thread. */
void sweep_others(void);

/* All slabs that are aside, of heaps whose owners took no slow path since then, whatever can be
 * given back of them. Returns whether all owners were so. Any thread; cost: a look at every slab.
 */
bool sweep_idle(uint64_t since_ms);

/* All heaps, whatever can be given back now; whether there was any. Any thread. */
bool sweep_all(void);

#endif
