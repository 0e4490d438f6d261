/* The thread heap: the state from which one thread allocates, and the list of all heaps. The
 * functions of the thread heap are in the files slab_lists.c, refill.c and lifecycle.c.
 *
 * The states of a heap:
 *   ACTIVE   a thread's own
 *   ORPHAN   its thread has ended
 *   BUSY     held for a moment by a thread that makes it, moves a slab out of it, drains or sweeps
 *            it, or allocates without a heap of its own
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
 * Heaps are made when none can be adopted, and are never given back, so that a pointer to one stays
 * valid for ever. A new thread adopts an orphan with all its slabs.
 *
 * A mailbox is a lock-free stack of slabs with remote frees. Any thread pushes a slab. A thread
 * that takes slabs takes all of them at once, so there is no ABA problem. lifecycle.c says what
 * happens to mail that no holder takes. Each small class has a mailbox of its own. While the class
 * has slabs to allocate from, other threads continue to mark blocks of the slabs in the mailbox,
 * and one visit of a slab collects all of its blocks. The class of a slab is read after its
 * `mail_state` became QUEUED, and stays until the slab is out of the mailbox.
 */
#ifndef CAIRN_HEAP_THREAD_HEAP_H
#define CAIRN_HEAP_THREAD_HEAP_H

#include "heap/run_cache.h"
#include "heap/slab.h"

/* The LISTED slabs of one class. All fields: holder of the heap. */
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

/* The numbers of freed small and medium blocks of a heap that wait in quarantine, full hardened
 * builds. */
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

/* The states of a heap: see the table above. */
enum heap_state { HEAP_ACTIVE, HEAP_PRIVATE, HEAP_UNUSED, HEAP_ORPHAN, HEAP_BUSY };

struct private_heap;

/* A mailbox for each small class, which the other classes share. The second half is for slabs of
 * the first half that another thread has looked at: see lifecycle.c and refill.c. */
enum { MAILBOXES = SMALL_CLASSES, ALL_MAILBOXES = 2 * MAILBOXES };

/* The mailbox in the second half for slabs of `mailbox`, a mailbox of the first half. */
inline_always unsigned mailbox_of_looked_at(unsigned mailbox) { return mailbox + MAILBOXES; }

/* The progress of the sweep of a heap's lists: see decay.h. All fields: holder of the heap. */
struct sweep {
    struct span *at;     /* next slab; NULL at the end of its class's list */
    uint32_t left;       /* slabs to look at until the pass ends; 0: no pass is under way */
    uint32_t looks_max;  /* slabs to look at in one pass; 0 before the first pass */
    uint32_t gave;       /* slabs that gave pages in this pass */
    uint32_t size_class; /* class of the list in which `at` is */
};

struct borrowed;

/* The heap of a thread, or the first part of a private heap. The visitor is the thread that visits
 * all heaps for sweep_others (lifecycle.c). */
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
    bool look_after_fork;    /* holder: see heap_look_after_fork */
    bool left_ready;         /* holder: heap of an ended thread that kept slabs: see lifecycle.c */
    uint8_t turns;           /* holder: number of refills, wraps around */
    uint8_t posts;           /* holder: number of slabs that it posted or reclaimed, wraps around */
    uint8_t attended;        /* holder: number of expired counts in frees, wraps around */
    uint32_t smallest_slabs; /* holder: number of slabs of the first class */
    size_t spare_bytes;      /* holder: sum of what spare slabs count for, see slab_lists.c */
    uint8_t spare_limits[CLASS_COUNT]; /* holder: `fresh_slot` of a medium class's current slab when
                                          it was empty last; 0 if it does not count as spare */
    size_t short_bytes;   /* holder: spare bytes retired in the decay interval `short_ms` */
    uint64_t short_ms;    /* holder: the interval of short_bytes, see slab_lists.c */
    bool spare_is_raised; /* holder: see heap_lower_spare */
    size_t looked_at;                  /* holder: progress of heap_look_after_fork */
    size_t slabs_aside;                /* holder: number of slabs that are not current */
    size_t retired_pages;              /* holder: pages of retired slabs since the last settling */
    uint64_t settled_ms; /* holder: decay interval of the last settling, see slab_lists.c */
    size_t slab_pages;   /* holder: pages of its slabs */
    size_t most_pages;   /* holder: most of slab_pages in the decay interval `most_ms` */
    size_t most_before;  /* holder: most of slab_pages in the interval counted before */
    uint64_t most_ms;    /* holder: decay interval of most_pages */
    uint64_t shrunk_ms;  /* holder: decay interval in which it shrank, see slab_lists.c */
    size_t sweep_pages;  /* holder: a sweep begins when slab_pages reaches this */
    struct sweep sweep;  /* holder */
    uint64_t swept_ms;   /* atomic, holder writes: decay interval in which the last sweep began */
    uint32_t drained;    /* visitor: `drains` at its last visit; if equal, the owner was idle */
    uint8_t visits_until_relook; /* visitor: visits until slabs are looked at again */
    uint8_t relook_wait;         /* visitor: value with which that count begins */
    uint32_t drains; /* atomic, holder writes: odd while slabs are collected, wraps around */
    struct borrowed *borrowed; /* holder: by class, NULL before the first: see refill.h */
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
    struct span *mailboxes[ALL_MAILBOXES] __attribute__((aligned(64))); /* atomic: see above */
};

