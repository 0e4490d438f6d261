/* The large blocks of a first-class heap (program_heap.h), so that they go when it ends.
 *
 * Each has a note, in metadata memory: the span's owner word leads to the heap, its `next` to the
 * note. The notes of the blocks in use form the heap's list. A free takes no lock: it takes the
 * span out of the note and pushes that to `freed`, which the next holder of the heap's lock empties
 * into `spare`. Pushed by any thread and taken whole, so there is no ABA. Notes are never given
 * back.
 */
#ifndef CAIRN_HEAP_PROGRAM_NOTES_H
#define CAIRN_HEAP_PROGRAM_NOTES_H

#include "heap/program_state.h"

struct large_note {
    struct program_heap *program; /* const after init */
    struct span *span;            /* atomic: who has the block; NULL once it is freed */
    struct large_note *next;      /* lock: the heap's: in use, or spare */
    struct large_note *prev;      /* lock: the heap's: in use */
    struct large_note *mail_next; /* who frees the block, until it is in `freed`; then lock */
    size_t bytes;                 /* atomic: of its span; whoever allocates or resizes it */
};

/* As long as the span is in use, this field is nobody else's. */
inline_always struct large_note *program_note_of(const struct span *span)
{
    return (struct large_note *)(void *)span->next;
}

/* A note for a block to come; NULL when memory is out. Then the block, or it is not to be had. No
 * lock held. */
struct large_note *program_take_note(struct program_heap *program);
void program_link_note(struct program_heap *program, struct large_note *note, struct span *span);
void program_spare_note(struct program_heap *program, struct large_note *note);

/* The block is being freed by whoever took its tag: it is no heap's from now on. */
void program_lose_large(struct span *span);

/* Notes of freed blocks become spare. The holder's. */
void program_collect_large(struct program_heap *program);

/* In the child of a fork: what is pushed there may be of another instant than the notes. Returns
 * the bytes of the blocks in use. */
size_t program_recount_large(struct program_heap *program);

#endif
