/* From a pointer that a caller claims to be a block to what it is.
 *
 * When it is none, that is reported and the process ends; after a wrong free it goes on, if the
 * option on_error says so. Then the caller leaves everything as it is. Hardened builds always end.
 */
#ifndef CAIRN_HEAP_CHECKED_H
#define CAIRN_HEAP_CHECKED_H

#include "heap/heap.h"
#include "heap/slab.h"

/* What `operation` is to be done to is no block: finds out what it is. */
void refuse_pointer(const void *pointer, const char *operation) cold;

/* The block that `operation` is to be done to is free. */
void refuse_freed(const void *block, const struct span *slab, const char *operation);

enum { SLOT_REFUSED = UINT32_MAX };
#define INDEX_REFUSED SIZE_MAX

/* The slot of a block in use within its slab, or SLOT_REFUSED. */
unsigned checked_slot(const void *pointer, struct span *slab, const char *operation);

/* The number of a block in use within its packed slab, or INDEX_REFUSED. */
size_t checked_packed(const void *pointer, struct span *slab, const char *operation);

/* The span of a block in use, slab or large; NULL when it was refused. */
struct span *checked_span(const void *pointer, const char *operation);

#endif
