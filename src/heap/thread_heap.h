/* The thread heap: what one thread allocates from, and the list of all heaps. What is done with it
 * stands in the files above: slab_lists.c, mailbox.c, heap_slabs.c, heap_life.c.
 *
 * A heap is ACTIVE (a thread's own), ORPHAN (its thread has ended) or BUSY (borrowed for a moment
 * by a thread that frees into it, or that allocates after its own heap is gone); POSTED is BUSY
 * with mail that came meanwhile. Heaps are made when none can be adopted, and never given back, so
 * that a pointer to one stays valid for ever; a new thread adopts an orphan whole, with all its
 * slabs.
 *
 * A heap that the program made (program_heap.h) is PROGRAM while it has one and UNUSED after: no
 * thread's, its holder is who has its lock.
 *
 * Mailbox: a lock-free stack of slabs that hold remote frees. Pushed by any thread, emptied at once
 * by the holder, so there is no ABA; how none is forgotten without a thread stands in heap_life.c.
 * A small class has one of its own: while it has slabs to allocate from, other threads go
 * on marking blocks of it, and one visit of a slab collects them all. A slab's class is read after
 * its post word became QUEUED, and stays until it is out of the mailbox.
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
 * to 672 KiB. */
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

enum heap_state { HEAP_ACTIVE, HEAP_PROGRAM, HEAP_UNUSED, HEAP_ORPHAN, HEAP_BUSY, HEAP_POSTED };

/* Its mail is the business of who posts, or holds it. */
inline_always bool heap_is_threadless(uint32_t state) { return state >= HEAP_ORPHAN; }

struct program_heap;

enum { MAILBOXES = SMALL_CLASSES }; /* the other classes share them */

struct heap {
    /* holder: allocated from; the empty slab when none is, and last, for sizes of armed classes */
    struct span *current[CLASS_COUNT + 1];
    uint8_t small_class[SMALL_MAX + 1]; /* holder: by size, CLASS_COUNT for sizes of armed classes;
                                           here, for an address at hand */
    struct bin bins[CLASS_COUNT];
    struct run_cache runs;
    struct packed packed;
    bool look_after_fork;    /* holder: see heap_look_after_fork */
    bool left_ready;         /* holder: of an ended thread, with slabs for the next: heap_life.c */
    uint8_t turns;           /* holder: counts refills, around */
    uint8_t posts;           /* holder: counts slabs that it posted to others, around */
    uint8_t attended;        /* holder: counts slabs that its frees attended to, around */
    uint32_t smallest_slabs; /* holder: slabs of the first class */
    size_t spare_bytes;      /* holder: what the slabs of the next count for; see slab_lists.c */
    uint8_t spare_limits[CLASS_COUNT]; /* holder: `limit` of a medium class's current slab when it
                                          was empty; 0: never, and of small classes */
    size_t slabs_aside;                /* holder: that are neither current nor packed */
    size_t retired_pages;              /* holder: of slabs, since the heap settled last */
    uint64_t settled_ms; /* holder: the decay interval in which it did, see slab_lists.c */
    size_t slab_pages;   /* holder: of its slabs, but packed ones */
    size_t sweep_pages;  /* holder: so many, and they are swept: see slab_sweep.h */
    uint64_t
        swept_ms;     /* holder, read by others: the decay interval in which they were swept last */
    uint32_t drained; /* who ticks: `drains` of then */
    uint32_t drains;  /* atomic, holder writes: odd while a mailbox is emptied, counts around */
    struct sampling sampling;
    struct profiling *profiling; /* holder: NULL before it is profiled */
    struct traced_thread traced; /* the thread whose it is */
    bool finds_site;             /* the thread whose it is: see by_site.h */
    uint64_t random;             /* holder: of base/random.h, hardened builds only */
    uint64_t quarantine[QUARANTINE_SMALL + QUARANTINE_MEDIUM + 1]; /* holder: see quarantine.c */
    /* What other threads look at: on one line what stays for long, behind it what they change. */
    struct heap *next __attribute__((aligned(64))); /* const after it is listed: all heaps */
    struct program_heap *program; /* const after init: itself, of a heap that the program made */
    uint32_t generation; /* const after init, but see heaps_after_fork: of the process in use */
    uint32_t state;      /* atomic: enum heap_state */
    struct span *mailboxes[MAILBOXES] __attribute__((aligned(64))); /* atomic: see above */
};

static_check(__alignof__(struct heap) >= 64, "the owner word has room for tags");

/* This thread's heap: never NULL. no_heap before the first call and after the thread's end. */
extern hidden_data thread_local_word struct heap *thread_heap;

/* A slab without a slot, never written: current where none is. */
extern hidden_data struct slab_parts empty_slab;

/* Stands for none: everything in it leads to the empty slab, it is never written. */
extern hidden_data const struct heap no_heap;

/* Gives thread_heap its initial value where the dynamic linker has not done so yet. */
inline_always void heap_set_up_thread(void)
{
    if (thread_heap == NULL)
        thread_heap = (struct heap *)(uintptr_t)&no_heap;
}

/* Lists of slabs. The `prev` of the first one is not looked at, so its line need not be written
 * when the one before it goes. The holder's. */
void bin_append(struct bin *bin, struct span *slab);
void bin_remove(struct bin *bin, struct span *slab);
inline_always void bin_remove_first(struct bin *bin)
{
    bin->first = bin->first->next;
    if (bin->first == NULL)
        bin->last = NULL;
}

/* From now on heaps_each comes to it. Any thread. */
void heap_enlist(struct heap *heap);

extern hidden_data struct heap *all_heaps; /* atomic: stack that only grows, linked by `next` */

typedef void heap_visit(struct heap *heap, void *context);
void heaps_each(heap_visit *visit, void *context);

#endif
