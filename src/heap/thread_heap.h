/* The thread heap: the state from which one thread allocates, and the list of all heaps.
 *
 * The states of a heap:
 *   ACTIVE   a thread's own
 *   ORPHAN   its thread has ended
 *   BUSY     held for a moment by a thread that makes it, moves a slab out of it, drains it,
 *            or allocates without a heap of its own
 *   PRIVATE  in a private heap (private_heap.h) that is in use
 *   UNUSED   in a private heap that has ended or is new
 *
 *   new -> BUSY         heap_hold_any
 *   ORPHAN -> BUSY      heap_try_hold
 *   BUSY -> ORPHAN      heap_return
 *   BUSY -> ACTIVE      heap_enter
 *   ACTIVE -> BUSY      heap_leave
 *   new -> UNUSED       private_heap_make
 *   UNUSED -> PRIVATE   private_heap_new
 *   PRIVATE -> UNUSED   private_heap_end
 *
 * The holder of a heap is its own thread while it is ACTIVE, the thread that made it BUSY, or the
 * holder of the lock of its private heap. "Heap held" in a tag means that the calling thread is the
 * holder.
 *
 * A new thread adopts an orphan with all its slabs. Heaps are made when none can be adopted, and
 * are never given back, so that a pointer to one stays valid for ever.
 *
 * A mailbox is a lock-free stack of slabs with remote frees (remote.c). Any thread pushes a slab. A
 * thread that takes slabs takes all of them at once, so there is no ABA problem. */
#ifndef CAIRN_HEAP_THREAD_HEAP_H
#define CAIRN_HEAP_THREAD_HEAP_H

#include "heap/run_cache.h"
#include "heap/slab.h"

/* The LISTED slabs of one class. Heap held, for all fields and for the functions of lists. */
struct bin {
    struct span *first; /* the slab that waits longest: frees gather in it meanwhile */
    struct span *last;  /* the slab that was listed last */
};

/* The choice of the blocks to guard: see hooks.h. All zero while there are no guards. All
 * fields: holder of the heap. */
struct guard_choice {
    int64_t left;     /* blocks until the next one is guarded */
    uint64_t random;  /* 0 before the first use */
    uint8_t diverted; /* 1 + the class whose sizes lead to the empty slab; 0 for none */
    uint8_t skipped;  /* mallocs of that class that pass before one is guarded */
};
static_check(CLASS_COUNT <= UINT8_MAX, "small_class leads to every entry of current");

/* The clock of one class for the profiler: see profiling.h. All fields: holder of the heap. */
struct profile_clock {
    int64_t left;     /* mallocs of the class from the last count to the one that is a sample */
    int64_t unseen;   /* mallocs that may have passed since, in addition to those of `granted` */
    uint32_t granted; /* frees: the current slab's `frees_to_attention` at its last start */
};
/* The profiler's state of a heap: see profiling.h. All fields: holder of the heap. */
struct profiling {
    uint32_t epoch;     /* number of the start that the heap follows; 0 for none */
    uint32_t diverted;  /* a bit for each small class whose sizes lead to the empty slab */
    uint64_t random;    /* state of the random numbers */
    int64_t large_left; /* bytes until the next large sample */
    struct profile_clock clocks[CLASS_COUNT];
};
static_check(SMALL_CLASSES <= 32, "a bit for each small class");

/* The freed small and medium blocks of a heap that wait in quarantine, full hardened builds. */
enum {
    QUARANTINE_SMALL = config_quarantine ? 128 : 0,
    QUARANTINE_MEDIUM = config_quarantine ? 16 : 0,
};

/* The tracer's state of the thread that has the heap, all zero at first: see hooks.h. All fields:
 * owner thread. */
struct traced_thread {
    uint32_t number;     /* number of the thread in the trace; 0 for none yet */
    uint32_t id;         /* the kernel's number of the thread */
    uint32_t generation; /* number of the process to which these two belong */
    uint32_t lane;       /* the lane of the trace that the thread writes to */
    bool inside;         /* the thread is in the unwinder, which may allocate */
};

