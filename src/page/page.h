/* The page layer: runs of pages for slabs, large blocks and the other allocators. Runs are parts of
 * arenas (arena.h). Free runs are in the bins of free_spans.h. purge.h returns their memory to the
 * system.
 *
 * The layer consists of shards, so that threads need not share a lock (state.h). No lock is held
 * during a system call, except that a forking thread freezes all of them. While another thread
 * forks, no lock can be taken: then each new run is a mapping of its own, and returned runs wait in
 * lock-free lists.
 *
 * Functions that take memory return NULL or false when the system has none, or when the hard limit
 * refuses pages. Unless its comment says otherwise, a function may be called by any thread that
 * holds no lock of this layer. */
#ifndef CAIRN_PAGE_PAGE_H
#define CAIRN_PAGE_PAGE_H

#include "base/lock.h"
#include "page/meta.h"
#include "page/page_map.h"
#include "page/span.h"

/* The slabs of one size class. The heap owns an array of these, one for each class. This layer
 * reads the first four fields. */
struct slab_shape {
    uint16_t pages;          /* const: length of the run */
    uint8_t side_units;      /* const: as in the header, below SIDE_UNIT_KINDS */
    uint16_t unit_bytes;     /* const: bytes that one count of the span's `fresh_slot` stands for */
    uint8_t alignment_pages; /* const: the run begins at a multiple of this power of two */
    uint8_t capacity;        /* const: slots */
    uint32_t size_bytes;     /* const: size of a block */
    uint32_t inverse;        /* const: the multiplier of slab_slot (heap/slab.h) */
} __attribute__((aligned(16))); /* sealed_count needs whole pages */

enum { SIDE_UNIT_KINDS = 18 };

/* When huge pages are requested from the system. */
enum huge_pages {
    HUGE_PAGES_OFF,
    HUGE_PAGES_ON,   /* for whole arenas */
    HUGE_PAGES_AUTO, /* for the growth of large dense heaps and for large blocks: see grow.h */
};

enum { HUGE_PAGE_BYTES = 2 << 20, HUGE_PAGE_SHIFT = 9 /* of a number of pages */ };

/* The limits that options and control set. pages_state has the copy in use. */
struct page_limits {
    uint64_t decay_ms;       /* the longest time for which free memory is kept without use */
    size_t dirty_cap_bytes;  /* scales how much free memory is kept: see the cap, state.h */
    size_t soft_limit_bytes; /* see limits.h; 0: no limit */
    size_t hard_limit_bytes; /* see limits.h; 0: no limit */
    enum huge_pages huge_pages;
};

/* The limits before pages_configure is called: docs/reference/OPTIONS.md. */
#define PAGE_LIMITS_DEFAULT                                                                        \
    {.decay_ms = 2000, .dirty_cap_bytes = (size_t)64 << 20, .huge_pages = HUGE_PAGES_AUTO}

/* The statistics of pages_read_stats. */
struct page_stats {
    size_t reserved_bytes;      /* address space of arenas, and pages_kept_outside */
    size_t committed_bytes;     /* readable and writable part of reserved_bytes */
    size_t free_bytes;          /* free part of committed_bytes */
    size_t dirty_bytes;         /* part of free_bytes that is not purged */
    size_t huge_bytes;          /* mappings of huge blocks */
    size_t huge_count;          /* huge blocks */
    size_t meta_bytes;          /* address space of metadata */
    size_t purged_bytes;        /* purged since the start */
    size_t purges;              /* runs of pages that were purged since the start */
    size_t swept_bytes;         /* purged pages inside slabs: pages_note_swept */
    size_t counted_bytes;       /* memory that the limits count, see limits.h */
    size_t refusals;            /* takes that the hard limit refused */
    size_t intervals;           /* decay intervals that have ended */
    uint64_t interval_start_ms; /* when the last interval ended and the current one began */
    bool pressed;               /* the system is short of memory: pages_press */
};

/* Registers the layer's fork handlers with libc, once. Afterwards metadata may be taken from pages
 * of an arena. Every allocator calls it before it takes pages. libc may allocate during the call,
 * and so start the heap. */
void pages_start(void);

/* Sets the function that the fork handler calls in the child, once this layer is usable there.
 * Threads: one, at the start. */
void pages_on_fork(void (*in_child)(void));

