/* First-class heaps: heaps that the program makes, see include/cairn/heaps.h.
 *
 * A program's heap is a struct heap that no thread has: whoever allocates from it holds its lock
 * for the time of a few stores. Frees take no lock: to every thread its blocks are another heap's,
 * so remote.c brings them home, and they are collected by whoever allocates next. Its slabs form a
 * list, and so do its large blocks (program_large.h): the end of the heap gives back both lists,
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
 * Not here: packed slabs, sampling and kept runs.
 *
 * Which operations may run together: all of them, but the end of a heap with nothing else on it.
 */
#ifndef CAIRN_HEAP_PROGRAM_HEAP_H
#define CAIRN_HEAP_PROGRAM_HEAP_H

#include "heap/program_large.h"
#include "heap/thread_heap.h"

struct program_options {
    size_t limit_bytes; /* 0: none */
    bool (*out_of_memory)(void *context, size_t size_bytes);
    void *context;
    bool of_sites; /* the program does not know of it, see by_site.h: its blocks are ordinary ones,
                      and nobody waits for its lock */
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

/* That of a block that `operation` is to be done to; likewise. Whether the block is this heap's,
 * whose handle a message names. What is no block, or another heap's, is refused, see checked.h. */
struct program_heap *program_of_block(const void *pointer, const char *operation);
bool program_checks(struct program_heap *program, const void *pointer, const char *operation,
                    const void *handle);

/* Adds to held_bytes what is going to be taken, if the limit allows it. Gives back what the heap
 * keeps without need, if it does not at first. No lock held. */
bool program_reserve(struct program_heap *program, size_t bytes);
void program_unreserve(struct program_heap *program, size_t bytes);
/* What was reserved has been taken: it counts for the peak, and what failed does not. */
void program_note_peak(struct program_heap *program);

/* A slab of it is empty and in no list any more. The holder's. */
void program_let_go(struct program_heap *program, struct span *slab);

/* Gives back what it keeps without need; of all of them. Any thread. */
void program_trim(struct program_heap *program);
void programs_trim(void);

void program_set_limit(struct program_heap *program, size_t limit_bytes);
void program_read_stats(struct program_heap *program, struct program_stats *stats);

/* In the child of a fork, after heaps_after_fork has made the list of heaps anew. */
void programs_after_fork(void);

void programs_verify(void);

#endif
