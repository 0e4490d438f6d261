/* The quarantine of hardened builds: harden.h says what it is for. All of it is the holder's. */
#ifndef CAIRN_HEAP_QUARANTINE_H
#define CAIRN_HEAP_QUARANTINE_H

#include "heap/thread_heap.h"

/* A block that was taken back: into quarantine, and what it replaces becomes free. */
void quarantine_retain(struct heap *heap, struct span *slab, unsigned slot);

/* All of the quarantine becomes free. */
void quarantine_flush(struct heap *heap);

#endif
