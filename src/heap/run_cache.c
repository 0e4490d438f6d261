/* The places of kept runs: run_cache.h. */
#include "heap/run_cache.h"

#include "base/check.h"

static const uintptr_t AGED = LAYOUT_KEPT_AGED;

/* The pages that a kept run or slab counts: all of a slab, because pages that it has not handed out
 * may have memory from an earlier use. */
static ptrdiff_t run_cache_pages_of(const struct span *span)
{
    return span_is_slab(span) ? size_classes[slab_class(span)].pages : span->pages;
}

/* Empties a place. Acquire: pairs with run_cache_put_slab and run_cache_push.
 * Returns: the span, or NULL if there was none. */
static struct span *run_cache_empty_place(struct run_cache *cache, size_t place)
{
    uintptr_t kept = load_relaxed(&cache->places[place]);
    if (kept == 0)
        return NULL;
    return run_cache_span_of(exchange_if_threaded(&cache->places[place], kept, 0));
}

/* Gives the spans that were taken out of a place to the pages; returns whether there were any. */
static bool run_cache_give(struct run_cache *cache, struct span *first)
{
    for (struct span *span = first, *next; span; span = next) {
        next = span_is_slab(span) ? NULL : span->next;
        fetch_add_relaxed(&cache->given_pages, (size_t)run_cache_pages_of(span));
        if (span_is_slab(span))
            slab_retire(span);
        else
            pages_give(span);
    }
    return first != NULL;
}

static struct {
    size_t count; /* atomic: threads with a cache */
} cache_aligned caches;

void run_caches_add(ptrdiff_t count) { fetch_add_relaxed(&caches.count, (size_t)count); }

void run_caches_reset(size_t count) { store_relaxed(&caches.count, count); }

static size_t run_cache_share(void)
{
    size_t most = pages_most_kept();
    size_t count = larger_of(load_relaxed(&caches.count), (size_t)RUN_CACHES_TIMES);
    return smaller_of(most * RUN_CACHES_TIMES / count, (size_t)RUN_CACHE_PAGES);
}

void run_cache_count_room(struct run_cache *cache)
{
    ptrdiff_t limit = (ptrdiff_t)run_cache_share();
    ptrdiff_t more = limit - cache->limit_pages;
    if (load_relaxed(&cache->given_pages) != 0)
        more += (ptrdiff_t)exchange_acq_rel(&cache->given_pages, (size_t)0);
    cache->limit_pages = limit;
    cache->room_pages += more;
}

static bool run_cache_has_room(struct run_cache *cache, ptrdiff_t pages)
{
    if (likely(cache->room_pages >= pages) && pages_most_kept() != 0)
        return true;
    run_cache_count_room(cache);
    return cache->room_pages >= pages;
}

/* Whether a run is kept and aligned. If another thread takes it meanwhile, the page layer may write
 * the header, and the result is of no use: no other run is in the place then. */
not_instrumented static no_inline bool run_cache_is_aligned(uintptr_t kept, size_t alignment_bytes)
{
    return kept != 0 && ((uintptr_t)run_cache_span_of(kept)->base & (alignment_bytes - 1)) == 0;
}

/* Reads the link of a run that another thread may have taken; see the top of run_cache.h. */
not_instrumented static no_inline struct span *run_cache_next(const struct span *span)
{
    return load_relaxed(&span->next);
}

struct span *run_cache_pop(uintptr_t *place)
{
    uintptr_t kept = load_relaxed(place);
    while (kept != 0) {
        struct span *first = run_cache_span_of(kept);
        if (compare_swap_acq_rel(place, &kept, run_cache_word(kept, run_cache_next(first))))
            return first;
    }
    return NULL;
}

struct span *run_cache_take(struct run_cache *cache, size_t pages, size_t alignment_bytes)
{
    if (pages > RUN_CACHE_SHORT_PAGES)
        return NULL;
    size_t length = run_length(pages);
    size_t most = length + (pages > RUN_EXACT_PAGES && length + 1 < RUN_LENGTHS);
    struct span *span = NULL;
    for (; length <= most && span == NULL; length++) {
        uintptr_t kept = load_acquire(&cache->places[length]); /* pairs with run_cache_push */
        if (alignment_bytes <= PAGE_BYTES || run_cache_is_aligned(kept, alignment_bytes))
            span = run_cache_take_first(cache, length);
    }
    return span;
}

bool run_cache_put(struct run_cache *cache, struct span *span)
{
    store_relaxed(&span->zero, false);
    store_relaxed(&span->tag, (uint8_t)SPAN_KEPT);
    bool due = cache->turns <= 1;
    cache->turns = due ? (uint8_t)RUN_CACHE_TURNS : (uint8_t)(cache->turns - 1);
    if (span->pages > RUN_CACHE_SHORT_PAGES || !run_cache_has_room(cache, span->pages)) {
        pages_give(span);
        return true;
    }
    check_internal(run_round(span->pages) == span->pages);
    run_cache_push(cache, span);
    return due;
}

struct span *run_cache_take_slab(struct run_cache *cache, unsigned class)
{
    struct span *slab = run_cache_empty_place(cache, RUN_CACHE_SLABS + class);
    if (slab)
        cache->room_pages += run_cache_pages_of(slab);
    return slab;
}

bool run_cache_put_slab(struct run_cache *cache, struct span *slab)
{
    size_t place = RUN_CACHE_SLABS + slab_class(slab);
    if (load_relaxed(&cache->places[place]) != 0 ||
        !run_cache_has_room(cache, run_cache_pages_of(slab)))
        return false;
    store_relaxed(&slab->owner, (uintptr_t)0); /* a free of one of its blocks dies */
    cache->room_pages -= run_cache_pages_of(slab);
    /* Pairs with run_cache_empty_place. */
    store_release(&cache->places[place], (uintptr_t)slab);
    return true;
}

/* Whether nothing is kept; possibly wrong while the owner runs, which writes two of the words
 * without atomic operations. */
not_instrumented static no_inline bool run_cache_is_empty(const struct run_cache *cache)
{
    return run_cache_kept_pages(cache) == 0;
}

bool run_cache_empty(struct run_cache *cache)
{
    bool any = false;
    if (run_cache_is_empty(cache))
        return any;
    for (size_t place = 0; place < RUN_CACHE_PLACES; place++)
        any = run_cache_give(cache, run_cache_empty_place(cache, place)) || any;
    return any;
}

void run_cache_age(struct run_cache *cache)
{
    if (run_cache_is_empty(cache))
        return;
    for (size_t place = 0; place < RUN_CACHE_PLACES; place++) {
        uintptr_t kept = load_relaxed(&cache->places[place]);
        uintptr_t after = (kept & AGED) != 0 ? 0 : kept | AGED;
        if (kept != 0 && compare_swap_acq_rel(&cache->places[place], &kept, after) && after == 0)
            (void)run_cache_give(cache, run_cache_span_of(kept));
    }
}

void run_cache_recount(struct run_cache *cache)
{
    ptrdiff_t pages = 0;
    for (size_t place = 0; place < RUN_CACHE_PLACES; place++)
        for (const struct span *span = run_cache_span_of(cache->places[place]); span;
             span = span_is_slab(span) ? NULL : span->next)
            pages += run_cache_pages_of(span);
    store_relaxed(&cache->given_pages, (size_t)0);
    cache->room_pages = cache->limit_pages - pages;
}
