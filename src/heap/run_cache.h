/* Runs of pages that a thread needs no more just now, kept for its next need of the same kind:
 * freed large blocks by their length, emptied slabs by their class. A cycle of such takes no lock,
 * and writes nothing that other threads read.
 *
 * A place for each remainder of the length, and for each class; a newcomer sends the one before it
 * back to the pages. Long runs are much memory, and most lengths never come again: one is kept only
 * as part of a cycle, when its place has seen nothing but that length freed and asked for, by turns
 * and RUN_CACHE_CYCLES times; and a few MiB of them together, none under memory pressure
 * (pages_may_keep). What all threads keep of them is bounded, too (pages_claim_kept): a claim stays
 * with its place while the run is in use, so that a cycle does not write what all threads share.
 *
 * What is kept is no part of a peak: a thread that took memory which nothing held before gives all
 * of it to the pages, so its next takes use that up before the process grows on.
 *
 * A kept large run is free to everybody: its second free dies, statistics and walks do not see it.
 * A kept slab stays a slab, of no heap and without a block in use. The places are emptied by atomic
 * exchange, so any thread may empty any cache: for trim, when memory is out, and when a run has
 * been kept through a whole decay interval, also by an idle thread; in a process of one thread
 * loads and stores do for that (base/alone.h). Only the owner fills them: a place that it finds
 * empty stays so, and a store will do.
 */
#ifndef CAIRN_HEAP_RUN_CACHE_H
#define CAIRN_HEAP_RUN_CACHE_H

#include "base/alone.h"
#include "base/layout.h"
#include "heap/growth.h"
#include "heap/slab.h"

enum {
    RUN_CACHE_SHORT = 8, /* places of short runs */
    RUN_CACHE_LONG = 8,  /* of longer ones, behind them; the classes' come last */
    RUN_CACHE_LARGE = RUN_CACHE_SHORT + RUN_CACHE_LONG,
    RUN_CACHE_SHORT_PAGES = 64,  /* of a short run */
    RUN_CACHE_MAX_PAGES = 1024,  /* of a long one */
    RUN_CACHE_LONG_PAGES = 1536, /* of all kept long ones together */
    RUN_CACHE_CYCLES = 3,        /* so often a long run is seen before it is kept */
    RUN_CACHE_TURNS = 64,        /* so many runs kept ask once what is due by age */
    RUN_CACHE_GROWTH = RUN_CACHE_LARGE + CLASS_COUNT, /* the last place: see growth.h */
    RUN_CACHE_PLACES,
    RUN_CACHE_SLAB_BYTES = 2 << 20, /* of all slabs together, as far as they were used */
};

struct run_cache {
    uintptr_t places[RUN_CACHE_PLACES]; /* atomic: see run_cache.c */
    size_t held_bytes;                  /* owner: of slabs that it put there, less those it took */
    size_t given_bytes;                 /* atomic: of those, what went to the pages instead */
    uint16_t pages[RUN_CACHE_LARGE];    /* owner: length of what came there last: kept, but where
                                           the place is empty */
    bool asked[RUN_CACHE_LARGE];        /* owner: that length was asked for since */
    uint8_t cycles[RUN_CACHE_LARGE];    /* owner: of a long one, how often before it came again */
    uint8_t turns;                      /* owner: runs to keep until the next look at what is due */
    struct span *last;                  /* owner: taken last the short way; see run_cache_guess */
};

/* Kept in slabs, as far as they were used. The owner's, but what others take meanwhile. */
inline_always size_t run_cache_slab_bytes(const struct run_cache *cache)
{
    return cache->held_bytes - load_relaxed(&cache->given_bytes);
}

/* A run of exactly so many pages; NULL when none is kept. The owner's. Its content is anything. */
struct span *run_cache_take(struct run_cache *cache, size_t pages);

/* The same of a short run, and the rest of run_cache_put's work in a cycle of such: false, and
 * nothing happened, unless the run that came to the place last had its length and is in use, and
 * nothing is due. */
