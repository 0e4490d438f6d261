/* The page layer: runs of pages for slabs, large blocks and the other allocators.
 *
 * Arenas are reserved without memory in growing steps and committed from their start upwards; what
 * was handed out and came back is kept in two-level bins (TLSF: Masmano, Ripoll, Crespo and Real,
 * ECRTS 2004), split and merged in constant time by boundary tags in the page map. Free memory is
 * purged above a cap, and what a whole decay interval did not need is purged at its end.
 *
 * Threading: any thread, one lock inside, never held over a system call. While another thread forks
 * the lock is not to be had: then runs come from mappings of their own, and returned ones wait in a
 * lock-free list. Failure: NULL or false, when the system has no memory.
 */
#ifndef CAIRN_PAGE_PAGE_H
#define CAIRN_PAGE_PAGE_H

#include "page/advice.h"
#include "page/fork_locks.h"
#include "page/meta.h"
#include "page/page_map.h"
#include "page/span.h"

/* What a slab of one size class needs; the array is the heap's, by class. */
struct slab_shape {
    uint16_t pages;      /* length of the run */
    uint16_t cold_64;    /* metadata beside the header, in units of 64 bytes, below COLD_KINDS */
    uint32_t unit_bytes; /* of what `limit` counts; 0: blocks longer than a page, see dense.h */
};

enum { COLD_KINDS = 18 };

struct page_limits {
    uint64_t decay_ms;       /* memory that was free for so long goes back to the system */
    size_t dirty_cap_bytes;  /* more free unpurged memory than this is purged at once */
    size_t soft_limit_bytes; /* above this, mappings included, free memory is purged; 0 for none */
    size_t hard_limit_bytes; /* beyond this, mappings included, nothing is given; 0 for none */
    enum huge_pages huge_pages;
};

/* What holds until pages_configure: docs/OPTIONS.md. */
#define PAGE_LIMITS_DEFAULT                                                                        \
    {.decay_ms = 1000, .dirty_cap_bytes = (size_t)64 << 20, .huge_pages = HUGE_PAGES_AUTO}

struct page_stats {
    size_t reserved_bytes;  /* address space of arenas, and what is kept outside: purge.h */
    size_t committed_bytes; /* of it readable and writable */
    size_t free_bytes;      /* of those in no one's use */
    size_t dirty_bytes;     /* of those not purged */
    size_t huge_bytes;      /* mappings outside the arenas */
    size_t huge_count;
    size_t meta_bytes;
    size_t purged_bytes;        /* in total, since the start */
    size_t purges;              /* that was so many runs of pages */
    size_t swept_bytes;         /* of slabs, given back: pages_note_swept */
    size_t counted_bytes;       /* what the limits count, see bound.h */
    size_t refusals;            /* takes that the hard limit refused */
    size_t intervals;           /* decay intervals that have ended */
    uint64_t interval_start_ms; /* when the last of them did */
    bool pressed;
};

/* Makes fork safe: registers the layer with libc, once. From then on metadata may lie in pages of
 * an arena. May allocate, so no lock is held and the heap is ready. Whoever takes pages calls it
 * before: the heap, and the allocators beside it. */
void pages_start(void);

/* In the child of a fork, after this layer is whole again. Before pages_start. */
void pages_on_fork(void (*in_child)(void));

/* Who keeps runs that nobody uses: asked before the hard limit refuses a run. True: it gave some
 * back. Before pages_start. */
void pages_on_refusal(bool (*give_kept)(void));

void pages_init(const struct slab_shape *shapes);
void pages_configure(const struct page_limits *limits); /* also later, to change them */
void pages_limit_soft(size_t bytes);                    /* this one alone */
void pages_limit_hard(size_t bytes);
void pages_read_limits(struct page_limits *limits);
void pages_heed_limits(void); /* at once what they ask for, after they changed */

/* Under memory pressure nothing that is free is kept: what there is goes back now, and what comes
 * at once. */
void pages_press(bool pressed);

/* A slab's run, every page of it in the page map. `base` and `tag` are set; `capacity` is
 * 0 when the header and its cold area, which is zero then, never served a slab. The owner word is
 * the caller's to write, last. */
struct span *pages_take_slab(unsigned class_index);
/* `base` is the run's first byte again, `owner` 0. */
void pages_give_slab(struct span *span);
/* The same of one of which so many pages were noted and not taken again. */
void pages_give_swept_slab(struct span *span, size_t swept_pages);

/* Pages inside slabs that went back to the system do not count for the limits: while they are
 * noted, no block is handed out of their slab. To take them again is admitted as a new run would
 * be: false when the hard limit refuses, and then they stay noted. No lock held. */
void pages_note_swept(size_t pages);
bool pages_take_swept(size_t pages);

/* The same of addresses without memory, where any access faults; NULL also when there are too many.
 * Hardened builds. */
struct span *pages_take_void_slab(unsigned class_index);
void pages_give_void_slab(struct span *span);

/* One large block, aligned as asked (a power of two). `zero` in the span says whether it reads
 * zero. */
struct span *pages_take(size_t pages, size_t alignment_bytes);
/* The same, only of what is free: no arena grows for it. */
struct span *pages_take_free(size_t pages, size_t alignment_bytes);
void pages_give(struct span *span);
void pages_clear(struct span *span,
                 size_t size_bytes); /* makes it read zero, touching only what does not */
bool pages_extend(struct span *span, size_t pages); /* in place, into the free neighbour behind */
bool pages_shrink(struct span *span, size_t pages); /* gives the rest back */

