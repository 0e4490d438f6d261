/* Kept runs: see run_cache.h. Whoever exchanges a span out of its place owns it.
 *
 * A place's word is 0, or a span that is kept, or HELD and the length of a long run that its owner
 * uses just now; with AGED once an aging has seen it. With the word of a long place goes a claim of
 * its pages, unless it is 0: who makes it 0 gives the claim up.
 */
/* clang-format off */
/*   0 -> a span      owner: with a new claim
 *   a span -> HELD   owner: the run is used
 *   HELD -> a span   owner: it is kept again
 *   any -> AGED      any thread, once a decay interval
 *   any -> 0         any thread
 */
/* clang-format on */
#include "heap/run_cache.h"

static const uintptr_t AGED = LAYOUT_KEPT_AGED;
static const uintptr_t HELD = LAYOUT_KEPT_NONE;
enum { HELD_SHIFT = 6 };

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

static bool is_long(size_t place) { return place >= RUN_CACHE_SHORT && place < RUN_CACHE_LARGE; }

static size_t claimed_by(size_t place, uintptr_t word)
{
    if (!is_long(place) || word == 0)
        return 0;
    return (word & HELD) != 0 ? word >> HELD_SHIFT : span_of(word)->pages;
}

/* What was exchanged out of a place for nothing: the span, if it is one. */
static struct span *leave_place(size_t place, uintptr_t word)
{
    size_t claimed = claimed_by(place, word);
    if (claimed != 0)
        pages_unclaim_kept(claimed);
    return (word & HELD) != 0 ? NULL : span_of(word);
}

/* Acquire: pairs with the release of whoever put the span there. */
static struct span *empty_place(struct run_cache *cache, size_t place)
{
    uintptr_t kept = load_relaxed(&cache->places[place]);
    if (kept == 0)
        return NULL;
    return leave_place(place, alone_or_exchange(&cache->places[place], kept, 0));
}

/* Not of a long one. Returns what had to go. Release: pairs with the acquire in empty_place. */
static struct span *put(struct run_cache *cache, size_t place, struct span *span)
{
    struct span *before = empty_place(cache, place);
    store_release(&cache->places[place], (uintptr_t)span);
    return before;
}

/* Multiplied by the golden ratio: lengths that are powers of two go to different places. */
static size_t place_of(size_t pages)
{
    return pages <= RUN_CACHE_SHORT_PAGES
               ? pages % RUN_CACHE_SHORT
               : RUN_CACHE_SHORT + ((uint32_t)pages * 2654435769u >> (32 - LONG_BITS));
}

/* A long run, whose length the place has seen last. Acquire: as above. */
static struct span *hold_long(struct run_cache *cache, size_t place, size_t pages)
{
    uintptr_t *word = &cache->places[place];
    uintptr_t kept = load_relaxed(word);
    while (kept != 0 && (kept & HELD) == 0)
        if (alone_or_compare_swap(word, &kept, (uintptr_t)pages << HELD_SHIFT | HELD))
            return span_of(kept);
    return NULL;
}

/* A long run, of the length that the place has seen last; false when all threads keep enough. Else
 * *before is the one that had to go, of the same length, so its claim stays. Release: as above. */
static bool put_long(struct run_cache *cache, size_t place, struct span *span, struct span **before)
{
    uintptr_t *word = &cache->places[place];
    uintptr_t seen = load_relaxed(word);
    while (seen != 0)
        if (alone_or_compare_swap(word, &seen, (uintptr_t)span)) {
            *before = (seen & HELD) != 0 ? NULL : span_of(seen);
            return true;
        }
    if (!pages_claim_kept(span->pages))
        return false;
    store_release(word, (uintptr_t)span);
    return true;
}

struct span *run_cache_take(struct run_cache *cache, size_t pages)
{
    size_t place = place_of(pages);
    if (cache->pages[place] != pages)
        return NULL;
    cache->asked[place] = true;
    struct span *span = is_long(place) ? hold_long(cache, place, pages) : empty_place(cache, place);
    if (span)
        store_relaxed(&span->tag, (uint8_t)SPAN_LARGE);
    return span;
}

/* The long runs that are kept, or have a claim to it, but for that of `place`. The owner's. */
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
    store_relaxed(&span->zero, false);
    store_relaxed(&span->tag, (uint8_t)SPAN_KEPT);
    struct span *before = NULL;
    bool kept = keeps(cache, place, pages);
    if (is_long(place))
        kept = kept && put_long(cache, place, span, &before);
    else if (kept)
        before = put(cache, place, span);
    if (unlikely(!kept)) {
        before = empty_place(cache, place);
        pages_give(span);
    }
    if (before)
        give(cache, before);
    return !kept || before || run_cache_is_due(cache);
}

bool run_cache_keep_long(struct run_cache *cache, struct span *span, const void *base)
{
    size_t pages = span->pages;
    size_t place = place_of(pages);
    uintptr_t held = load_relaxed(&cache->places[place]);
    if ((held & HELD) == 0 || cache->pages[place] != pages || !pages_may_keep(pages) ||
        cache->turns <= 1 || !run_cache_mark(span, base, pages, SPAN_LARGE))
        return false;
    cache->turns--;
    store_relaxed(&span->zero, false);
    if (likely(alone_or_compare_swap(&cache->places[place], &held, (uintptr_t)span)))
        cache->asked[place] = false;
    else
        (void)run_cache_put(cache, span); /* an aging came by just now */
    return true;
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
    struct span *before = put(cache, RUN_CACHE_LARGE + slab_class(slab), slab);
    if (before)
        give(cache, before);
    return true;
}

bool run_cache_empty(struct run_cache *cache)
{
    bool any = growth_empty(&cache->places[RUN_CACHE_GROWTH]);
    for (size_t place = 0; place < RUN_CACHE_GROWTH; place++) {
        struct span *span = empty_place(cache, place);
        if (span)
            give(cache, span);
        any = any || span;
    }
    return any;
}

void run_cache_age(struct run_cache *cache)
{
    growth_age(&cache->places[RUN_CACHE_GROWTH]);
    for (size_t place = 0; place < RUN_CACHE_GROWTH; place++) {
        uintptr_t kept = load_relaxed(&cache->places[place]);
        uintptr_t after = (kept & AGED) != 0 ? 0 : kept | AGED;
        if (kept == 0 || !compare_swap_acq_rel(&cache->places[place], &kept, after) || after != 0)
            continue;
        struct span *span = leave_place(place, kept);
        if (span)
            give(cache, span);
    }
}

size_t run_cache_claimed(const struct run_cache *cache)
{
    size_t sum = 0;
    for (size_t place = RUN_CACHE_SHORT; place < RUN_CACHE_LARGE; place++)
        sum += claimed_by(place, load_relaxed(&cache->places[place]));
    return sum;
}
