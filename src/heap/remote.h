/* Frees of blocks that belong to another thread's heap. */
#ifndef CAIRN_HEAP_REMOTE_H
#define CAIRN_HEAP_REMOTE_H

#include "heap/thread_heap.h"

/* Dies unless `pointer` is a block in use of `slab`, which is `heap`'s. Any thread, lock-free. */
void remote_free(void *pointer, struct heap *heap, struct span *slab);

/* A slab that the caller marked QUEUED: into the mailbox of its heap. Any thread. */
void remote_mail(struct heap *heap, struct span *slab);

/* Before the remote words, or bits, of a frozen slab (see thread_heap.h) are looked at. Any thread.
 */
void slab_begin_frozen(struct span *slab);

#endif
