/* Kept runs: runs of pages that a heap's thread has freed and will probably need again, each heap
 * in a cache of its own. A cycle of malloc and free of such memory takes no lock, and writes
 * nothing that other threads read.
 *
 * Places. The place of each short length has a list of runs, linked by `next`; the run that was
 * kept last is used first. A run serves its own length, and the next shorter one if that is above
 * RUN_EXACT_PAGES, so a block fills at least three quarters of its run. Longer runs are not kept,
 * because a program that writes such a block takes much longer than the page layer. An
 * empty slab of each class has a place, too; it has no owner. A kept run has the tag SPAN_KEPT: a
 * second free of the block dies, and statistics and walks ignore it.
 *
 * Budget. One sum counts the pages of all kept runs and slabs. It is at most the cache's share:
 * pages_most_kept, which is 0 under memory pressure, at most RUN_CACHE_PAGES, and at most
 * RUN_CACHES_TIMES pages_most_kept for the caches of all threads together. Other runs and slabs are
 * given to the pages. A cache heeds a smaller share when its heap settles, and pressure at each
 * look of its heap, too.
 *
 * A place is a word: 0, or the first span; the bit AGED is set once an aging has seen the word:
 *   any -> a span    owner: a run is kept; the bit AGED stays
 *   any -> the next  owner: the first run is used; the bit AGED stays; 0 after the last run
 *   any -> AGED      any thread, once in a decay interval
 *   any -> 0         any thread, in a trim, when out of memory, or in an aging that finds AGED: all
 *                    runs of the place are given to the pages
 * Threads: only the owner calls functions that take a cache, unless a tag says otherwise. Only the
 * owner changes a word from 0, so a place that it finds empty stays empty, and a store fills it.
 * All other changes are atomic exchanges, and the thread that made one owns the runs that the word
 * named. So any thread may empty any cache. The owner reads `next` of the first run before it takes
 * the run, so the run may be another thread's by then, and `next` any value. But then the word is
 * 0, and the owner's exchange fails. In a process of one thread loads and stores are enough
 * (base/alone.h). */
#ifndef CAIRN_HEAP_RUN_CACHE_H
#define CAIRN_HEAP_RUN_CACHE_H

#include "base/alone.h"
#include "base/bits.h"
#include "base/layout.h"
#include "heap/slab.h"
#include "page/page.h"

/* The lengths of short runs: each number of pages up to 16, then eight a doubling. */
enum {
    RUN_LENGTHS = 32,
    RUN_EXACT_PAGES = 8,        /* a longer run may serve the next shorter length, too */
    RUN_CACHE_SHORT_PAGES = 64, /* longest short run */
};

/* The number of the shortest length that has `pages` pages, at most RUN_CACHE_SHORT_PAGES. */
inline_always size_t run_length(size_t pages)
{
    size_t last = pages - 1;
    size_t top = highest_bit(last | RUN_EXACT_PAGES);
    return 8 * (top - 3) + (last >> (top - 3));
}

static_check(MEDIUM_REQUEST_MAX == RUN_EXACT_PAGES * PAGE_BYTES,
             "only longer runs serve a request");

/* Rounds a number of pages up to the length of a run. Longer runs than short ones may have any. */
inline_always size_t run_round(size_t pages)
{
    if (pages > RUN_CACHE_SHORT_PAGES)
        return pages;
    return align_up(pages, (size_t)1 << (highest_bit((pages - 1) | RUN_EXACT_PAGES) - 3));
}

enum {
    RUN_CACHE_SLABS = RUN_LENGTHS, /* the places of slabs are behind those of short runs */
    RUN_CACHE_PLACES = RUN_CACHE_SLABS + CLASS_COUNT,
    RUN_CACHE_TURNS = 64,   /* freed runs between two checks of what is due by age */
    RUN_CACHE_PAGES = 2048, /* the most pages of all kept runs and slabs of one cache */
    RUN_CACHES_TIMES = 4,   /* all caches together keep this number of times as much as one may */
};

struct run_cache {
    uintptr_t places[RUN_CACHE_PLACES]; /* atomic: see the states at the top */
    ptrdiff_t room_pages;               /* owner: pages that may be kept in addition */
    size_t given_pages; /* atomic: pages given away since the owner last added them to the room */
    ptrdiff_t limit_pages; /* owner: the cache's share as it was last; 0 at first */
    uint8_t turns;         /* owner: freed runs until the next check of what is due by age */
    struct span *last;     /* owner: the span that run_cache_take_first took last */
};

/* The pages of all kept runs and slabs. Approximate while other threads empty the cache. */
inline_always size_t run_cache_kept_pages(const struct run_cache *cache)
{
    return (size_t)(cache->limit_pages - cache->room_pages) - load_relaxed(&cache->given_pages);
}

/* Takes a kept run that is aligned to `alignment_bytes`, a power of two, and has `pages` pages, a
 * result of run_round, or the next longer length. The content of the block is undefined.
 * Returns: NULL when none is kept. */
struct span *run_cache_take(struct run_cache *cache, size_t pages, size_t alignment_bytes);

inline_always struct span *run_cache_span_of(uintptr_t kept)
{
    return (struct span *)(kept & ~(uintptr_t)LAYOUT_KEPT_AGED);
}

