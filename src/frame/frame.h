/* The common parts of the frame allocators (stack, FIFO, ring): descriptors, decay intervals, and
 * failures.
 *
 * Descriptors of allocators, blocks and chunks are in metadata memory, separate from the memory
 * that they describe. Descriptors are recycled by kind and never returned to the system, so an
 * outdated handle can read an old descriptor and nothing else. The lists of free descriptors are
 * lock-free stacks, so they work in any state of a fork. Runs of pages come from run_take of the
 * page layer, which marks them SPAN_RUN, so the heap's free takes none of them for a block.
 *
 * Failures are returned as NULL. The public functions set errno, with frame_no_memory and
 * frame_invalid.
 *
 * Threads: any.
 */
#ifndef CAIRN_FRAME_FRAME_H
#define CAIRN_FRAME_FRAME_H

#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/memory_marks.h"
#include "page/page.h"

enum descriptor_kind {
    DESCRIPTOR_STACK,
    DESCRIPTOR_STACK_BLOCK,
    DESCRIPTOR_FIFO,
    DESCRIPTOR_RING,
    DESCRIPTOR_RING_CHUNK,
    DESCRIPTOR_KINDS
};

enum {
    DESCRIPTOR_BYTES_MAX = 504, /* maximum size of a descriptor; 8 more bytes are for the list */
    DESCRIPTOR_FIFO_BYTES_MAX = 632, /* maximum size of a FIFO's descriptor */
    FRAME_DECAY_MS = 500,  /* an allocator returns memory that it did not need for this time */
    FRAME_NAME_BYTES = 24, /* of an allocator's name, with the terminating 0 */
};

/* Takes a descriptor (see page/page.h). The contents of the descriptor are those with which it was
 * given back, or zeros.
 * Returns: NULL when out of memory. */
void *descriptor_take(enum descriptor_kind kind);

/* Gives a descriptor back for the next descriptor_take of its kind. */
void descriptor_give(enum descriptor_kind kind, void *descriptor);

/* Whether new allocators check every block: in debug builds, and in any build under a memory
 * checker. */
bool frame_checked(void);

/* Whether a decay interval has passed since *interval_start_ms, which then becomes the current
 * time. */
bool frame_interval_over(uint64_t *interval_start_ms);

/* Calls the program's out-of-memory function after a failure. It keeps errno.
 * Returns: true when the allocator must try again; false without a function. */
bool frame_try_again(bool (*out_of_memory)(void *, size_t), void *context, size_t size_bytes);

/* Sets errno to ENOMEM.
 * Returns: NULL. */
void *frame_no_memory(void) cold;

/* Sets errno to EINVAL.
 * Returns: NULL. */
void *frame_invalid(void) cold;

/* Copies an allocator's name, or `otherwise` when it has none, cut to FRAME_NAME_BYTES. */
void frame_copy_name(char *to, const char *name, const char *otherwise);

#endif
