/* The general heap for front/: every entry point without its libc name. errno is not changed.
 *
 * Allocating functions return NULL when out of memory, or if the size is above PTRDIFF_MAX. Misuse
 * is reported: see misuse_report.h.
 * Threads: any, at any time, also before constructors and after a thread's end. */
#ifndef CAIRN_HEAP_HEAP_H
#define CAIRN_HEAP_HEAP_H

#include "cairn/stats.h"
#include "heap/fast.h"
#include "heap/hooks.h"
#include "heap/lifecycle.h"
#include "heap/misuse_report.h"
#include "heap/private_heap.h"
#include "heap/profiling.h"
#include "heap/slab_lists.h"

void *heap_allocate_zeroed(size_t size_bytes);
/* Allocates a block at a multiple of `alignment_bytes`, a power of two. */
void *heap_allocate_aligned(size_t size_bytes, size_t alignment_bytes);
/* Resizes a block, which may move. `pointer` is not NULL and `size_bytes` not 0. When it returns
 * NULL, the block is unchanged. */
void *heap_resize(void *pointer, size_t size_bytes);

/* Does what heap_resize does, and returns the result of the caller's function `failed` when out of
 * memory. So the call can be the last of its caller, which needs no stack frame. */
typedef void *heap_resize_failed(void *pointer, size_t size_bytes);
void *heap_resize_or(void *pointer, size_t size_bytes, heap_resize_failed *failed);

/* Resizes a block in place; `pointer` is not NULL. Returns: whether the block has the size now. */
bool heap_resize_in_place(void *pointer, size_t size_bytes);

/* Allocates up to `count` blocks.
 * Returns: the number of blocks, below `count` when out of memory. */
size_t heap_allocate_batch(size_t count, size_t size_bytes, void **blocks);
/* Frees `count` pointers; NULL is ignored. */
void heap_free_batch(size_t count, void *const *blocks);

/* The largest size that takes no more memory than `size_bytes`. */
size_t heap_good_size(size_t size_bytes);

/* Does what heap_resize does, and makes all bytes from `old_bytes` on read zero. Bytes that the
 * block gives up, or leaves behind at its old address, are overwritten with zero. */
void *heap_resize_zeroed(void *pointer, size_t old_bytes, size_t size_bytes);

/* Gives the memory that this thread's heap keeps without need to the pages. */
void heap_idle(void);

/* The bytes of the block that the program may use; 0 for NULL. */
size_t heap_usable_size(const void *pointer);
/* Frees a block with the size and the alignment that were requested for it. */
void heap_free_sized(void *pointer, size_t size_bytes, size_t alignment_bytes);
/* Gives free memory back to the system, except for `keep_bytes`.
 * Returns: whether some memory was given back. */
bool heap_release(size_t keep_bytes);
/* Does all work that is due by age, however long it takes. */
void heap_housekeep(void);

struct heap_stats {
    struct page_stats pages;
    size_t guarded_bytes; /* in guarded blocks, which are outside the arenas */
    size_t guarded_blocks;
    size_t live_bytes; /* rounded sizes of all blocks in use, guarded ones included */
    size_t live_blocks;
    size_t large_bytes; /* in large and huge blocks */
    size_t large_blocks;
    size_t slab_bytes; /* pages of slabs */
    size_t heaps;      /* thread heaps, orphans included */
};
/* Reads the statistics. Other threads continue, so the values may not fit together. */
void heap_read_stats(struct heap_stats *stats);

/* Fills up to `count` rows, one for each class of slab blocks: see cairn/stats.h.
 * Returns: the number of classes. */
size_t heap_read_classes(cairn_heap_class_stats *rows, size_t count);
/* Fills up to `count` rows, one for each thread heap: see cairn/stats.h.
 * Returns: the number of thread heaps. */
size_t heap_read_threads(cairn_heap_thread_stats *rows, size_t count);

/* Checks the invariants of this thread's heap, private heaps and pages, in debug builds. */
void heap_verify_all(void);

/* Checks that the page layer counts as swept the pages that the slabs have noted. Not in the child
 * of a fork, see limits.h.
 * Threads: while no other thread allocates, frees or purges. */
void heap_verify_given(void);

#endif
