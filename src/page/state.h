/* The state of the page layer, for the files of this folder only.
 *
 * A shard is a page layer of its own: a lock, arenas, bins of free spans, and unused headers. There
 * are as many as the process has processors, at most SHARDS_MAX, and no more than it had threads at
 * a time. A thread that gets a heap takes its runs from a shard that no other thread uses, if there
 * is one. A header belongs to one shard for ever, and so does the run that it describes, if that is
 * in an arena: each thread returns the run to that shard. Neighbours of different shards are never
 * merged.
 *
 * A thread takes from another shard in two cases: its own would have to grow, and the other one has
 * more free memory than it uses, by as much as the longest growth (decision 49); or the system
 * refuses memory.
 *
 * The counts of free pages in pages_state, which all threads read, are approximate: a shard adds
 * its changes when these exceed TOLD_PAGES. With one shard, and with a limit, it adds them after
 * each operation, so the counts are exact. Otherwise a give compares the free memory with the cap
 * only if the shard has told its counts since a give found them below.
 *
 * Locks: a shard's lock protects what belongs to the shard. The page lock protects the rest: kept
 * mappings, the list of all arenas, and the admission by the hard limit. A thread holds one shard's
 * lock at most, and may take the page lock while it does. With a hard limit each operation on a
 * shard holds the page lock, too: so takes are admitted one at a time, by exact counts.
 * Threads: each field says which lock protects it or that it is atomic. "shard's lock, atomic" is a
 * field that is written with the lock held, and read without it where an approximate value will do.
 */
#ifndef CAIRN_PAGE_STATE_H
#define CAIRN_PAGE_STATE_H

#include "base/compiler.h"
#include "base/lock.h"
#include "page/page.h"
#include "page/span.h"

enum {
    SHARDS_MAX = 64,
    TOLD_PAGES = (1 << 20) >> PAGE_SHIFT,
    GROWTH_MAX_PAGES = 2 * HUGE_PAGE_BYTES >> PAGE_SHIFT, /* except for a longer run */
};

/* The bins of free_spans.c. */
enum {
    EXACT_BINS = 64, /* lengths below this have a bin each */
    STEP_BITS = 4,   /* 16 bins for each doubling above */
    BIN_COUNT = EXACT_BINS + (32 - 6) * (1 << STEP_BITS),
    BIN_WORDS = (BIN_COUNT + 63) / 64,
    LOOSE_MAX = 64, /* spans */
};

enum { CLEAN, DIRTY, SETS }; /* sets of bins: spans without memory, spans with memory */

/* A shard. All that a thread needs for short runs is in the first system page. */
struct page_shard {
    struct lock lock;
    /* Written with each span that leaves or enters the bins. */
    size_t free_pages cache_aligned; /* shard's lock, atomic: sum over free spans */
    size_t dirty_pages;              /* shard's lock, atomic: sum over free spans */
    size_t dirty_low;       /* shard's lock: lowest dirty_pages at a release of the lock since the
                               decay interval began */
    size_t dirty_high;      /* shard's lock: highest dirty_pages before a take of some since then */
    struct arena *arenas;   /* atomic, shard's lock to write: its arenas, the newest first */
    struct span *purging;   /* shard's lock: spans that are being purged, see span_begin_purge */
    size_t due_pages;       /* shard's lock, atomic: pages that are due, see purge.h */
    size_t stuck_pages;     /* atomic, approximate: dirty pages that the last whole pass left */
    size_t told_free;       /* shard's lock: free pages that pages_state counts */
    size_t told_dirty;      /* shard's lock: dirty pages that pages_state counts */
    size_t committed_pages; /* shard's lock, atomic: committed pages of its arenas */
    size_t reserved_pages;  /* shard's lock: address space of its arenas */
    uint64_t random;        /* shard's lock: state of base/random.h, hardened builds */
    bool has_page_lock;     /* shard's lock: whether its holder has taken the page lock as well */
    uint32_t tells;         /* shard's lock, atomic: how often it told its counts, wraps around */
    uint32_t compared;      /* atomic: `tells` when a give last found them below the cap */
    /* Written with each header that is taken or becomes unused. */
    struct span *headers[SIDE_UNIT_KINDS]; /* shard's lock: unused ones by their side_units */
    /* Written before the lock is taken. */
    struct span *deferred cache_aligned; /* atomic: stack of free runs and headers, see defer() */
    uint64_t filled[SETS][BIN_WORDS] cache_aligned; /* shard's lock: a bit for each filled bin */
    unsigned loose_count;                           /* shard's lock: number of loose spans */
    struct span *loose[LOOSE_MAX];                  /* shard's lock: the loose spans */
    struct span *heads[BIN_COUNT][SETS];            /* shard's lock: first span of each bin */
    uintptr_t shared_headers[SIDE_UNIT_KINDS];      /* atomic, tagged: lists of header_return */
} __attribute__((aligned(PAGE_BYTES)));