/* The word of a place of which the first span was taken; `first` is the next one, or NULL. */
inline_always uintptr_t run_cache_word(uintptr_t before, struct span *first)
{
    return first ? (uintptr_t)first | (before & LAYOUT_KEPT_AGED) : 0;
}

/* Puts a run before the others of its short length, and counts it. */
inline_always void run_cache_push(struct run_cache *cache, struct span *span)
{
    cache->room_pages -= span->pages;
    uintptr_t *place = &cache->places[run_length(span->pages)];
    uintptr_t before = load_relaxed(place);
    for (;;) {
        span->next = run_cache_span_of(before);
        uintptr_t after = (uintptr_t)span | (before & LAYOUT_KEPT_AGED);
        if (before == 0 || process_is_single_threaded()) {
            store_release(place, after);
            return;
        }
        if (compare_swap_acq_rel(place, &before, after))
            return;
    }
}

/* Takes the first run of a list in a process that has threads, or NULL. Threads: owner only. */
struct span *run_cache_pop(uintptr_t *place);

/* Takes the run of a short length that was kept last, or NULL. Its content is undefined. */
inline_always struct span *run_cache_take_first(struct run_cache *cache, size_t length)
{
    uintptr_t *place = &cache->places[length];
    uintptr_t kept = load_relaxed(place);
    if (kept == 0)
        return NULL;
    struct span *span = run_cache_span_of(kept);
    if (likely(process_is_single_threaded()))
        store_relaxed(place, run_cache_word(kept, span->next));
    else if ((span = run_cache_pop(place)) == NULL)
        return NULL;
    store_relaxed(&span->tag, (uint8_t)SPAN_LARGE);
    cache->room_pages += span->pages;
    if (cache->last != span)
        cache->last = span;
    return span;
}

/* Replaces the span that a free has found by an equal pointer, if it is the span that was taken
 * last. The processor predicts the comparison, so the following loads need not wait for the page
 * map, and a cycle is no chain of dependent loads. */
inline_always struct span *run_cache_guess(const struct run_cache *cache, struct span *found)
{
    return likely(load_folded(&cache->last) == found) ? load_relaxed(&cache->last) : found;
}

/* Marks the span of a block that is freed, from the tag `kind` to SPAN_KEPT. The block was found at
 * `base` with `pages` pages.
 * Returns: false when another thread freed it meanwhile. The header may then be another block's,
 * which is left unchanged. */
inline_always bool run_cache_mark(struct span *span, const void *base, size_t pages, uint8_t kind)
{
    uint8_t seen = kind;
    if (likely(process_is_single_threaded())) {
        store_relaxed(&span->tag, (uint8_t)SPAN_KEPT);
        return true;
    }
    if (unlikely(!compare_swap_acq_rel(&span->tag, &seen, (uint8_t)SPAN_KEPT)))
        return false;
    if (likely(span->base == base && span->pages == pages))
        return true;
    store_release(&span->tag, kind); /* pairs with the swap of a free of the other block */
    return false;
}

/* Keeps the run of a large block of more than RUN_EXACT_PAGES pages that is freed, if it is short
 * and the budget has room.
 * Returns: false when run_cache_put has to be called, or another thread freed the block. */
inline_always bool run_cache_keep_short(struct run_cache *cache, struct span *span,
                                        const void *base)
{
    size_t pages = span->pages;
    if (pages - (RUN_EXACT_PAGES + 1) >= RUN_CACHE_SHORT_PAGES - RUN_EXACT_PAGES)
        return false;
    if (cache->room_pages < (ptrdiff_t)pages || cache->turns <= 1 ||
        !run_cache_mark(span, base, pages, SPAN_LARGE))
        return false;
    cache->turns--;
    store_relaxed(&span->zero, false);
    run_cache_push(cache, span);
    return true;
}

/* Keeps the run of a freed large block, or gives it to the pages.
 * Returns: whether to check what is due by age: always when a run was given to the pages, else once
 * in RUN_CACHE_TURNS calls. */
bool run_cache_put(struct run_cache *cache, struct span *span);

/* Whether a slab of the class is kept. Another thread may take it. */
inline_always bool run_cache_has_slab(const struct run_cache *cache, unsigned size_class)
{
    return load_relaxed(&cache->places[RUN_CACHE_SLABS + size_class]) != 0;
}

/* Takes a kept slab of the class. Returns: NULL when none is kept. */
struct span *run_cache_take_slab(struct run_cache *cache, unsigned size_class);

/* Keeps an empty slab that no free can reach any more.
 * Returns: false when the cache keeps enough, or a slab of that class. */
bool run_cache_put_slab(struct run_cache *cache, struct span *slab);

/* Gives all kept runs and slabs to the pages. Returns: whether anything was given. Threads: any. */
bool run_cache_empty(struct run_cache *cache);
/* Marks all kept runs as aged, and gives those to the pages that were aged before. Threads: any. */
void run_cache_age(struct run_cache *cache);

/* Counts anew, in the child of a fork: another thread may have taken a list and not counted it. */
void run_cache_recount(struct run_cache *cache);

/* Adds to the cache's room what other threads gave away, and adapts it to the cache's share. */
void run_cache_count_room(struct run_cache *cache);

/* Counts the caches of `count` more threads, which may be negative: their shares change.
 * Threads: any. */
void run_caches_add(ptrdiff_t count);
/* Sets the number of threads with a cache, in the child of a fork. */
void run_caches_reset(size_t count);

#endif
