/* Runs outside all arenas, each with a mapping of its own: huge blocks, and whatever is taken while
 * the page lock is frozen for a fork. Threading: any thread, no lock held.
 */
#ifndef CAIRN_PAGE_DETACHED_H
#define CAIRN_PAGE_DETACHED_H

#include "page/span.h"

/* The page map covers its first `covered_bytes`. NULL when memory is out. */
struct span *detached_take(size_t pages, size_t alignment_bytes, unsigned cold_64,
                           size_t covered_bytes);
void detached_give(struct span *span);

#endif