enum heap_state { HEAP_ACTIVE, HEAP_PRIVATE, HEAP_UNUSED, HEAP_ORPHAN, HEAP_BUSY };

struct private_heap;

/* A mailbox for each small class, which the other classes share. The second half is for slabs of
 * the first half that a borrower has looked at: see borrow.c. */
enum { MAILBOXES = SMALL_CLASSES, ALL_MAILBOXES = 2 * MAILBOXES };

inline_always unsigned mailbox_of_looked_at(unsigned mailbox) { return mailbox + MAILBOXES; }

struct borrowed;

/* The heap of a thread, or the first part of a private heap. */
struct heap {
    /* holder: slabs that are allocated from; the empty slab where there is none, and always in the
     * last element, for diverted classes */
    struct span *current[CLASS_COUNT + 1];
    uint8_t small_class[SMALL_BLOCK_MAX + 1]; /* holder: class of each size, CLASS_COUNT for
                                                 diverted classes. Part of the heap, so that its
                                                 address needs no computation */
    struct bin bins[CLASS_COUNT];             /* holder */
    struct run_cache runs;                    /* see run_cache.h */
    bool packs;              /* holder: requests of up to 8 bytes are packed, see packed.h */
    bool left_ready;         /* holder: heap of an ended thread that kept slabs: see lifecycle.c */
    uint8_t turns;           /* holder: number of refills, wraps around */
    uint8_t attended;        /* holder: number of expired counts in frees, wraps around */
    uint32_t smallest_slabs; /* holder: number of slabs of the first class */
    struct span *emptied;  /* holder: the current slab of a medium class that became empty last, or
                              NULL; it may be in use again */
    uint8_t shard;         /* owner: the shard of its runs, see page/state.h */
    uint8_t frees;         /* holder: frees of a small current slab until it needs attention */
    uint8_t calls_to_look; /* holder: slow calls until the next look; 0 stands for 256 */
    uint64_t looked_ms;    /* holder: time of the last look */
    size_t looked_at;      /* holder: progress of heap_look_after_fork */
    size_t returned_pages; /* holder: pages of slabs that it gave back since the last settling */
    uint64_t settled_ms;   /* holder: time of the last settling, see slab_lists.c */
    size_t slab_pages;     /* holder: pages of its slabs */
    uint32_t drains;       /* atomic, holder writes: odd while slabs are collected, wraps around */
    uint32_t drained;      /* visitor (lifecycle.c): `drains` at the last visit */
    bool drains_never;     /* visitor: it drained no mailbox between the last two visits */
    struct borrowed *borrowed; /* atomic, holder writes: by class, NULL before the first: see
                                  borrow.h */
    uint32_t borrow_process;   /* holder: number of the process in which it borrowed last */
    uint8_t borrow_turn;       /* holder: number of its turns, wraps around */
    uint8_t refills_to_look;   /* holder: refills until it looks how threads run: see borrow.c */
    bool in_turn;              /* holder: whether threads ran in turn when it looked last */
    uint8_t borrow_age;        /* atomic: 1 if it borrowed since the last visit (lifecycle.c), 2
                                  if the visit before saw that, else 0 */
    struct span *retired;      /* holder: slabs that a private heap has to give back, by `next` */
    struct heap *lender;       /* holder: heap that has lent last; NULL if none had any block */
    struct guard_choice guard_choice; /* holder */
    struct profiling *profiling;      /* holder: NULL before it is profiled */
    struct traced_thread traced;      /* owner thread */
    uint64_t random;                  /* holder: state of base/random.h, hardened builds only */
    uint64_t quarantine[QUARANTINE_SMALL + QUARANTINE_MEDIUM + 1]; /* holder: see quarantine.c */
    /* The words that other threads read: one line with those that rarely change, and behind it the
     * mailboxes, which they write. */
    struct heap *next __attribute__((aligned(64))); /* const after heap_enlist, except in
                                                       the child of a fork: list of all heaps */
    struct private_heap
        *private_heap;   /* const after init: the private heap that it is part of, or NULL */
    uint32_t generation; /* const after init, except in the child of a fork: number of the process
                            in which it is in use */
    uint32_t state;      /* atomic: enum heap_state */
    struct heap *next_orphan; /* the next one of the stack; atomic, as a late thread may read it */
    bool look_after_fork;     /* atomic, holder writes: see heap_look_after_fork */
    uint32_t is_stacked;      /* atomic: 1 while it is in the stack of orphans, see thread_heap.c */
    struct span *mailboxes[ALL_MAILBOXES] __attribute__((aligned(64))); /* atomic: see above */
};

