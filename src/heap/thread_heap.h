/* The thread heap: the slabs that one thread allocates from, and the life of heaps between threads.
 *
 * A heap is ACTIVE (a thread's own), ORPHAN (its thread has ended) or BUSY (borrowed for a moment
 * by a thread that frees into it, or that allocates after its own heap is gone). Heaps are made
 * when none can be adopted, and never given back, so that a pointer to one stays valid for ever; a
 * new thread adopts an orphan whole, with all its slabs.
 *
 * A heap that the program made (program_heap.h) is PROGRAM while it has one and UNUSED after: no
 * thread's, its holder is who has its lock.
 *
 * Mailbox: a lock-free stack of slabs that hold remote frees. Pushed by any thread, emptied at once
 * by the holder, so there is no ABA. A poster that finds the heap an orphan tries to borrow it and
 * empties the mailbox itself; the thread that ends sets ORPHAN first and looks into the mailbox
 * again after, both sequentially consistent, so one of the two sees the other, and no post is left
 * behind.
 */
#ifndef CAIRN_HEAP_THREAD_HEAP_H
#define CAIRN_HEAP_THREAD_HEAP_H

#include "heap/run_cache.h"
#include "heap/slab.h"

/* The slabs of one class that are not allocated from. All fields: holder of the heap. */
struct bin {
    struct span *first; /* slabs with free slots, longest waiting first: frees gather in them */
    struct span *last;
};

/* See packed.h. All fields: holder of the heap. */
struct packed {
    struct span *slab; /* allocated from, NULL while none is */
    struct bin bin;
    bool on;
};

/* See sampling.h. All zero while it is off. All fields: holder of the heap. */
struct sampling {
    int64_t left;    /* blocks until the next one is sampled */
    uint64_t random; /* 0 before the first use */
    uint8_t armed;   /* 1 + the class whose sizes lead to the empty slab; 0: none */
    uint8_t skipped; /* mallocs of that class that pass before one is sampled */
};
static_check(CLASS_COUNT <= UINT8_MAX, "small_class leads to every entry of current");

/* See profiling.h. All fields: holder of the heap. */
struct profile_clock {
    int64_t left;     /* mallocs of the class until the one that is a sample, from the last count */
    int64_t unseen;   /* may have gone by since, beside those of `granted` */
    uint32_t granted; /* frees; what `until` of the current slab began with */
};
struct profiling {
    uint32_t epoch; /* of the start that it follows; 0: none */
    uint32_t armed; /* a bit for each small class whose sizes lead to the empty slab */
    uint64_t random;
    int64_t large_left; /* bytes until the next large sample */
    struct profile_clock clocks[CLASS_COUNT];
};
static_check(SMALL_CLASSES <= 32, "a bit for each small class");

/* Hardened builds: freed blocks of a heap that wait, small and medium ones. Bounds what they hold
 * to 640 KiB. */
enum {
    QUARANTINE_SMALL = config_quarantine ? 128 : 0,
    QUARANTINE_MEDIUM = config_quarantine ? 16 : 0,
};

/* The tracer's of the thread that has the heap, zero at first: see tracing.h. */
struct traced_thread {
    uint32_t number;     /* of the trace's own; 0: none yet */
    uint32_t id;         /* the kernel's */
    uint32_t generation; /* of the process that the two are of */
    uint32_t lane;
    bool inside; /* the unwinder, which may allocate after all */
};

enum heap_state { HEAP_ACTIVE, HEAP_ORPHAN, HEAP_BUSY, HEAP_PROGRAM, HEAP_UNUSED };

struct program_heap;

struct heap {
    /* holder: allocated from; the empty slab when none is, and last, for sizes of armed classes */
    struct span *current[CLASS_COUNT + 1];
    uint8_t small_class[SMALL_MAX + 1]; /* holder: by size, CLASS_COUNT for sizes of armed classes;
                                           here, for an address at hand */
    struct bin bins[CLASS_COUNT];
    struct run_cache runs;
    struct packed packed;
    bool look_after_fork;    /* holder: see heap_look_after_fork */
    uint8_t turns;           /* holder: counts refills and emptied medium slabs, around */
    uint8_t posts;           /* holder: counts slabs that it posted to others, around */
    uint32_t smallest_slabs; /* holder: slabs of the first class */
    size_t spare_bytes;      /* holder: sum of the next; see thread_heap.c */
    uint32_t spares[CLASS_COUNT - SMALL_CLASSES]; /* holder: what a medium class's current slab
                                                     counts for, since it was empty */
    size_t slabs_aside;                           /* holder: that are neither current nor packed */
    size_t retired_pages; /* holder: of slabs, since the heap settled last */
    uint64_t settled_ms;  /* holder: the decay interval in which it did, see thread_heap.c */
    size_t slab_pages;    /* holder: of its slabs, but packed ones */
    size_t sweep_pages;   /* holder: so many, and they are swept: see heap_sweep.h */
    uint64_t
        swept_ms;     /* holder, read by others: the decay interval in which they were swept last */
    uint32_t drained; /* who ticks: `drains` of then */
    struct sampling sampling;
    struct profiling *profiling; /* holder: NULL before it is profiled */
    struct traced_thread traced; /* the thread whose it is */
    bool finds_site;             /* the thread whose it is: see by_site.h */
    uint64_t random;             /* holder: of base/random.h, hardened builds only */
    uint64_t quarantine[QUARANTINE_SMALL + QUARANTINE_MEDIUM + 1]; /* holder: see harden.c */
    /* What other threads look at: on one line what stays, on the next what they change. */
    struct heap *next __attribute__((aligned(64))); /* const after it is listed: all heaps */
    struct program_heap *program; /* const after init: itself, of a heap that the program made */
    uint32_t generation; /* const after init, but see heaps_after_fork: of the process in use */
    struct span *mailbox __attribute__((aligned(64))); /* atomic: see above */
    uint32_t state;                                    /* atomic: enum heap_state */
    uint32_t drains; /* atomic, holder writes: odd while the mailbox is emptied, counts around */
};

