/* Giving back pages inside a slab on which no block lives, and a heap's own slabs with such pages.
 * Why that is allowed is argued in heap_sweep.c, which does it for other threads. */
#ifndef CAIRN_HEAP_SLAB_SWEEP_H
#define CAIRN_HEAP_SLAB_SWEEP_H

#include "heap/thread_heap.h"

inline_always bool class_is_swept(unsigned size_class) { return size_class < SIZED_CLASSES; }

enum slab_unused { SLOTS_NOT_USED, SLOTS_ALL_REMOTE };

/* Pages of the slab on which no slot is in use; or on which all slots were freed by other threads.
 * A bit for each. */
uint64_t slab_free_pages(const struct span *slab, enum slab_unused unused);

/* Gives free pages of a slab that says PURGED; whether any went. */
bool slab_purge_aside(struct span *slab);

/* Of the heap's lists, slabs that did not change since the sweep before. The holder's: once a decay
 * interval, and when its slabs have grown by an eighth. */
void sweep_heap(struct heap *heap);

#endif
