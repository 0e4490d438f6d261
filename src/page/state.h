/* The shared state of the page layer, for the files of this folder only: its lock, counts and
 * limits, the unused headers of spans, and the cap on free memory.
 *
 * Threads: each field says which lock protects it or that it is atomic. "page lock, atomic" is a
 * field that is written with the page lock held, and read without it where an approximate value
 * will do.
 */
#ifndef CAIRN_PAGE_STATE_H
#define CAIRN_PAGE_STATE_H

#include "base/compiler.h"
#include "base/lock.h"
#include "page/page.h"
#include "page/span.h"

/* The state of the page layer. */
struct page_state {
    /* A cache line that hardly changes. */
    struct page_limits limits;       /* atomic, each field */
    const struct slab_shape *shapes; /* const after init: by size class */
    bool pressed;                    /* atomic: no free memory is kept */
    /* Fields that change often. */
    struct lock lock cache_aligned;
    struct span
        *headers[SIDE_UNIT_KINDS]; /* page lock: unused headers by the size of their cold area */
    size_t committed_pages; /* page lock, atomic: committed pages of all arenas, from the moment
                               when they were first free */
    size_t free_pages;             /* page lock, atomic: sum over free spans */
    size_t dirty_pages;            /* page lock, atomic: sum over free spans */
    size_t dirty_low;          /* page lock: lowest dirty_pages since the decay interval began */
    size_t purged_pages;       /* page lock, atomic: purged pages since the start, of free spans */
    size_t purges;             /* page lock, atomic: free spans that were purged, since the start */
    size_t part_pages;         /* atomic: purged pages of runs in use and kept mappings */
    size_t part_purges;        /* atomic: purges that part_pages counts */
    size_t huge_pages;         /* atomic: pages of huge blocks */
    size_t huge_count;         /* atomic: huge blocks */
    size_t kept_mapping_pages; /* page lock, atomic: pages of kept mappings, see kept_mappings.h */
    size_t most_pages;         /* atomic: highest count that limits_enforce_peak has accepted */
    size_t growth_pages; /* atomic: pages purged to avoid a higher peak and not forgotten yet */
    uint64_t growth_ms;  /* atomic: start of the interval in which growth_pages was last reduced */
    size_t small_pages;  /* atomic: pages to grow by before huge pages are used, see grow.c */
    size_t examine_from_pages; /* atomic: committed pages from which grow.c examines pages again */
    bool in_huge_pages;  /* atomic: whether the last growth was in huge pages */
    size_t fork_run_pages; /* atomic: pages of runs that were taken while the lock was frozen */
    size_t swept_pages;    /* atomic: see pages_note_swept */
    size_t purging_pages;  /* atomic: pages of spans that are out of the bins to be purged */
    size_t purging_dirty; /* atomic: dirty pages of these spans, and pages of kept mappings that are
                             being unmapped */
    size_t refusals;      /* atomic: takes that the hard limit refused */
    size_t intervals;     /* atomic: decay intervals that have ended */
    size_t reserved_pages;      /* page lock, atomic: address space of all arenas */
    uint64_t interval_start_ms; /* atomic: start of the current decay interval */
    struct span *deferred;      /* atomic: stack of free runs and headers, see defer() */
    struct span *purging;       /* page lock: spans that are being purged, see span_begin_purge */
    size_t purging_resets;      /* page lock: how often a child of fork has reset purging_dirty */
    uint64_t random;            /* page lock: state of base/random.h, hardened builds */
    bool unclean;   /* atomic: whether a run that was not a slab's was ever given back, so that free
                       pages may not be zero */
    size_t freezes; /* page lock, atomic: how often it was frozen for a fork */
};

static_check(offsetof(struct page_state, lock) == 64, "the limits have a line of their own");

extern struct page_state pages_state;

/* Values of `mark` in a run on the stack `deferred`: the run was a slab's; the run was being
 * purged; the run was just committed. A new run counts from the moment when it becomes free.
 * Otherwise the hard limit would refuse other threads what this growth is for. */
enum { SPAN_WAS_SLAB = 255, SPAN_WAS_PURGED = 254, SPAN_IS_NEW = 253 };

/* Puts a free run, or an unused header (with no pages), on the stack `deferred`. The next thread
 * that takes the page lock processes it. Lock-free, so it works while the lock is frozen. */
void defer(struct span *span);

