/* The slow half of free, which the fast paths of fast.h call, and the fast paths of hardened
 * builds. The latter take the steps of fast.h, with the hardening (harden.h) in between. */
#ifndef CAIRN_HEAP_FREE_H
#define CAIRN_HEAP_FREE_H

#include "page/page.h"

/* Frees a pointer that is no block of this thread's slabs: a block of another thread, a packed,
 * large or guarded block, NULL, or none of these, which is reported. */
void free_slow(void *pointer, struct span *span);
/* Reports a pointer outside the page map. */
void free_foreign(void *pointer);
/* Handles a slab whose `frees_to_attention` has become 0: see slab.h. */
void free_attend(struct span *slab);
/* Handles a pointer into this thread's slab that is no LIVE block. A marked block is freed, NULL is
 * ignored, and any other pointer is reported. `slot` is the result of slab_slot. */
void free_reject(uint32_t slot, struct span *slab);

/* malloc of hardened builds: serves small requests, and calls `slow` for the others. */
void *harden_malloc(size_t size_bytes, void *(*slow)(size_t));
/* Takes a block of the current slab of a medium class; NULL when the slab has no free slot. */
void *harden_malloc_medium(struct span *slab, size_t size_bytes);
/* free of hardened builds, for any pointer. */
void harden_free(void *pointer);

/* Frees a block of a slab that this thread's heap owns, with its size. Calls `slow` if it is no
 * block in use, or was not requested with exactly that size. */
void harden_free_sized(void *pointer, struct span *slab, size_t size_bytes, size_t alignment_bytes,
                       void (*slow)(void *, size_t, size_t));

#endif