/* Whether the parent had one thread at the fork. Then the child sees all memory of one instant.
 * Threads: the child of a fork. */
bool pages_forked_alone(void);

/* Sets the function that gives back runs which threads keep without use, called before a take from
 * the arenas fails. It returns true if it gave some back.
 * Threads: one, at the start. */
void pages_on_refusal(bool (*give_kept)(void));

/* Initialises the page map and this layer. `shapes`, by size class, stays valid for ever.
 * Threads: one, before any other thread takes pages. */
void pages_init(const struct slab_shape *shapes);

/* Set all limits, or one of them. A change takes effect with the next take or give;
 * pages_heed_limits enforces it at once. */
void pages_configure(const struct page_limits *limits);
void pages_limit_soft(size_t bytes);
void pages_limit_hard(size_t bytes);

void pages_read_limits(struct page_limits *limits);

/* Purges all free memory if the counted pages exceed one of the limits. */
void pages_heed_limits(void);

/* Sets whether the system is short of memory. While it is, no free memory is kept: the call purges
 * all of it. Run caches heed it a little later (heap/run_cache.h). */
void pages_press(bool pressed);

/* Takes the run of a slab and enters each of its pages into the page map. `base` and `tag` are set.
 * `capacity` is 0 if the header never served a slab; then its cold area is zero. The caller stores
 * the owner word, as its last step. */
struct span *pages_take_slab(unsigned class_index);

/* Gives back the run of a slab, of which `swept_pages` pages are noted as swept (pages_note_swept)
 * and were not taken again. The caller has reset `base` to the first byte of the run and `owner` to
 * 0. */
void pages_give_slab(struct span *span, size_t swept_pages);

/* Notes pages inside a slab that were purged: they no longer count for the limits (limits.h). While
 * they are noted, no block on these pages is handed out. */
void pages_note_swept(size_t pages);

/* Counts noted pages of a slab again, before it hands out blocks, if the hard limit admits them. */
bool pages_take_swept(size_t pages);

/* Takes a slab for blocks of 0 bytes (hardened builds): addresses without memory, whose access
 * faults. `base` and `tag` are set, and each page is in the page map.
 * Returns: NULL also when the fixed table of these slabs is full. */
struct span *pages_take_zero_size_slab(unsigned class_index);

/* Gives back such a slab. The caller has reset `base` to the first byte of its addresses. */
void pages_give_zero_size_slab(struct span *span);

/* Takes the run of one large block, aligned to `alignment_bytes`, a power of two. `zero` in the
 * span says whether all of it reads zero. */
struct span *pages_take(size_t pages, size_t alignment_bytes);

/* Does the same from the free pages of the arenas, without committing more.
 * Returns: NULL also when no free run fits. */
struct span *pages_take_free(size_t pages, size_t alignment_bytes);

/* Gives back the run of a large block. All of it counts as written. */
void pages_give(struct span *span);

/* Makes the first `size_bytes` of a large block read zero, without touching unused pages. */
void pages_clear(struct span *span, size_t size_bytes);

/* Extends a large block in place to `pages` pages, which the free run behind it provides.
 * Returns: false also when that run is too short, or the lock or a header is not available; then
 * nothing has changed. */
bool pages_extend(struct span *span, size_t pages);

/* Shortens a large block to its first `pages` pages and gives the remaining pages back.
 * Returns: false when the block is in no arena, or the lock or a header is not available; then
 * nothing has changed. */
bool pages_shrink(struct span *span, size_t pages);

/* Makes a huge block: a mapping of its own, which reads zero. A resize may move the block. */
struct span *pages_map_huge(size_t size_bytes, size_t alignment_bytes);

/* Lets the system commit a mapping that it has refused, in place of free runs. Not for one that is
 * longer than all that the arenas have, nor where there are no addresses for it.
 * Returns: whether to try again. */
bool pages_make_room(size_t size_bytes, size_t alignment_bytes);

/* Gives back a huge block, or keeps its mapping: see kept_mappings.h. */
void pages_give_huge(struct span *span);

/* Takes a huge block, with undefined content, from a kept mapping; NULL if none is long enough. */
struct span *pages_map_kept(size_t size_bytes);

/* Makes a huge block for a block that grew and will probably grow again: from a kept mapping, or a
 * new mapping with addresses to spare. `zero` in the span says whether it reads zero. */
struct span *pages_map_growing(size_t size_bytes);