inline_always struct span *run_cache_take_short(struct run_cache *cache, size_t pages)
{
    size_t place = pages % RUN_CACHE_SHORT;
    uintptr_t kept = load_relaxed(&cache->places[place]);
    if (cache->pages[place] != pages || kept == 0)
        return NULL;
    if (likely(is_alone()))
        store_relaxed(&cache->places[place], (uintptr_t)0);
    else if ((kept = exchange_acquire(&cache->places[place], (uintptr_t)0)) == 0)
        return NULL; /* pairs with the release of whoever put it there */
    struct span *span = (struct span *)(kept & ~(uintptr_t)LAYOUT_KEPT_AGED);
    store_relaxed(&span->tag, (uint8_t)SPAN_LARGE);
    if (cache->last != span)
        cache->last = span;
    return span;
}

/* The span that a free has found, and most often the one that was taken last. Then it is read from
 * here: what follows need not wait for the page map, and a cycle is no chain of dependent loads. */
inline_always struct span *run_cache_guess(const struct run_cache *cache, struct span *found)
{
    return likely(load_folded(&cache->last) == found) ? load_relaxed(&cache->last) : found;
}

/* The block at `base`, of so many pages, is freed: from `kind` to KEPT. False when another thread
 * freed it since it was looked at: then the header may be another block's by now, which stays. */
inline_always bool run_cache_mark(struct span *span, const void *base, size_t pages, uint8_t kind)
{
    uint8_t seen = kind;
    if (likely(is_alone())) {
        store_relaxed(&span->tag, (uint8_t)SPAN_KEPT);
        return true;
    }
    if (unlikely(!compare_swap_acq_rel(&span->tag, &seen, (uint8_t)SPAN_KEPT)))
        return false;
    if (likely(span->base == base && span->pages == pages))
        return true;
    store_release(&span->tag, kind); /* pairs with the swap of whoever frees it */
    return false;
}

inline_always bool run_cache_keep_short(struct run_cache *cache, struct span *span,
                                        const void *base)
{
    size_t pages = span->pages;
    size_t place = pages % RUN_CACHE_SHORT; /* no long run ever comes there */
    if (cache->pages[place] != pages || load_relaxed(&cache->places[place]) != 0 ||
        --cache->turns == 0 || !run_cache_mark(span, base, pages, SPAN_LARGE))
        return false;
    store_relaxed(&span->zero, false);
    store_release(&cache->places[place], (uintptr_t)span);
    return true;
}

/* Likewise of a long run, whose place awaits it. */
bool run_cache_keep_long(struct run_cache *cache, struct span *span, const void *base);

/* Keeps a large block's run, or gives it to the pages; so also the run that was in its place. True
 * when it is time to ask what is due by age: always when a run went to the pages, and now and then.
 * The owner's. */
bool run_cache_put(struct run_cache *cache, struct span *span);

/* A slab of the class as it was put, but without an owner; NULL when none is kept. The owner's. */
struct span *run_cache_take_slab(struct run_cache *cache, unsigned size_class);

/* Keeps an empty slab that no free is on its way to; the one in its place goes to the pages. False
 * when enough is kept. The owner's. */
bool run_cache_put_slab(struct run_cache *cache, struct span *slab);

/* Gives everything that is kept to the pages, or what was kept since the aging before. Any thread.
 * Returns whether there was anything. */
bool run_cache_empty(struct run_cache *cache);
void run_cache_age(struct run_cache *cache);

/* Counts a run that was kept. Whether it is time to ask what is due by age. The owner's. */
inline_always bool run_cache_is_due(struct run_cache *cache)
{
    if (cache->turns > 1) {
        cache->turns--;
        return false;
    }
    cache->turns = RUN_CACHE_TURNS;
    return true;
}

/* Pages that it has claimed. Exact while nobody uses it. */
size_t run_cache_claimed(const struct run_cache *cache);

#endif