static_check(__alignof__(struct heap) >= 64, "the owner word has room for tags");

/* The calling thread's heap, never NULL. The pointer is no_heap before the thread's first call and
 * after its end. */
extern hidden_data thread_local_word struct heap *thread_heap;

/* A slab without slots that is never written: the current slab where there is none. */
extern hidden_data struct slab_header_parts empty_slab;

/* The heap of threads that have none. All its current slabs are the empty slab, and it is never
 * written. */
extern hidden_data const struct heap no_heap;

/* Gives thread_heap its initial value if the dynamic linker has not done so yet. */
inline_always void heap_set_up_thread(void)
{
    if (thread_heap == NULL)
        thread_heap = (struct heap *)(uintptr_t)&no_heap;
}

/* Appends a slab to a list. `prev` of a list's first slab is never read, so its cache line need not
 * be written when the slab before it is removed.
 * Locking: heap held. */
void bin_append(struct bin *bin, struct span *slab);

/* Removes a slab from a list.
 * Locking: heap held. */
void bin_remove(struct bin *bin, struct span *slab);

/* Removes the first slab from the list of its class. If the next slab of a sweep is this
 * slab, the sweep continues with the slab behind it.
 * Locking: heap held. */
inline_always void heap_unlist_first(struct heap *heap, struct bin *bin)
{
    struct span *slab = bin->first;
    if (unlikely(heap->sweep.at == slab))
        heap->sweep.at = slab->next;
    bin->first = slab->next;
    if (bin->first == NULL)
        bin->last = NULL;
}

/* Removes a slab from the list of its class. If a sweep is about to look at this slab, it continues
 * behind it.
 * Locking: heap held. */
void heap_unlist(struct heap *heap, struct span *slab);

/* Adds a new heap to the list of all heaps.
 * Threads: any. */
void heap_enlist(struct heap *heap);

extern hidden_data struct heap *all_heaps; /* atomic: stack that only grows, linked by `next` */
extern hidden_data size_t orphan_count;    /* atomic, relaxed: orphans; approximate */

/* Ends heap_hold_any or heap_try_hold: the heap is an orphan again. */
void heap_return(struct heap *heap);

/* Holds the heap if it is an orphan. heap_return must follow.
 * Returns: false if it is no orphan.
 * Threads: any. */
bool heap_try_hold(struct heap *heap);

/* Whether the heap's thread has ended and no other thread holds the heap. Approximate. */
inline_always bool heap_is_ended(const struct heap *heap)
{
    return load_relaxed(&heap->state) == HEAP_ORPHAN;
}

/* A function that heaps_each calls for each heap. */
typedef void heap_visit(struct heap *heap, void *context);

/* Calls `visit` for each heap of the list, which has those of private heaps too.
 * Threads: any. */
void heaps_each(heap_visit *visit, void *context);

/* Inherited slabs: in the child of a fork, those of the parent's other threads, and blocks that
 * those threads were resizing.
 *
 * The state of an inherited slab is of different instants (see heaps_after_fork), so nothing is
 * allocated from it again. The slots that are freed in this process are marked in words of their
 * own, a bit for each slot: the words of the cold area, or the bits of a packed slab. The words are
 * cleared before their first use in this process. When all bits are set, the slab is given back
 * (remote.c, packed.c).
 *
 * Threads: any, lock-free. */

/* Whether the heap of the slab belongs to another process: the slab is inherited. */
inline_always bool slab_is_inherited(const struct span *slab)
{
    struct heap *heap = slab_heap(slab);
    return heap != NULL && heap->generation != heap_generation;
}

/* The word that has the bit of a slot of an inherited slab. Slots count from 1, bits from 0. */
inline_always uint64_t *slab_inherited_word(const struct span *slab, unsigned slot)
{
    return &slab_cold(slab)->words[(slot - 1) / 64];
}

/* The bit of a slot in its word. */
inline_always uint64_t slab_inherited_bit(unsigned slot) { return (uint64_t)1 << (slot - 1) % 64; }

/* Whether the slot of an inherited slab was freed in this process. Acquire: pairs with
 * slab_set_inherited. */
inline_always bool slab_inherited_freed(const struct span *slab, unsigned slot)
{
    return (load_acquire(slab_inherited_word(slab, slot)) & slab_inherited_bit(slot)) != 0;
}

/* Sets a bit in a word of an inherited slab of the heap.
 * Returns: false if it was set already, or the slab is no longer the heap's. */
bool slab_set_inherited(const struct heap *heap, const struct span *slab, uint64_t *word,
                        uint64_t bit);

/* Ends a resize of a large block by a thread that is not in this process: the block is in use
 * again.
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

/* Prepares the words, or the bits, of an inherited slab for this process. Called before each look
 * at them. */
void slab_begin_inherited(struct span *slab);

#endif
