/* The fast paths of hardened builds, in place of fast.h's: step for step the same, with the
 * hardening between. */
#ifndef CAIRN_HEAP_HARDEN_FAST_H
#define CAIRN_HEAP_HARDEN_FAST_H

#include "page/page.h"

void *harden_malloc(size_t size_bytes, void *(*slow)(size_t));
void *harden_malloc_medium(struct span *slab, size_t size_bytes); /* NULL: it has no free slot */
void harden_free(void *pointer);

/* A free of a block of a slab of this thread's. `slow` is what to do when it is no block in use, or
 * not of exactly that size. */
void harden_free_sized(void *pointer, struct span *slab, size_t size_bytes, size_t alignment_bytes,
                       void (*slow)(void *, size_t, size_t));

#endif
