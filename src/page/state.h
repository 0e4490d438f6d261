/* The page layer's shared state. Internal to page/. */
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
    size_t part_pages;          /* atomic: likewise, of parts of runs in use, and of room */
    size_t part_purges;         /* atomic */
    size_t huge_pages;          /* atomic: pages of huge blocks */
    size_t huge_count;          /* atomic */
    size_t room_pages;          /* page lock, read without: see room.h */
    size_t most_pages;          /* atomic: see heed_growth */
    size_t growth_pages;        /* atomic: that went back for it, and are not forgotten */
    uint64_t growth_ms;         /* atomic: the interval in which such were forgotten last */
    size_t cut_pages;           /* atomic: in cut huge pages, see makes_up_for_cuts */
    size_t apart_pages;         /* atomic: of runs taken while the lock was frozen */
    size_t swept_pages;         /* atomic: see pages_note_swept */
    size_t purging_pages;       /* atomic: of free spans that left the bins to be purged */
    size_t purging_dirty;       /* atomic: of those, dirty; and room on its way back */
    size_t refusals;            /* atomic: of the hard limit */
    size_t intervals;           /* atomic: decay intervals that have ended */
    bool pressed;               /* atomic: nothing free is kept */
    size_t reserved_pages;      /* page lock; read as a hint without it */
    uint64_t interval_start_ms; /* atomic */
    struct span *deferred;      /* atomic: stack, see defer() */
    struct span *purging;       /* page lock: see span_begin_purge */
    size_t forgets;             /* page lock: how often a fork's child counted purging_dirty anew */
    uint64_t random;            /* page lock: of base/random.h, for the hardened builds */
    bool unclean;               /* atomic: a run that slabs had not zeroed came back, for good */
    size_t freezes;             /* page lock, read without: how often it was frozen for a fork */
};

extern struct page_state pages_state;

/* In `until` of a free run on that stack: it was a slab's; it was purged. */
enum { SPAN_WAS_SLAB = 255, SPAN_WAS_PURGED = 254 };

/* A stack for what cannot be done while the lock is frozen: free runs and headers (with no pages).
 * Lock-free. */
void defer(struct span *span);

#endif
