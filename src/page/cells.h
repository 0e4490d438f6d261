/* Descriptors of the allocators beside the heap: pieces of metadata memory, apart from the blocks
 * that they describe, recycled by kind but never given back. A stale handle can read an old
 * descriptor, never anything else, and finds it as it was given back.
 *
 * Threading: any thread, without a lock, so it works in any state of a fork.
 */
#ifndef CAIRN_PAGE_CELLS_H
#define CAIRN_PAGE_CELLS_H

#include "base/compiler.h"

/* One kind. Statically allocated. */
struct cell_list {
    uintptr_t head;          /* atomic: see cells.c */
    size_t descriptor_bytes; /* const: a multiple of 8 */
};

/* A descriptor: its contents are those it was given back with, or zero. NULL when memory is out. */
void *cell_take_from(struct cell_list *list);
void cell_give_to(struct cell_list *list, void *descriptor);

#endif