/* The length of the new mapping that pages_map_growing makes: an eighth more than `size_bytes`, and
 * from some MiB on a multiple of a huge page. Linux 6.7 and later then places the mapping at the
 * start of a huge page and moves it without dividing huge pages. */
size_t pages_growing_bytes(size_t size_bytes);

/* Extends a huge block in place to `pages` pages, of the kept mapping behind it; no system call.
 * Returns: false when no kept mapping there is long enough. */
bool pages_extend_huge(struct span *span, size_t pages);

/* Resizes a huge block in place or, if `may_move`, by moving its page tables to other addresses. A
 * kept mapping behind the block is added to it, also when the resize fails.
 * Returns: false when refused; then address and content are unchanged. */
bool pages_resize_huge(struct span *span, size_t size_bytes, bool may_move);

/* Hints that a huge block will be written in full. Asks the system for huge pages if the huge
 * blocks are a small part of all counted memory. Called for blocks that need not read zero. */
void pages_expect_filled(struct span *span);

/* Makes a huge block between guard pages (hardened builds), for the next two functions only.
 * `spare_bytes` of addresses are reserved behind it for growth. */
struct span *pages_map_guarded(size_t size_bytes, size_t alignment_bytes, size_t spare_bytes);

/* Frees a guarded block: revokes the access to its addresses (revoked.h). */
void pages_give_guarded(struct span *span);

/* Resizes a guarded block in place or, if `may_move`, by moving its page tables to other addresses.
 * Returns: false when refused; then the block is unchanged. */
bool pages_resize_guarded(struct span *span, size_t size_bytes, bool may_move);

/* Cuts a large or huge span in two. `span` keeps its first `pages`; the returned span has the
 * remaining pages and the same tag. The caller updates the page map.
 * Returns: NULL when out of memory; then nothing has changed. */
struct span *pages_split(struct span *span, size_t pages, bool huge);

/* Lets the calling thread take its runs from a shard that no other thread uses, or the fewest
 * threads: `last` if it is one of these. A thread that never calls this uses the first one.
 * Returns: the number of the shard. */
uint8_t pages_enter_shard(uint8_t last);

void pages_leave_shard(uint8_t number);

/* Purges all free memory but `keep_bytes`. Returns: true when some memory was purged. */
bool pages_trim(size_t keep_bytes);

/* Does a part of the work that is due by age: ends the decay interval if its time is over, half of
 * decay_ms, and makes free memory due that the interval did not need; calls the function of
 * pages_on_tick; and purges a part of the due memory. Called on slow paths.
 * Cost: one read of the clock when nothing is due, else bounded: see purge.h. */
void pages_tick(void);

/* Purges a part of the due memory. Returns: false when there was none. */
bool pages_purge_due(void);

/* Sets the function that each pages_tick calls without a lock; once in each decay interval,
 * `interval_ends` is true.
 * Threads: one, at the start. */
typedef bool pages_ticker(bool interval_ends);
void pages_on_tick(pages_ticker *ticker);

/* Reads the statistics. Values that change during the call may not fit together. */
void pages_read_stats(struct page_stats *stats);

/* Calls `visit` for each span in use: those in the arenas and those outside. Other threads may
 * change spans during the walk, unless the layer is frozen. */
void pages_each(span_visit *visit, void *context);

/* Does this for runs that were taken during a fork and slabs of pages_take_zero_size_slab. */
void pages_each_outside(span_visit *visit, void *context);

/* Does this for the spans in the arenas, in parts: each call takes at most `spans` steps and
 * continues at `*at`, which is 0 at first. Returns: true when the walk is over. */
bool pages_each_part(size_t *at, size_t spans, span_visit *visit, void *context);

/* Finds the span in use that holds `address`, which may be in the middle of a large block. `*start`
 * gets the first byte of the span.
 * Returns: NULL if there is none.
 * Cost: a walk backwards through the page map; for messages only. */
struct span *pages_search(const void *address, char **start);

/* Whether `address` is in an arena, before its frontier. Lock-free. */
bool pages_holds(const void *address);

/* Purges the whole system pages within a part of a run in use. They read zero afterwards.
 * Returns: the number of purged map pages, 0 when the system refuses. */
size_t pages_purge_part(char *start, size_t pages);

/* Does this for those of the 64 pages from `start` on whose bits are set in `marked`.
 * Returns: the bits of the pages that were purged. */