static_check(__alignof__(struct heap) >= 64, "the owner word has room for tags");

/* The calling thread's heap: no_heap before the thread's first call and after its end. */
extern hidden_data thread_local_word struct heap *thread_heap;

/* A slab without slots that is never written: the current slab where there is none. */
extern hidden_data struct slab_header_parts empty_slab;

/* The heap of threads that have none: all its current slabs are the empty slab. Never written. */
extern hidden_data const struct heap no_heap;

/* Gives thread_heap its initial value if the dynamic linker has not done so yet. */
inline_always void heap_set_up_thread(void)
{
    if (thread_heap == NULL)
        thread_heap = (struct heap *)(uintptr_t)&no_heap;
}

/* Appends a slab to a list. `prev` of a list's first slab is never read, so its cache line need not
 * be written when the slab before it is removed. */
void bin_append(struct bin *bin, struct span *slab);

void bin_remove(struct bin *bin, struct span *slab);

/* Adds a new heap to the list of all heaps. Threads: any. */
void heap_enlist(struct heap *heap);

extern hidden_data struct heap *all_heaps; /* atomic: stack that only grows, linked by `next` */
/* Ends heap_hold_any or heap_try_hold: the heap is an orphan again. */
void heap_return(struct heap *heap);

/* Holds the heap if it is an orphan, else returns false. heap_return must follow. Threads: any. */
bool heap_try_hold(struct heap *heap);

/* Holds an orphan, usually the one that was returned last, or NULL. heap_return must follow.
 * Threads: any. Cost: constant, spread over the calls of heap_return. */
struct heap *heap_hold_orphan(void);

/* Forgets all orphans. Threads: the child of a fork. */
void heaps_forget_orphans(void);

/* Inherited slabs: in the child of a fork, those of the parent's other threads, and blocks that
 * those threads were resizing.
 *
 * The lists and counts of those threads' heaps may be inconsistent, so nothing is allocated from
 * their slabs again. The link bytes and the words of packed slabs are right: the child sees what
 * the threads wrote in the order in which they wrote it (decision 3). So a free in the child marks
 * the block as a remote free does. A free that leaves no block in use gives the slab back. A block
 * that another thread had borrowed, or was handing out, stays in use for ever.
 * Threads: any, lock-free. */

/* Gives an inherited slab of the heap back if no block of it is in use. Called after each free. */
void slab_retire_inherited(const struct heap *heap, struct span *slab);

/* Ends the resize of a large block by a thread of another process: the block is in use again.
 * Returns: false if the resizing thread is in this process; then nothing has changed. */
bool large_forget_resizer(struct span *span);

/* `mail_state` of a large or huge block while a thread resizes it, so that no other thread frees
 * it: the tag that it had otherwise, and the number of the process. */
enum { RESIZED_PROCESS_SHIFT = 8 };
/* The value of `mail_state` while a thread of this process resizes a block of this tag. */
inline_always uintptr_t large_resized(uint8_t kind)
{
    return (uintptr_t)heap_generation << RESIZED_PROCESS_SHIFT | kind;
}

/* Whether the span is a large or huge block in use that no thread of this process resizes. */
inline_always bool large_is_in_use(struct span *span)
{
    uint8_t tag = load_relaxed(&span->tag);
    return tag == SPAN_LARGE || tag == SPAN_HUGE ||
           (unlikely(tag == SPAN_RESIZED) && large_forget_resizer(span));
}

#endif