extern hidden_data struct page_shard page_shards[SHARDS_MAX];

/* The number of the shard from which this thread takes runs. */
extern hidden_data thread_local_word uint8_t own_shard;

inline_always struct page_shard *shard_own(void) { return &page_shards[own_shard]; }

inline_always struct page_shard *shard_of(const struct span *span)
{
    return &page_shards[span->shard];
}

inline_always uint8_t shard_number(const struct page_shard *shard)
{
    return (uint8_t)(shard - page_shards);
}

/* Takes the lock of a shard, and the page lock if there is a hard limit.
 * Returns: false when another thread has frozen them for a fork. */
bool shard_acquire(struct page_shard *shard) __attribute__((warn_unused_result));

/* Does the same if no thread holds or has frozen any of them. */
bool shard_try_acquire(struct page_shard *shard) __attribute__((warn_unused_result));

/* Tells the counts of the shard and releases what shard_acquire took. */
void shard_release(struct page_shard *shard);

/* Changes the number of committed pages of a shard, and of the process.
 * Locking: shard's lock held. */
void shard_count_committed(struct page_shard *shard, size_t change);

/* In the child of a fork: counts no thread as a user of shards. Its thread enters one again. */
void shards_forget_threads(void);

/* The committed pages of all shards that are neither free nor being purged, approximately. */
size_t shards_used_pages(void);

/* The exact numbers of free pages and of dirty ones, of all shards. */
void shards_count_free(size_t *free_pages, size_t *dirty_pages);

/* The state that shards share. Fields that threads write at the same points share cache lines. */
struct page_state {
    /* Rarely written. */
    struct page_limits limits;       /* atomic, each field */
    const struct slab_shape *shapes; /* const after init: by size class */
    unsigned shard_count;            /* atomic, lock of the first shard to write: shards in use */
    bool pressed;                    /* atomic: no free memory is kept */
    /* Read by all threads that wait for the lock. */
    struct lock lock cache_aligned;
    /* Written when a shard tells its counts, and by growth and purges. */
    size_t committed_pages cache_aligned; /* atomic: of all arenas, once they were free */
    size_t free_pages;                    /* atomic, approximate: of all shards */
    size_t dirty_pages;                   /* atomic, approximate: of all shards */
    uint64_t lending;                     /* atomic: a bit for each shard that lends runs */
    size_t purged_pages;                  /* atomic: purged pages since the start, of free spans */
    size_t purges;                        /* atomic: free spans that were purged, since the start */
    size_t reserved_pages;                /* page lock, atomic: address space of all arenas */
    size_t kept_mapping_pages;            /* page lock, atomic: see kept_mappings.h */
    /* Counted by limits_counted_pages, and written by threads that sweep, purge or map. */
    size_t huge_pages cache_aligned; /* atomic: pages of huge blocks */
    size_t fork_run_pages; /* atomic: pages of runs that were taken while the locks were frozen */
    size_t swept_pages;    /* atomic: see pages_note_swept */
    size_t purging_pages;  /* atomic: pages of spans that are out of the bins to be purged */
    size_t purging_dirty;  /* atomic: their dirty pages, and kept pages that are being unmapped */
    size_t most_pages;     /* atomic: highest count at a call of limits_heed_growth */
    size_t huge_count;     /* atomic: huge blocks */
    /* Read at each tick and each growth, written once in an interval or a growth. */
    uint64_t interval_start_ms cache_aligned; /* atomic: start of the current decay interval */
    size_t intervals;                         /* atomic: decay intervals that have ended */
    size_t small_pages; /* atomic: pages to grow by before huge pages are used, see grow.c */
    size_t refusals;    /* atomic: takes that the hard limit refused */
    size_t freezes;     /* atomic: freezes and thaws for forks */
    bool unclean;       /* atomic: whether free pages may not be zero, see pages_take_slab */
    /* For figures, forks and kept mappings only. */
    size_t part_pages cache_aligned; /* atomic: purged pages of runs in use and kept mappings */
    size_t part_purges;              /* atomic: purges that part_pages counts */
    size_t kept_ranges;              /* page lock: number of kept mappings */
    size_t kept_high;      /* page lock, atomic: most kept pages before a take in this interval */
    size_t kept_low;       /* page lock: fewest kept pages after that */
    size_t purging_resets; /* page lock: how often a child of fork has reset purging_dirty */
};