uint64_t pages_purge_marked(char *start, uint64_t marked);

/* Selects the pages that pages_purge_marked can purge, and returns their bits. Where a system page
 * consists of several map pages, all of them must be marked. */
uint64_t pages_whole_marked(const char *start, uint64_t marked);

/* Whether the huge page of the address was requested and no part of it was purged since, and memory
 * is not short. */
bool pages_in_huge_page(const char *address);

/* The number of free pages that one cache may retain for its next need: an eighth of the option
 * `dirty_cap`, and 0 under memory pressure. Approximate. */
size_t pages_most_kept(void);

/* The memory that the limits count. Approximate. */
size_t pages_counted_bytes(void);

/* Whether arenas ask for huge pages from their start to their end (HUGE_PAGES_ON). Then parts of
 * huge pages should not be purged. */
bool pages_are_huge(void);

/* Copies the first bytes of one block to another. A large source is purged during the copy, so that
 * not both need memory at once; afterwards its content is undefined. */
void pages_move_bytes(struct span *destination, struct span *source, size_t size_bytes);

/* Takes a run of whole system pages for an allocator other than the heap, with undefined content.
 * Its tag is SPAN_RUN, so the heap's free accepts no pointer into it. */
struct span *run_take(size_t size_bytes, size_t alignment_bytes);

/* Gives back a run of run_take, and marks it as accessible for memory checkers. */
void run_give(struct span *span);

inline_always size_t run_bytes(const struct span *span)
{
    return (size_t)span->pages << PAGE_SHIFT;
}

/* One kind of descriptors of the allocators other than the heap, statically allocated. Descriptors
 * are pieces of metadata memory. They are recycled within their kind and never given back: a stale
 * handle can read an old descriptor with its last content, and nothing else. Lock-free, so it works
 * in any state of a fork. */
struct descriptor_pool {
    uintptr_t head;          /* atomic: the free descriptors, see base/tagged.h */
    size_t descriptor_bytes; /* const: size of one descriptor, a multiple of 8 */
} cache_aligned;

/* Takes a descriptor: zero, or with the content with which it was given back. */
void *descriptor_take_from(struct descriptor_pool *list);

void descriptor_give_to(struct descriptor_pool *list, void *descriptor);

/* Before fork: takes and freezes the layer's locks. Calls nest: see base/lock.h. */
void pages_freeze(void);

/* After fork, in the parent: ends pages_freeze. */
void pages_thaw(void);

/* After fork, in the child: ends pages_freeze. Runs that other threads were purging become free;
 * runs and headers that waited in the lock-free lists are lost. */
void pages_thaw_in_child(void);

/* Checks tags, bins, counts and map entries of each arena, with assertions. Takes the locks of
 * the layer. Does nothing in builds without config_debug. */
void pages_verify(void);

/* Locks of private heaps and of the other allocators. fork takes all watched ones, so that the data
 * that they protect is consistent in the child.
 *
 * A thread that holds one of these locks may take locks of the page layer, and makes no system
 * calls except those of the page layer. A signal handler that interrupts it may fork: base/lock.h.
 *
 * A waiting thread waits until the fork is over. If it holds a lock that fork itself takes (a
 * lock of stdio), there is a deadlock; the public headers tell programs to avoid that. */

/* One lock, in memory of its user. Zero while it is free and not watched. */
struct fork_lock {
    struct lock lock;       /* its rank is not checked: there may be any number of them */
    struct fork_lock *next; /* lock: list in pages.c; NULL while it is not watched */
    struct fork_lock *prev; /* lock: list in pages.c */
};

/* Adds a lock to those that fork takes, unless it is one of them already. The memory of the lock
 * must exist until fork_lock_unwatch.
 * Locking: none of these locks held. */
void fork_lock_watch(struct fork_lock *lock);

/* Removes it. Locking: none of these locks held. */
void fork_lock_unwatch(struct fork_lock *lock);

/* The number of forks from the first process to this one, different in a child and its parent. */
uint32_t fork_lock_process(void);

/* Takes the lock; waits if another thread holds it. Acquire: pairs with fork_lock_release. */
void fork_lock_acquire(struct fork_lock *lock);

/* Releases the lock and wakes one waiting thread. */
void fork_lock_release(struct fork_lock *lock);

#endif