/* A header for pages of an arena that no span has: their `base` and `pages` set, it is given by
 * pages_give, or else alone. NULL when memory is out. */
struct span *pages_take_header(void);
void pages_give_header(struct span *span);

/* A mapping of its own, for what an arena should not hold. Resizing may move it. */
struct span *pages_map_huge(size_t size_bytes, size_t alignment_bytes);
void pages_give_huge(struct span *span);

/* The same for a block that grew and is likely to grow on: a mapping that such a block left, see
 * room.h, or a new one with addresses to spare. `zero` in the span says whether it reads zero. */
struct span *pages_map_growing(size_t size_bytes);
/* In place, without a system call: false where there is no room right behind it. */
bool pages_extend_huge(struct span *span, size_t pages);
bool pages_resize_huge(struct span *span, size_t size_bytes,
                       bool may_move); /* in place or by moving page tables */
/* The block is likely to be filled: asks for huge pages, where it is long enough for them. */
void pages_expect_filled(struct span *span);

/* The same for hardened builds, with guard pages: nothing else may resize or give it.
 * `spare_bytes` of addresses are kept for growing. Freed, its addresses fault for a while; its
 * memory may serve another one, cleared. */
struct span *pages_map_guarded(size_t size_bytes, size_t alignment_bytes, size_t spare_bytes);
void pages_give_guarded(struct span *span);
bool pages_resize_guarded(struct span *span, size_t size_bytes, bool may_move);

/* Cuts a large or huge span in two: `span` keeps its first `pages`, the rest, which is returned, is
 * a span like it. The page map is the caller's to set. NULL when memory is out; nothing has changed
 * then. */
struct span *pages_split(struct span *span, size_t pages, bool huge);

/* Purges all free memory but `keep_bytes`; true when something went back. */
bool pages_trim(size_t keep_bytes);

/* Purges what is due by age; cheap when nothing is. Called on slow paths, outside locks, by whoever
 * takes pages: what was handed to pages_on_interval is called first. */
void pages_tick(void);

/* What is to be done beside when a decay interval has ended: once for each, by the thread that
 * noticed it, which holds no lock of the page layer's. */
void pages_on_interval(void (*ended)(void));

void pages_read_stats(struct page_stats *stats);

/* Every span in use within the arenas and every void slab; racy unless frozen. */
void pages_each(span_visit *visit, void *context);

/* The slabs within the arenas likewise, whatever other threads do; those may be given back, or
 * become others, at any time. Reads atomically what it reads. */
void pages_each_slab(span_visit *visit, void *context);

/* The span in use that holds `address`, also in the middle of a large one; NULL if none. Slow, for
 * messages. */
struct span *pages_search(const void *address, char **start);

/* Whether `address` lies in an arena's committed part. Lock-free. */
bool pages_holds(const void *address);

/* Gives back the whole system pages within a part of a run in use, which its user does not need;
 * they read zero. Map pages that went, 0 when the system refuses. */
size_t pages_purge_part(char *start, size_t pages);

/* The same for the pages from `start` on whose bits are set; the bits of those that went. */
uint64_t pages_purge_marked(char *start, uint64_t marked);

/* Of these bits those that can go: whose system page, where that is several of ours, has no other.
 */
uint64_t pages_whole_marked(const char *start, uint64_t marked);

/* Whether who has so many pages free may keep them for its next need: not under pressure, nor where
 * the cap on free memory is low. A hint. */
bool pages_may_keep(size_t pages);

/* The same, and nobody else may then keep what is over half of the cap, all of them together: until
 * they are given up. Any thread, lock-free. */
bool pages_claim_kept(size_t pages);
void pages_unclaim_kept(size_t pages);

/* In the child of a fork: what its one thread has claimed. */
void pages_reset_kept(size_t pages);

/* When the decay interval under way began. */
uint64_t pages_interval_ms(void);

/* Whether arenas ask for huge pages from their start on, HUGE_PAGES_ON: they are best left whole.
 */
bool pages_are_huge(void);

/* Copies the first bytes of one block to another, giving the source's memory back as it goes, so
 * that a large move does not need both at once. The source reads anything afterwards. */
void pages_move_bytes(struct span *destination, struct span *source, size_t size_bytes);

/* Runs of pages for the allocators beside the heap, marked SPAN_RUN, so that the heap's free takes
 * none of them for a block: readable and writable, contents undefined, whole pages of the system's.
 * NULL when memory is out. run_give makes one accessible again to a memory checker that was told
 * otherwise. */
struct span *run_take(size_t size_bytes, size_t alignment_bytes);
void run_give(struct span *span);

inline_always size_t run_bytes(const struct span *span)
{
    return (size_t)span->pages << PAGE_SHIFT;
}

/* Descriptors of the allocators beside the heap: pieces of metadata memory, apart from the blocks
 * that they describe, recycled by kind but never given back. A stale handle can read an old
 * descriptor, never anything else, and finds it as it was given back. Without a lock, so it works
 * in any state of a fork. */
struct cell_list {           /* one kind; statically allocated */
    uintptr_t head;          /* atomic: see cells.c */
    size_t descriptor_bytes; /* const: a multiple of 8 */
};

/* A descriptor: its contents are those it was given back with, or zero. NULL when memory is out. */
void *cell_take_from(struct cell_list *list);
void cell_give_to(struct cell_list *list, void *descriptor);

/* Fork: see base/lock.h. */
void pages_freeze(void);
void pages_thaw(void);
void pages_thaw_in_child(void); /* and forgets what other threads were about to do */

/* Checks every arena's tags, bins, counts and map entries; asserts. Takes the lock. */
void pages_verify(void);

#endif