static_check(SHARDS_MAX == 64, "`lending` has a bit for each");
static_check(offsetof(struct page_state, lock) == 64, "the limits have a line of their own");
static_check(offsetof(struct page_state, committed_pages) == 128, "the lock has, too");
static_check(offsetof(struct page_state, huge_pages) == 192, "the counts of spans fill a line");
static_check(offsetof(struct page_state, part_pages) ==
                 offsetof(struct page_state, interval_start_ms) + 64,
             "what each tick reads fills a line");
static_check(offsetof(struct page_shard, heads[EXACT_BINS + 5 * 16]) <= PAGE_BYTES,
             "the bins up to 8 MiB are in the first page");

extern struct page_state pages_state;

inline_always unsigned shard_count(void) { return load_relaxed(&pages_state.shard_count); }

/* Values of `mark` in a run on the stack `deferred`: it was a slab's; it was being purged; it was
 * just committed. A new run counts from the moment when it becomes free: otherwise the hard limit
 * would refuse other threads what this growth is for. */
enum { SPAN_WAS_SLAB = 255, SPAN_WAS_PURGED = 254, SPAN_IS_NEW = 253 };

/* Puts a free run, or an unused header (with no pages), on the stack `deferred` of its shard, for
 * free_spans_settle. Lock-free, so it works while the lock is frozen. */
void defer(struct span *span);

/* Unused headers of spans.
 *
 * A header has its cold area right behind it, so there is a list for each size of the cold area.
 * Headers are dense in metadata memory; one that was never used has cost no memory.
 *
 * Each shard has such lists twice. The lock of the shard protects those from which pages_take and
 * the bins get their headers. All others, such as spans outside the arenas, use lists that need no
 * lock (base/tagged.h), so also while another thread forks. Where one list is empty, the other
 * serves; before a fork, the list without a lock gets some.
 *
 * Returns: NULL or false when out of memory. */

/* Takes a header from the list of the shard, or NULL. Locking: shard's lock held. */
struct span *header_pop(struct page_shard *shard, unsigned side_units);

/* Puts an unused header into its list. Locking: lock of the header's shard held. */
void header_push(struct span *span);

/* Makes `count` adjacent headers for a shard, linked by `next`. */
struct span *headers_make(const struct page_shard *shard, unsigned side_units, unsigned count);

/* Takes or makes headers for a list that ran empty. They are deferred, and the next holder of the
 * lock puts them into the list. */
bool headers_refill(struct page_shard *shard, unsigned side_units);

/* Takes an unused header of a shard or makes a new one, without the lock if it is frozen.
 * Locking: none held. */
struct span *header_take(struct page_shard *shard, unsigned side_units);

/* Gives back a header that has no pages any more, without a lock. */
void header_return(struct span *span);

/* Before a fork: fills the list without a lock, because the other cannot be used meanwhile.
 * Locking: shard's lock held. */
void headers_share(struct page_shard *shard);

/* The cap: how much free memory is kept instead of being purged at once. It adapts to the program,
 * for the reasons of decision 37:
 *   at first    a quarter of the option `dirty_cap`
 *   lowered     by a sixteenth of the memory that is purged above it, down to a 32nd of the option:
 *               a large heap that shrinks for ever keeps little in the end
 *   raised      by the memory that was purged above it in this decay interval or the one before
 *               and was taken again, and an eighth more, up to 16 times the option
 *   at the end  of each interval its distance from the first value becomes smaller by an eighth,
 *               but the cap does not fall below the swing of the free memory: the sum, over the
 *               shards and for kept mappings, of the largest amount before a take less the
 *               smallest one
 *
 * Whatever the cap, a heap may keep as much free memory as it has in use (purge.c). Memory that is
 * purged by age, for a limit, by a trim, or because the system is short of memory does not change
 * the cap.
 * Threads: any, atomic words. A race makes the cap slightly wrong for some intervals. */

enum {
    CAP_FIRST_PART = 4,    /* first cap: the option divided by this */
    CAP_MIN_PART = 32,     /* lowest cap: the option divided by this */
    CAP_MAX_TIMES = 16,    /* highest cap: the option times this */
    CAP_LOWERED_PART = 16, /* the cap is lowered by the purged memory divided by this */
};

size_t cap_pages(void);

/* Notes pages that were purged because they were above the cap. */
void cap_note_given(size_t pages);

/* Notes pages that were taken without finding free memory for them. */
void cap_note_taken(size_t pages);

/* Ends a decay interval: moves the cap towards its first value, but not below the swing. */
void cap_age(size_t swing_pages);

#endif
