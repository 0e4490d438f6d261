/* What the frame allocators share: their memory, their descriptors, and how they fail.
 *
 * Descriptors (of allocators, blocks and chunks) lie in metadata memory, apart from the blocks that
 * they describe, and are recycled by kind but never given back: a stale handle can read an old
 * descriptor, never anything else. The lists are lock-free stacks, so they work in any state of a
 * fork.
 *
 * Runs come from the page layer, marked SPAN_RUN there, so that the heap's free takes none of them
 * for a block.
 *
 * Threading: any thread. Failure: NULL, and errno is the caller's (frame_no_memory).
 */
#ifndef CAIRN_FRAME_FRAME_H
#define CAIRN_FRAME_FRAME_H

#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/memory_marks.h"
#include "os/os.h"
#include "page/page.h"

enum cell_kind { CELL_STACK, CELL_STACK_BLOCK, CELL_FIFO, CELL_RING, CELL_RING_CHUNK, CELL_KINDS };

enum {
    CELL_BYTES = 504,      /* of a descriptor at most; 8 more are for the list */
    CELL_FIFO_BYTES = 632, /* of a FIFO's */
    FRAME_DECAY_MS = 500,  /* what an allocator did not need for so long goes back */
    FRAME_NAME_BYTES = 24, /* of an allocator's name, its end included */
};

/* A descriptor, see page/page.h: its contents are those it was given back with, or zero. NULL when
 * memory is out. */
void *cell_take(enum cell_kind kind);
void cell_give(enum cell_kind kind, void *descriptor);

/* Whether allocators made now check every block: debug builds, and any build under a memory
 * checker. */
bool frame_checked(void);

/* Whether a decay interval has passed since the start, which then is now. */
bool frame_interval_over(uint64_t *interval_start_ms);

/* Asks the program after a failure, by the function of the allocator's options, NULL for none: true
 * to try again. */
bool frame_try_again(bool (*out_of_memory)(void *, size_t), void *context, size_t size_bytes);

/* Sets errno to ENOMEM; returns NULL. And EINVAL. */
void *frame_no_memory(void) cold;
void *frame_invalid(void) cold;

void frame_copy_name(char *to, const char *name, const char *otherwise);

#endif
