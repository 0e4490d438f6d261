/* Kept runs: see run_cache.h. Whoever exchanges a span out of its place owns it. */
#include "heap/run_cache.h"

static const uintptr_t AGED = 1;

static struct span *span_of(uintptr_t kept) { return (struct span *)(kept & ~AGED); }

/* Acquire: pairs with the release of whoever put the span there. */
static struct span *empty_place(uintptr_t *place)
{
    return load_relaxed(place) == 0 ? NULL : span_of(exchange_acquire(place, (uintptr_t)0));
}

struct span *run_cache_take(struct run_cache *cache, size_t pages)
{
    size_t place = pages % RUN_CACHE_PLACES;
    if (cache->pages[place] != pages)
        return NULL;
    struct span *span = empty_place(&cache->places[place]);
    if (span)
        store_relaxed(&span->tag, (uint8_t)SPAN_LARGE);
    return span;
}

bool run_cache_put(struct run_cache *cache, struct span *span)
{
    size_t pages = span->pages;
    if (pages > RUN_CACHE_MAX_PAGES) {
        pages_give(span);
        return true;
    }
    size_t place = pages % RUN_CACHE_PLACES;
    span->zero = false;
    store_relaxed(&span->tag, (uint8_t)SPAN_KEPT);
    uintptr_t before = exchange_acq_rel(&cache->places[place], (uintptr_t)span);
    cache->pages[place] = (uint8_t)pages;
    if (before != 0)
        pages_give(span_of(before));
    return before != 0 || cache->puts++ % 16 == 0;
}

bool run_cache_empty(struct run_cache *cache)
{
    bool any = false;
    for (size_t place = 0; place < RUN_CACHE_PLACES; place++) {
        struct span *span = empty_place(&cache->places[place]);
        if (span)
            pages_give(span);
        any = any || span;
    }
    return any;
}

void run_cache_age(struct run_cache *cache)
{
    for (size_t place = 0; place < RUN_CACHE_PLACES; place++) {
        uintptr_t kept = load_relaxed(&cache->places[place]);
        uintptr_t after = (kept & AGED) != 0 ? 0 : kept | AGED;
        if (kept != 0 && compare_swap_acq_rel(&cache->places[place], &kept, after) && after == 0)
            pages_give(span_of(kept));
    }
}
