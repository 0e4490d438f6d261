/* Allocating large blocks of first-class heaps, and their end with the heap. */
#ifndef CAIRN_HEAP_PROGRAM_LARGE_H
#define CAIRN_HEAP_PROGRAM_LARGE_H

#include "heap/program_state.h"

/* NULL when memory is out, or the limit does not allow it. No lock held. The second gives one that
 * reads zero, which no kept run does: pages_clear knows of no block's use but the last. */
struct span *program_allocate_large(struct program_heap *program, size_t size_bytes,
                                    size_t alignment_bytes);
struct span *program_allocate_large_zeroed(struct program_heap *program, size_t size_bytes);

/* Frees the blocks of all notes; the heap is no one else's any more. No lock held. */
void program_end_large(struct program_heap *program);

#endif
