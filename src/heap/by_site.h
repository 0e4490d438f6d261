/* Blocks by site: which blocks come from a heap of their group, as the stack of their allocation
 * says. `sites:FILE` turns it on (watch/site_groups.c), and it stays on.
 *
 * Every small class is armed (see class_table.h), so that each malloc takes the slow path and is
 * asked for here. A heap that serves no sites pays nothing for it on the fast path. Such a block is
 * one of a first-class heap, which the program does not know of: any thread frees it, and it grows
 * where it is, in its heap, or as an ordinary block. A group asks for nothing but to lie apart, so
 * whatever stands in the way makes an ordinary block:
 *
 *  - the group's lock is not to be had (program_try_allocate): a fork has it, or this is a signal
 *    handler, whose thread may be its holder;
 *  - this thread looks for a site already: what the C runtime allocates while it walks a stack;
 *  - this thread has no heap yet, or none any more;
 *  - no memory for another slab;
 *  - a large block, which has pages of its own anyway; one of 0 bytes; one for a guarded slot.
 *
 * Threading: set once, before there are threads.
 */
#ifndef CAIRN_HEAP_BY_SITE_H
#define CAIRN_HEAP_BY_SITE_H

#include "heap/program_heap.h"

/* The heap of the group that this call's stack belongs to; NULL: of none. No lock of the heap is
 * held. May allocate after all: then it is not asked again. */
typedef struct program_heap *site_group_find(void);

void heap_serve_sites(site_group_find *find);

/* NULL: an ordinary block is due. Only when sites are served. */
void *heap_allocate_by_site(size_t size_bytes, size_t alignment_bytes);

#endif
