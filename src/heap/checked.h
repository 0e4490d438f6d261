/* From a pointer that a caller claims to be a block to what it is; dies when it is none. */
#ifndef CAIRN_HEAP_CHECKED_H
#define CAIRN_HEAP_CHECKED_H

#include "heap/slab.h"

/* Dies: the block that `operation` is to be done to is free. */
no_return void die_freed(const void *block, const struct span *slab, const char *operation);

/* The slot of a block in use within its slab. */
unsigned checked_slot(const void *pointer, struct span *slab, const char *operation);

/* The number of a block in use within its packed slab. */
size_t checked_packed(const void *pointer, struct span *slab, const char *operation);

/* The span of a block in use, slab or large. */
struct span *checked_span(const void *pointer, const char *operation);

#endif