static_check(__alignof__(struct heap) >= 64, "the owner word has room for tags");

/* This thread's heap: never NULL. no_heap before the first call and after the thread's end. */
extern hidden_data thread_local_word struct heap *thread_heap;

/* Stands for none: everything in it leads to the empty slab, it is never written. */
extern hidden_data const struct heap no_heap;

/* Registers the end of threads; once, at the start. */
void heap_watch_threads(void);

/* Gives thread_heap its initial value where the dynamic linker has not done so yet. */
inline_always void heap_set_up_thread(void)
{
    if (thread_heap == NULL)
        thread_heap = (struct heap *)(uintptr_t)&no_heap;
}

/* This thread's heap, made or adopted if need be; NULL when memory is out or the thread has ended.
 */
struct heap *heap_enter(void);

/* For a thread that has none: a heap for one operation. NULL when memory is out. Pairs with
 * heap_return. */
struct heap *heap_borrow(void);
void heap_return(struct heap *heap);

/* After a post: empties the mailbox if no thread holds the heap. */
void heap_tend_orphan(struct heap *heap);

/* Holds the heap if it is an orphan. Pairs with heap_return. Any thread. */
bool heap_try_hold(struct heap *heap);

/* Collects from all slabs in the mailbox. The holder's. */
void heap_drain(struct heap *heap);

/* Lists of slabs. The holder's. */
void bin_append(struct bin *bin, struct span *slab);
void bin_remove(struct bin *bin, struct span *slab);

/* A slab of the class with a slot to take; NULL when memory is out. The holder's. */
struct span *heap_refill(struct heap *heap, unsigned size_class);

/* A block of the class; NULL when memory is out, or a first-class heap has no slab with room. Not
 * sampled. The holder's. */
void *heap_take(struct heap *heap, unsigned size_class);

/* A slab that was just opened, into the list of its class. The holder's. */
void heap_add_slab(struct heap *heap, struct span *slab);

/* Empties the mailbox without looking at the slabs, none of which is used on. The holder's. */
void heap_forget_mail(struct heap *heap);

/* A slab's count of frees ran out: it is empty, or full no more, or current. The holder's. */
void heap_attend(struct heap *heap, struct span *slab);

/* The next mallocs of a small class take the slow path, until it is disarmed or another one is
 * armed. The holder's. */
void heap_arm(struct heap *heap, unsigned size_class);
void heap_disarm(struct heap *heap);

/* The fast path sees the small class, or the empty slab while it is armed: by the functions above,
 * or by the profiler. The holder's. */
void heap_show_class(struct heap *heap, unsigned size_class);

/* A new heap's tables: no slab is current yet. */
void heap_set_up_classes(struct heap *heap);

/* From now on heaps_each comes to it. Any thread. */
void heap_enlist(struct heap *heap);

/* All small classes for good, of this thread's heap and of heaps to come. Once, before there are
 * threads. */
void heap_arm_all(void);
/* The same for the tracer, which may end; other heaps follow by heap_show_class. */
void heap_arm_traced(bool on);

/* Gives back what this heap keeps without need. The holder's. */
void heap_trim(struct heap *heap);

/* What is due by age: pages_tick, and the runs that all threads keep. Any thread. */
void heaps_tick(void);

/* Empties the caches of runs of all threads; whether there was anything. Any thread. */
bool heaps_empty_run_caches(void);

/* In the child of a fork, once, before its heap takes a new slab: what other threads of the parent
 * freed of its blocks is put into the mailbox. The holder's. */
void heap_look_after_fork(struct heap *heap);

/* Fork, in the child. The heaps of threads that are not here were in use while the kernel copied
 * the pages one after another, so what the child sees of them is of different instants: lists may
 * contradict pointers that the program holds. They are frozen: nothing is allocated from them
 * again, their blocks stay valid, and a free of one is taken without the checks that their state
 * could fail falsely: a second free in this process still dies. This thread's own heap goes on.
 * Time: that of a few stores, for most children have another program to start. */
void heaps_after_fork(void);

extern hidden_data uint32_t heap_generation; /* counts forks on the way to this process */

inline_always bool slab_is_frozen(const struct span *slab)
{
    struct heap *heap = slab_heap(slab);
    return heap != NULL && heap->generation != heap_generation;
}

extern hidden_data struct heap *all_heaps; /* atomic: stack that only grows, linked by `next` */

typedef void heap_visit(struct heap *heap, void *context);
void heaps_each(heap_visit *visit, void *context);

void heap_verify(struct heap *heap);

#endif
