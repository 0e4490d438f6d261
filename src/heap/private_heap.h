/* Private heaps: heaps that the program makes, see include/cairn/private_heap.h. This module makes
 * and ends them, allocates their blocks, and checks their handles. private_state.h has the fields,
 * the lock, the slabs, the limit, and the notes of large blocks.
 *
 * A private heap is a struct heap that no thread owns. An allocating thread holds its lock for the
 * time of a few stores. Frees take no lock: to every thread the blocks belong to another heap, so
 * remote.c posts their slabs, and the next allocation collects them. The heap has a list of its
 * slabs and one of its large blocks: its end gives back all of them, with all blocks in use.
 *
 * No system call is made under the lock. So heap_take_slow makes no slab for a private heap: the
 * caller takes a slab from the pages without the lock and adds it afterwards. A slab that is
 * retired waits in `retired` until the lock is released.
 *
 * Limit: `held_bytes` counts the pages of slabs and large blocks. A thread that takes pages adds
 * them first, by compare-and-swap, so the limit holds at every instant. Functions that take memory
 * return NULL above the limit, or when out of memory.
 *
 * A struct private_heap is never given back: after its end it is used for a later heap. The handle
 * that the program has is the address with a serial number in its low bits, which changes with each
 * use. So the handle of an ended heap is detected, unless 62 other heaps had that address since.
 *
 * Fork: fork holds all these locks (page/page.h), so every private heap is whole in the child.
 * Blocks that other threads freed while the kernel copied the pages are found as in a thread's own
 * heap (heap_look_after_fork).
 * Threads: all operations may run together on one heap, except its end, with which no other may
 * run. They take the heap's lock themselves.
 *
 * A private heap has no packed slabs, guarded blocks, samples or kept slabs. The runs of its large
 * blocks are kept by the threads that free them, for any block. */
#ifndef CAIRN_HEAP_PRIVATE_HEAP_H
#define CAIRN_HEAP_PRIVATE_HEAP_H

#include "heap/private_state.h"

struct private_heap *private_heap_new(const cairn_private_heap_options *options);

/* Ends the heap with all its blocks: a pointer to one of them is a wrong pointer afterwards. */
void private_heap_end(struct private_heap *private_heap);

void *private_heap_handle(const struct private_heap *private_heap);
/* The heap of a handle. Dies when that heap has ended. */
struct private_heap *private_heap_of_handle(const void *handle);

void *private_heap_alloc(struct private_heap *private_heap, size_t size_bytes,
                         size_t alignment_bytes);
void *private_heap_alloc_zeroed(struct private_heap *private_heap, size_t size_bytes);

/* Checks that `pointer` is a block in use of the heap, and reports any other for `operation`.
 * Returns: false after the report of an invalid free. */
bool private_heap_checks(struct private_heap *private_heap, const void *pointer,
                         const char *operation);

/* Gives back the memory that all private heaps keep without need. */
void private_heaps_trim(void);

/* Reads the statistics of the heap. Collects freed blocks first. */
void private_heap_read_stats(struct private_heap *private_heap, cairn_private_heap_stats *stats);

/* Checks all private heaps, in debug builds. */
void private_heaps_verify(void);

#endif
