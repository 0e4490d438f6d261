/* The page layer's shared state, and the steps that its files share. Internal to page/. */
#ifndef CAIRN_PAGE_STATE_H
#define CAIRN_PAGE_STATE_H

#include "base/lock.h"
#include "page/page.h"

struct page_state {
    struct lock lock;
    const struct slab_shape *shapes;  /* const after init */
    struct page_limits limits;        /* atomic, each */
    struct span *headers[COLD_KINDS]; /* page lock: unused ones, by the size of their cold area */
    size_t committed_pages;           /* atomic */
    size_t free_pages;          /* page lock; read as a hint without it: sum over free spans */
    size_t dirty_pages;         /* page lock, read without as a hint: sum over free spans */
    size_t dirty_low;           /* page lock: lowest dirty_pages since the last interval began */
    size_t purged_pages;        /* page lock, read without: in total */
    size_t purges;              /* page lock, read without: in total, one span each */
    size_t part_pages;          /* atomic: likewise, of parts of runs in use */
    size_t part_purges;         /* atomic */
    size_t huge_pages;          /* atomic: pages of huge blocks */
    size_t huge_count;          /* atomic */
    size_t apart_pages;         /* atomic: of runs taken while the lock was frozen */
    size_t purging_pages;       /* atomic: of free spans that left the bins to be purged */
    size_t purging_dirty;       /* atomic: of those, dirty */
    size_t refusals;            /* atomic: of the hard limit */
    size_t intervals;           /* atomic: decay intervals that have ended */
    bool pressed;               /* atomic: nothing free is kept */
    size_t reserved_pages;      /* page lock; read as a hint without it */
    uint64_t interval_start_ms; /* atomic */
    struct span *deferred;      /* atomic: stack, see defer() */
    uint64_t random;            /* page lock: of base/random.h, for the hardened builds */
    bool unclean;               /* atomic: a run that slabs had not zeroed came back, for good */
    size_t freezes;             /* page lock, read without: how often it was frozen for a fork */
};

extern struct page_state pages_state;

/* A stack for what cannot be done while the lock is frozen: free runs and headers (with no pages).
 * Lock-free. */
void defer(struct span *span);

/* Guarded blocks that were freed, see guarded.c: pages of memory that is kept; gives up to so many
 * back, and returns their number; what is due at the end of a decay interval. No lock held. */
extern hidden_data size_t guarded_kept; /* atomic */
size_t guarded_kept_pages(void);
size_t guarded_purge(size_t pages);
void guarded_tick(void);

/* As pages_each, the void slabs, and the runs that were taken while the lock was frozen. */
bool void_slabs_each(span_visit *visit, void *context);
bool apart_each(span_visit *visit, void *context);

/* Merges `span`, which lies in `arena` and is in no list, with its free neighbours and puts it into
 * the bins; and takes a free span out of them, so that its neighbours leave it alone. Page lock. */
struct arena;
void span_release(struct arena *arena, struct span *span);
void span_withdraw(struct span *span);

/* At the end of whatever took dirty pages: what left the bins for a moment, to be cut or merged,
 * was not needed. Page lock. */
void note_dirty_low(void);

/* Purges up to `pages` dirty pages, the longest spans first. No lock held. Returns the number
 * purged. */
size_t purge_pages(size_t pages);

/* The limits, see bound.c. heed_soft_limit purges all free memory when so many pages more would
 * pass it; no lock held. */
size_t counted_pages(void);
void heed_soft_limit(size_t pages);
/* Whether so many pages more stay within the hard limit: page lock. If not, what is needed is
 * purged, with no lock held, and then it is asked again, a few times; false when that cannot do. */
enum { LIMIT_TRIES = 3 };
bool hard_limit_admits(size_t pages);
bool purge_for_hard_limit(size_t pages);
/* Counts pages of a mapping that is to be made; given up, or counted otherwise by then. No lock
 * held. False when the hard limit refuses. */
bool huge_claim(size_t pages);
void huge_unclaim(size_t pages);

/* Purges what is above the cap; for the end of a give. No lock held. */
void purge_excess(void);

#endif
