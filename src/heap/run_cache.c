/* Kept runs: see run_cache.h. Whoever exchanges a span out of its place owns it. */
#include "heap/run_cache.h"

static const uintptr_t AGED = 1;

enum { LONG_BITS = 3 };
static_check(RUN_CACHE_LONG == 1 << LONG_BITS, "a place for each value of so many bits");

static struct span *span_of(uintptr_t kept) { return (struct span *)(kept & ~AGED); }

/* Of its slots that were ever handed out: the others have no memory yet. */
static size_t used_bytes(const struct span *slab)
{
    return (size_t)(load_relaxed(&slab->limit) - 1) * slab->size_bytes;
}

/* What was exchanged out of a place, and is not to be used again. */
static void give(struct run_cache *cache, struct span *span)
{
    if (span_is_slab(span)) {
        fetch_add_relaxed(&cache->given_bytes, used_bytes(span));
        slab_retire(span);
    } else {
        pages_give(span);
    }
}

/* Acquire: pairs with the release of whoever put the span there. */
static struct span *empty_place(struct run_cache *cache, size_t place)
{
    if (load_relaxed(&cache->places[place]) == 0)
        return NULL;
    return span_of(exchange_acquire(&cache->places[place], (uintptr_t)0));
}

/* Returns whether another run had to go. Release: pairs with the acquire in empty_place. */
static bool put(struct run_cache *cache, size_t place, struct span *span)
{
    struct span *before = empty_place(cache, place);
    store_release(&cache->places[place], (uintptr_t)span);
    if (before)
        give(cache, before);
    return before != NULL;
}

/* Multiplied by the golden ratio: lengths that are powers of two go to different places. */
static size_t place_of(size_t pages)
{
    return pages <= RUN_CACHE_SHORT_PAGES
               ? pages % RUN_CACHE_SHORT
               : RUN_CACHE_SHORT + ((uint32_t)pages * 2654435769u >> (32 - LONG_BITS));
}

struct span *run_cache_take(struct run_cache *cache, size_t pages)
{
    size_t place = place_of(pages);
    if (cache->pages[place] != pages)
        return NULL;
    cache->asked[place] = true;
    struct span *span = empty_place(cache, place);
    if (span)
        store_relaxed(&span->tag, (uint8_t)SPAN_LARGE);
    return span;
}

/* The long runs that are kept, but for what lies in `place`. The owner's. */
static size_t long_pages(const struct run_cache *cache, size_t place)
{
    size_t sum = 0;
    for (size_t i = RUN_CACHE_SHORT; i < RUN_CACHE_LARGE; i++)
        if (i != place && load_relaxed(&cache->places[i]) != 0)
            sum += cache->pages[i];
    return sum;
}

/* Notes that a run of the length came to the place, and says whether it is kept there. */
static bool keeps(struct run_cache *cache, size_t place, size_t pages)
{
    if (pages <= RUN_CACHE_SHORT_PAGES) {
        cache->pages[place] = (uint16_t)pages;
        return true;
    }
    bool again = cache->pages[place] == pages && cache->asked[place];
    cache->pages[place] = (uint16_t)pages;
    cache->asked[place] = false;
    if (!again)
        cache->cycles[place] = 0;
    else if (cache->cycles[place] < RUN_CACHE_CYCLES)
        cache->cycles[place]++;
    return cache->cycles[place] == RUN_CACHE_CYCLES && pages_may_keep(pages) &&
           long_pages(cache, place) + pages <= RUN_CACHE_LONG_PAGES;
}

bool run_cache_put(struct run_cache *cache, struct span *span)
{
    size_t pages = span->pages;
    if (pages > RUN_CACHE_MAX_PAGES) {
        pages_give(span);
        return true;
    }
    size_t place = place_of(pages);
    if (unlikely(!keeps(cache, place, pages))) {
        struct span *before = empty_place(cache, place);
        if (before)
            give(cache, before);
        pages_give(span);
        return true;
    }
    span->zero = false;
    store_relaxed(&span->tag, (uint8_t)SPAN_KEPT);
    return put(cache, place, span) || cache->puts++ % 16 == 0;
}

struct span *run_cache_take_slab(struct run_cache *cache, unsigned class)
{
    struct span *slab = empty_place(cache, RUN_CACHE_LARGE + class);
    if (slab)
        cache->held_bytes -= used_bytes(slab);
    return slab;
}

bool run_cache_put_slab(struct run_cache *cache, struct span *slab)
{
    size_t bytes = used_bytes(slab);
    if (run_cache_slab_bytes(cache) + bytes > RUN_CACHE_SLAB_BYTES)
        return false;
    store_relaxed(&slab->owner, (uintptr_t)0); /* a free of one of its blocks dies */
    cache->held_bytes += bytes;
    (void)put(cache, RUN_CACHE_LARGE + slab_class(slab), slab);
    return true;
}

bool run_cache_empty(struct run_cache *cache)
{
    bool any = false;
    for (size_t place = 0; place < RUN_CACHE_PLACES; place++) {
        struct span *span = empty_place(cache, place);
        if (span)
            give(cache, span);
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
            give(cache, span_of(kept));
    }
}
