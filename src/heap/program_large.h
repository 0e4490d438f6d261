/* The large blocks of first-class heaps (program_heap.h), so that they go when the heap ends.
 *
 * Each has a note, in metadata memory: the span's owner word leads to the heap, its `next` to the
 * note. The notes of the blocks in use form the heap's list. A free takes no lock: it takes the
 * span out of the note and pushes that to `freed`, which the next holder of the heap's lock empties
 * into `spare`. Pushed by any thread and taken whole, so there is no ABA. Notes are never given
 * back.
 */
#ifndef CAIRN_HEAP_PROGRAM_LARGE_H
#define CAIRN_HEAP_PROGRAM_LARGE_H

#include "page/page.h"

struct program_heap;

struct large_note {
    struct program_heap *program; /* const after init */
    struct span *span;            /* atomic: who has the block; NULL once it is freed */
    struct large_note *next;      /* lock: the heap's: in use, or spare */
    struct large_note *prev;      /* lock: the heap's: in use */
    struct large_note *mail_next; /* who frees the block, until it is in `freed`; then lock */
    size_t bytes;                 /* atomic: of its span; whoever allocates or resizes it */
};

struct program_large {
    struct large_note *used;  /* lock: of blocks in use, and freed ones that were not collected */
    struct large_note *spare; /* lock */
    struct large_note *freed; /* atomic: stack */
};

/* NULL when memory is out, or the limit does not allow it. No lock held. The second gives one that
 * reads zero, which no kept run does: pages_clear knows of no block's use but the last. */
struct span *program_allocate_large(struct program_heap *program, size_t size_bytes,
                                    size_t alignment_bytes);
struct span *program_allocate_large_zeroed(struct program_heap *program, size_t size_bytes);

/* The block is being freed by whoever took its tag: it is no heap's from now on. */
void program_lose_large(struct span *span);

/* Around a change of the block's length, of any large block: false when the limit does not allow so
 * many pages. What the first counts, the second corrects. */
bool program_begin_resize(struct span *span, size_t pages, size_t *counted_pages);
void program_end_resize(struct span *span, size_t counted_pages);

/* Notes of freed blocks become spare. The holder's. */
void program_collect_large(struct program_heap *program);

/* Frees the blocks of all notes; the heap is no one else's any more. No lock held. */
void program_end_large(struct program_heap *program);

/* In the child of a fork: what is pushed there may be of another instant than the notes. Returns
 * the bytes of the blocks in use. */
size_t program_recount_large(struct program_heap *program);

#endif
