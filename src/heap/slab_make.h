/* A new slab: pages, a header, and from then on a heap's. */
#ifndef CAIRN_HEAP_SLAB_MAKE_H
#define CAIRN_HEAP_SLAB_MAKE_H

#include "heap/thread_heap.h"

/* A new slab of the class for `heap`; NULL when memory is out. Where that took memory that nothing
 * held before, what the heap's thread keeps goes to the pages. The same in two steps: the first
 * takes the pages, any thread's, and says whether they are new; the second is the holder's, without
 * a system call. */
struct span *slab_make(struct heap *heap, unsigned size_class);
struct span *slab_take(unsigned size_class, bool *is_new);
void slab_open(struct heap *heap, struct span *slab);

#endif
