/* First-class heaps: heaps that the program makes, see include/cairn/heaps.h.
 *
 * A program's heap is a struct heap that no thread has: whoever allocates from it holds its lock
 * for the time of a few stores. Frees take no lock: to every thread its blocks are another heap's,
 * so remote.c brings them home, and they are collected by whoever allocates next. Its slabs form a
 * list, and so do its large blocks (program_notes.h): the end of the heap gives back both lists,
 * whatever is in use in them.
 *
 * No system call under the lock. So heap_refill finds no new slab here: it is taken from the pages
 * before and added. And a slab that is retired waits in `leaving` until the lock is free.
 *
 * Limit: `held_bytes` counts the pages of slabs and large blocks. Whoever takes pages adds to it
 * first, by compare-and-swap, so the limit holds at every instant.
 *
 * Heaps are never given back: one that ended is used for a later one. The handle that the program
 * has is the address with a serial number in its low bits, another one each time, so that a handle
 * of a heap that has ended is found out, unless 62 others had the same address since.
 *
 * Fork: fork holds all these locks (page/fork_locks.h), so every heap is whole in the child. What
 * other threads freed while the kernel copied the pages is looked for as in a thread's own heap.
 *
 * Not here: packed slabs, sampling and kept slabs. Runs of its large blocks are kept by the threads
 * that free them, for any block.
 *
 * Which operations may run together: all of them, but the end of a heap with nothing else on it.
 */
#ifndef CAIRN_HEAP_PROGRAM_HEAP_H
#define CAIRN_HEAP_PROGRAM_HEAP_H

#include "heap/program_limit.h"

struct program_stats {
    size_t live_bytes, live_blocks, large_bytes, large_blocks, slab_bytes;
    size_t held_bytes, peak_bytes, limit_bytes, refusals;
};

/* A heap without blocks. NULL when memory is out. */
struct program_heap *program_make(const struct program_options *options);

/* Ends it with all its blocks: afterwards a pointer to one is a wrong pointer. */
void program_end(struct program_heap *program);

/* The handle, and back; dies when it is that of a heap that has ended. */
void *program_handle(const struct program_heap *program);
struct program_heap *program_of_handle(const void *handle);

/* NULL when memory is out, or the limit does not allow it. */
void *program_allocate(struct program_heap *program, size_t size_bytes, size_t alignment_bytes);
void *program_allocate_zeroed(struct program_heap *program, size_t size_bytes);
/* Small and medium blocks only. NULL likewise, and where the lock is held for some time. */
void *program_try_allocate(struct program_heap *program, size_t size_bytes, size_t alignment_bytes);

/* That of a block that `operation` is to be done to; likewise. Whether the block is this heap's,
 * whose handle a message names. What is no block, or another heap's, is refused, see refuse.h. */
struct program_heap *program_of_block(const void *pointer, const char *operation);
bool program_checks(struct program_heap *program, const void *pointer, const char *operation,
                    const void *handle);

/* Gives back what all of them keep without need. Any thread. */
void programs_trim(void);

void program_read_stats(struct program_heap *program, struct program_stats *stats);

void programs_verify(void);

#endif
