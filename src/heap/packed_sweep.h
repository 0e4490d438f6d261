/* Giving back free pages inside packed slabs. See packed_sweep.c. */
#ifndef CAIRN_HEAP_PACKED_SWEEP_H
#define CAIRN_HEAP_PACKED_SWEEP_H

#include "heap/packed.h"

/* Of the heap's packed slabs with free blocks, pages on which no block lives and none did when it
 * was looked last. With `all`: whatever is free now. The holder's, where no lock is held. */
void packed_sweep(struct heap *heap, bool all);

#endif
