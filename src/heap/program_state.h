/* A first-class heap (program_heap.h): its fields, its lock, its slabs, what it holds.
 *
 * Invariants (program_verify): slab_bytes == bytes of `slabs`, slab_bytes <= held_bytes.
 */
#ifndef CAIRN_HEAP_PROGRAM_STATE_H
#define CAIRN_HEAP_PROGRAM_STATE_H

#include "heap/thread_heap.h"

struct program_options {
    size_t limit_bytes; /* 0: none */
    bool (*out_of_memory)(void *context, size_t size_bytes);
    void *context;
    bool of_sites; /* the program does not know of it, see by_site.h: its blocks are ordinary ones,
                      and nobody waits for its lock */
};

/* Large blocks: see program_notes.h. */
struct program_large {
    struct large_note *used;  /* lock: of blocks in use, and freed ones that were not collected */
    struct large_note *spare; /* lock */
    struct large_note *freed; /* atomic: stack */
};

struct program_heap {
    struct heap heap; /* first: what belongs to its holder belongs to the lock here */
    struct fork_lock lock;
    uint32_t serial;                   /* atomic, lock: registry: of its handle; 0: never used */
    bool watched;                      /* lock: registry: fork holds the lock */
    struct program_heap *next_program; /* const after it is listed: all of them */
    struct program_heap *next_unused;  /* lock: registry: waits to be used again */
    struct span *slabs;                /* lock: all of them */
    struct span *leaving;              /* lock: retired, linked by `next` */
    struct program_large large;
    struct program_options options; /* const while it is in use; its limit: below */
    uint32_t made_in;   /* const while it is in use: generation of the process that made it */
    size_t slab_bytes;  /* lock: pages of `slabs` */
    size_t held_bytes;  /* atomic: pages of slabs and large blocks, those about to be taken too */
    size_t peak_bytes;  /* atomic: the most that it was */
    size_t limit_bytes; /* atomic: for held_bytes */
    size_t refusals;    /* atomic: requests that the limit refused */
};

/* The first-class heap that the block belongs to; NULL: none. */
inline_always struct program_heap *span_program(const struct span *span)
{
    struct heap *heap = slab_heap(span);
    return heap ? heap->program : NULL;
}

/* The one that the program itself allocated from; NULL: none. */
inline_always struct program_heap *span_own_program(const struct span *span)
{
    struct program_heap *program = span_program(span);
    return program && !program->options.of_sites ? program : NULL;
}

/* The lock; dies when the heap has ended. Freed again, slabs that were let go meanwhile go to the
 * pages. */
void program_enter(struct program_heap *program);
void program_leave(struct program_heap *program);

/* Pages of a slab of the class, in bytes, as they count for the limit. */
inline_always size_t program_slab_bytes(unsigned size_class)
{
    return class_is_void(size_class) ? 0 : (size_t)size_classes[size_class].pages << PAGE_SHIFT;
}

/* A slab that was reserved, into the list of all; it is empty and in no other list any more. The
 * holder's. */
void program_list_slab(struct program_heap *program, struct span *slab);
void program_let_go(struct program_heap *program, struct span *slab);

inline_always struct span *program_next_slab(const struct span *slab)
{
    return load_relaxed(&slab_remote(slab)->of_heap.next);
}

void program_unreserve(struct program_heap *program, size_t bytes);
/* What was reserved (program_limit.h) has been taken: it counts for the peak, and what failed does
 * not. */
void program_note_peak(struct program_heap *program);

void program_set_limit(struct program_heap *program, size_t limit_bytes);

/* The holder's. */
void program_verify(struct program_heap *program);

#endif
