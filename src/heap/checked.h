/* From a pointer that a caller claims to be a block to what it is.
 * When it is none, that is refused: refuse.h says what follows. Then the caller leaves everything
 * as it is.
 */
#ifndef CAIRN_HEAP_CHECKED_H
#define CAIRN_HEAP_CHECKED_H

#include "heap/slab.h"

enum { SLOT_REFUSED = UINT32_MAX };
#define INDEX_REFUSED SIZE_MAX

/* The slot of a block in use within its slab, or SLOT_REFUSED. */
unsigned checked_slot(const void *pointer, struct span *slab, const char *operation);

/* The number of a block in use within its packed slab, or INDEX_REFUSED. */
size_t checked_packed(const void *pointer, struct span *slab, const char *operation);

/* The span of a block in use, slab or large; NULL when it was refused. */
struct span *checked_span(const void *pointer, const char *operation);

#endif