/* Unused headers of spans, and the tagged heads of lock-free lists.
 *
 * A header has its cold area right behind it, so unused headers are kept in one list for each size
 * of the cold area. Headers are dense in metadata memory; one that was never used has cost no
 * memory.
 *
 * A tagged head is one word: the address of the first element, a multiple of 64 below 2^48, and in
 * the other 22 bits a tag. Each change of the head takes the next tag. So the head differs from an
 * earlier one even if the same element was taken and returned in between (the ABA problem).
 * Elements stay mapped for ever, so a late thread may still read the link of an element that
 * another thread took.
 *
 * Threads: see each function. state.c explains how the lists are used during a fork.
 */

#define TAG_MASK ((uintptr_t)0xffff00000000003f)

/* The address in a tagged head. */
inline_always uintptr_t tagged_address(uintptr_t head) { return head & ~TAG_MASK; }

/* The tag that follows the tag of `head`, in its place in the word. */
inline_always uintptr_t tagged_next_tag(uintptr_t head)
{
    uintptr_t low = (head + 1) & 63;
    uintptr_t high = low == 0 ? ((head >> 48) + 1) & 0xffff : head >> 48;
    return high << 48 | low;
}

/* Takes a header from the list for this size of the cold area.
 * Locking: page lock held.
 * Returns: NULL when the list is empty. */
struct span *header_pop(unsigned side_units);

/* Puts an unused header into its list.
 * Locking: page lock held. */
void header_push(struct span *span);

/* Makes a new header.
 * Threads: any.
 * Returns: NULL when out of memory. */
struct span *header_make(unsigned side_units);

/* Takes an unused header or makes a new one, also while the page lock is frozen.
 * Locking: none held.
 * Returns: NULL when out of memory. */
struct span *header_take(unsigned side_units);

/* Gives back a header that has no pages any more, also while the page lock is frozen.
 * Locking: none held. */
void header_return(struct span *span);

/* At the freeze for a fork: lends the lists, so that header_take and header_return use them without
 * the lock until headers_take_back.
 * Locking: page lock held. */
void headers_lend(void);

/* At the thaw: takes back the lent lists. If `whole` is false, their content is forgotten.
 * Locking: page lock held. */
void headers_take_back(bool whole);

/* The cap: how much free memory is kept instead of being purged at once. It learns.
 *
 * Purged memory costs page faults when it is needed again; kept memory is not available to other
 * programs. The allocator cannot know in advance which is better. So the cap starts at one value
 * and is adapted:
 *
 *   at first    a quarter of the option `dirty_cap`
 *   lowered     by a sixteenth of the memory that is purged above it, down to a 32nd of the option:
 *               a large heap that shrinks for ever keeps little in the end
 *   raised      by the memory that was purged above it in this decay interval or the one before
 *               and was taken again, and an eighth more, up to 16 times the option
 *   at the end  of each interval its distance from the first value becomes smaller by an eighth,
 *               but the cap does not fall below the swing of the free memory: from the largest
 *               amount before a take to the smallest amount after one
 *
 * So memory that is freed and taken again faster than the decay is purged once or twice and then
 * stays. Once it is not taken again, the cap falls and the decay purges the rest. Whatever the cap,
 * a heap may keep as much free memory as it has in use (purge.c). Memory that is purged by age, for
 * a limit, by a trim, or because the system is short of memory does not change the cap.
 *
 * Threads: any, atomic words. A race makes the cap slightly wrong for some intervals.
 */

enum {
    CAP_FIRST_PART = 4,    /* first cap: the option divided by this */
    CAP_MIN_PART = 32,     /* lowest cap: the option divided by this */
    CAP_MAX_TIMES = 16,    /* highest cap: the option times this */
    CAP_LOWERED_PART = 16, /* the cap is lowered by the purged memory divided by this */
};

/* The cap: the number of free pages that may be kept. */
size_t cap_pages(void);

/* Notes pages that were purged because they were above the cap. Does nothing while the system is
 * short of memory. */
void cap_note_given(size_t pages);

/* Notes pages that were taken without finding free memory for them. */
void cap_note_taken(size_t pages);

/* Notes that `pages` of the `of_pages` free pages with memory were taken. */
void cap_note_again(size_t pages, size_t of_pages);

/* Ends a decay interval: moves the cap towards its first value. */
void cap_age(void);

#endif
