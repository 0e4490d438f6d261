/* The places of kept runs, and the run with room for blocks that grow: run_cache.h. */
#include "heap/run_cache.h"

#include "base/layout.h"

static const uintptr_t AGED = LAYOUT_KEPT_AGED;
static const uintptr_t HELD = LAYOUT_KEPT_NONE;
enum { PAGES_SHIFT = 48 };

static_check(GROWTH_MAX_PAGES < 1 << (64 - PAGES_SHIFT), "the word holds its length");

static bool growth_is_room(uintptr_t word) { return (word & HELD) != 0; }

static struct span *growth_front_of(uintptr_t word) { return (struct span *)(word & ~AGED); }

static char *growth_room_start(uintptr_t word)
{
    return (char *)(word & (((uintptr_t)1 << PAGES_SHIFT) - PAGE_BYTES));
}

static size_t growth_room_length(uintptr_t word) { return word >> PAGES_SHIFT; }

/* The word of a room, or 0 for a room of no pages. */
static uintptr_t growth_room_word(char *start, size_t pages)
{
    return pages == 0 ? 0 : (uintptr_t)pages << PAGES_SHIFT | (uintptr_t)start | HELD;
}

/* The word of the room if it is right behind the block; otherwise 0. */
static uintptr_t growth_room_behind(const uintptr_t *growth, const struct span *span)
{
    uintptr_t word = load_relaxed(growth);
    return growth_is_room(word) && growth_room_start(word) == span_end(span) ? word : 0;
}

bool growth_is_kept(const uintptr_t *growth)
{
    uintptr_t word = load_relaxed(growth);
    return word != 0 && !growth_is_room(word);
}

struct span *growth_take(uintptr_t *growth, size_t pages)
{
    if (!growth_is_kept(growth))
        return NULL;
    uintptr_t word = exchange_acquire(growth, (uintptr_t)0); /* pairs with growth_put */
    if (word == 0)
        return NULL;
    struct span *span = growth_front_of(word);
    if (span->pages < pages) {
        store_release(growth, word);
        return NULL;
    }
    growth_cut(growth, span, pages);
    store_relaxed(&span->tag, (uint8_t)SPAN_LARGE);
    return span;
}

void growth_cut(uintptr_t *growth, struct span *span, size_t pages)
{
    size_t rest = span->pages - pages;
    store_relaxed(&span->pages, (uint32_t)pages);
    store_relaxed(growth, growth_room_word(span_end(span), rest));
}

bool growth_extend(uintptr_t *growth, struct span *span, size_t pages)
{
    size_t more = pages - span->pages;
    char *end = span_end(span) + (more << PAGE_SHIFT);
    uintptr_t word;
    do { /* an aging may change the word meanwhile */
        word = growth_room_behind(growth, span);
        if (word == 0 || growth_room_length(word) < more)
            return false;
    } while (!compare_swap_acq_rel(growth, &word,
                                   growth_room_word(end, growth_room_length(word) - more)));
    store_relaxed(&span->pages, (uint32_t)pages);
    return true;
}

bool growth_join(uintptr_t *growth, struct span *span)
{
    uintptr_t word;
    do {
        word = growth_room_behind(growth, span);
        if (word == 0)
            return false;
    } while (!compare_swap_acq_rel(growth, &word, (uintptr_t)0));
    store_relaxed(&span->pages, span->pages + (uint32_t)growth_room_length(word));
    return true;
}

/* Empties the place for a longer run.
 * Returns: false when the place keeps an equal or longer run or room. */
static bool growth_make_place(uintptr_t *growth, size_t pages)
{
    uintptr_t word = load_relaxed(growth);
    if (growth_is_room(word))
        return growth_room_length(word) < pages && growth_empty(growth);
    if (word == 0 ||
        (word = exchange_acquire(growth, (uintptr_t)0)) == 0) /* pairs with growth_put */
        return true;
    struct span *front = growth_front_of(word);
    if (front->pages >= pages) {
        store_release(growth, word);
        return false;
    }
    pages_give(front);
    return true;
}

bool growth_put(uintptr_t *growth, struct span *span)
{
    bool joined = growth_join(growth, span);
    size_t pages = span->pages;
    if (pages > GROWTH_MAX_PAGES || pages > pages_most_kept() || !growth_make_place(growth, pages))
        return false;
    if (!joined && !pages_in_arena(span))
        return false;
    store_relaxed(&span->zero, false);
    span->next = NULL;
    store_release(growth, (uintptr_t)span);
    return true;
}

/* Empties the place, whose word was `word`, and gives run or room to the pages. Room has no header,
 * so it gets one before it is given. Acquire: pairs with growth_put.
 * Returns: false when the word has changed, or no header is available. */
static bool growth_leave(uintptr_t *growth, uintptr_t word)
{
    struct span *header = growth_is_room(word) ? pages_take_header(growth_room_start(word)) : NULL;
    if (growth_is_room(word) && header == NULL)
        return false;
    if (!compare_swap_acq_rel(growth, &word, (uintptr_t)0)) {
        if (header)
            pages_give_header(header);
        return false;
    }
    if (header) {
        header->base = growth_room_start(word);
        store_relaxed(&header->pages, (uint32_t)growth_room_length(word));
    }
    pages_give(header ? header : growth_front_of(word));
    return true;
}

/* Retries a few times, because the owner may change the word at the same time. */
bool growth_empty(uintptr_t *growth)
{
    enum { TRIES = 4 };
    for (int i = 0; i < TRIES; i++) {
        uintptr_t word = load_relaxed(growth);
        if (word == 0)
            return false;
        if (growth_leave(growth, word))
            return true;
    }
    return false;
}

void growth_age(uintptr_t *growth)
{
    uintptr_t word = load_relaxed(growth);
    if ((word & AGED) != 0)
        (void)growth_leave(growth, word);
    else if (word != 0)
        (void)compare_swap_acq_rel(growth, &word, word | AGED);
}

/* The pages that a kept run or slab counts. */
static size_t run_cache_pages_of(const struct span *span)
{
    return span_is_slab(span) ? run_cache_slab_pages(span) : span->pages;
}

/* Empties a place. Acquire: pairs with run_cache_fill and run_cache_push.
 * Returns: the span, or NULL if there was none. */
static struct span *run_cache_empty_place(struct run_cache *cache, size_t place)
{
    uintptr_t kept = load_relaxed(&cache->places[place]);
    if (kept == 0)
        return NULL;
    return run_cache_span_of(exchange_if_threaded(&cache->places[place], kept, 0));
}

/* Gives the runs or the slab that were exchanged out of a place to the pages.
 * Returns: whether there were any. */
static bool run_cache_give(struct run_cache *cache, struct span *first)
{
    for (struct span *span = first, *next; span; span = next) {
        next = span_is_slab(span) ? NULL : span->next;
        fetch_add_relaxed(&cache->given_pages, run_cache_pages_of(span));
        if (span_is_slab(span))
            slab_retire(span);
        else
            pages_give(span);
    }
    return first != NULL;
}

/* Fills an empty place that has no list. Release: pairs with the acquire in run_cache_empty_place.
 */
static void run_cache_fill(struct run_cache *cache, size_t place, struct span *span)
{
    run_cache_add_room(cache, -(ptrdiff_t)run_cache_pages_of(span));
    store_release(&cache->places[place], (uintptr_t)span);
}

static struct {
    size_t count; /* atomic: threads with a cache */
} cache_aligned caches;

void run_caches_add(ptrdiff_t count) { fetch_add_relaxed(&caches.count, (size_t)count); }

void run_caches_reset(size_t count) { store_relaxed(&caches.count, count); }

/* The most pages that the cache of one thread may keep. */
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
    run_cache_add_room(cache, more);
}

/* Whether the cache may keep `pages` more. */
static bool run_cache_has_room(struct run_cache *cache, size_t pages)
{
    if (likely(cache->room_pages >= (ptrdiff_t)pages) && pages_most_kept() != 0)
        return true;
    run_cache_count_room(cache);
    return cache->room_pages >= (ptrdiff_t)pages;
}

/* Whether the kept run is aligned, and the result is of use only if the run is still in its place
 * afterwards: another thread may have emptied the place, and the page layer may write the header,
 * which stays mapped. */
not_instrumented static no_inline bool run_cache_is_aligned(uintptr_t kept, size_t alignment_bytes)
{
    return ((uintptr_t)run_cache_span_of(kept)->base & (alignment_bytes - 1)) == 0;
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

/* Takes the first run of a place if it is aligned. Only the owner puts runs into its places, so the
 * run that is examined is taken, or another thread has emptied the place. Acquire: pairs with
 * run_cache_fill and run_cache_push.
 * Returns: NULL when no such run is kept there. */
static struct span *run_cache_take_from(struct run_cache *cache, size_t place,
                                        size_t alignment_bytes)
{
    uintptr_t kept = load_acquire(&cache->places[place]);
    if (kept == 0 || (alignment_bytes > PAGE_BYTES && !run_cache_is_aligned(kept, alignment_bytes)))
        return NULL;
    return run_cache_take_first(cache, place);
}

struct span *run_cache_take(struct run_cache *cache, size_t pages, size_t alignment_bytes)
{
    if (pages > RUN_CACHE_SHORT_PAGES)
        return NULL;
    cache->frees = 0;
    size_t length = run_length(pages);
    size_t most = length + (pages > RUN_EXACT_PAGES && length + 1 < RUN_LENGTHS);
    struct span *span = NULL;
    for (; length <= most && span == NULL; length++)
        span = run_cache_take_from(cache, length, alignment_bytes);
    return span;
}

/* Keeps a run in the list of its length. Blocks that grew may have other lengths. */
static bool run_cache_keep(struct run_cache *cache, struct span *span)
{
    size_t pages = span->pages;
    if (pages > RUN_CACHE_SHORT_PAGES || run_round(pages) != pages ||
        cache->frees == RUN_CACHE_FREES || !run_cache_has_room(cache, pages))
        return false;
    run_cache_push(cache, span);
    return true;
}

bool run_cache_put(struct run_cache *cache, struct span *span)
{
    store_relaxed(&span->zero, false);
    store_relaxed(&span->tag, (uint8_t)SPAN_KEPT);
    bool kept = run_cache_keep(cache, span);
    if (!kept)
        pages_give(span);
    return !kept || run_cache_is_due(cache);
}

struct span *run_cache_take_slab(struct run_cache *cache, unsigned class)
{
    struct span *slab = run_cache_empty_place(cache, RUN_CACHE_SLABS + class);
    if (slab)
        run_cache_add_room(cache, (ptrdiff_t)run_cache_slab_pages(slab));
    return slab;
}

bool run_cache_put_slab(struct run_cache *cache, struct span *slab)
{
    size_t place = RUN_CACHE_SLABS + slab_class(slab);
    if (load_relaxed(&cache->places[place]) != 0 ||
        !run_cache_has_room(cache, run_cache_slab_pages(slab)))
        return false;
    store_relaxed(&slab->owner, (uintptr_t)0); /* a free of one of its blocks dies */
    run_cache_fill(cache, place, slab);
    return true;
}

/* Whether nothing is kept; possibly wrong while the owner runs. The owner writes two of the words
 * without atomic operations.
 * Threads: any. */
not_instrumented static no_inline bool run_cache_is_empty(const struct run_cache *cache)
{
    return run_cache_kept_pages(cache) == 0;
}

/* Gives the run with room, and the runs or slabs of the first `places` places, to the pages. */
static bool run_cache_give_first(struct run_cache *cache, size_t places)
{
    bool any = growth_empty(&cache->places[RUN_CACHE_GROWTH]);
    if (run_cache_is_empty(cache))
        return any;
    for (size_t place = 0; place < places; place++)
        any = run_cache_give(cache, run_cache_empty_place(cache, place)) || any;
    return any;
}

bool run_cache_empty(struct run_cache *cache)
{
    return run_cache_give_first(cache, RUN_CACHE_GROWTH);
}

void run_cache_give_runs(struct run_cache *cache)
{
    (void)run_cache_give_first(cache, RUN_CACHE_SLABS);
}

void run_cache_age(struct run_cache *cache)
{
    growth_age(&cache->places[RUN_CACHE_GROWTH]);
    if (run_cache_is_empty(cache))
        return;
    for (size_t place = 0; place < RUN_CACHE_GROWTH; place++) {
        uintptr_t kept = load_relaxed(&cache->places[place]);
        uintptr_t after = (kept & AGED) != 0 ? 0 : kept | AGED;
        if (kept != 0 && compare_swap_acq_rel(&cache->places[place], &kept, after) && after == 0)
            (void)run_cache_give(cache, run_cache_span_of(kept));
    }
}

void run_cache_recount(struct run_cache *cache)
{
    size_t pages = 0;
    for (size_t place = 0; place < RUN_CACHE_GROWTH; place++)
        for (const struct span *span = run_cache_span_of(cache->places[place]); span;
             span = span_is_slab(span) ? NULL : span->next)
            pages += run_cache_pages_of(span);
    store_relaxed(&cache->given_pages, (size_t)0);
    cache->room_pages = cache->limit_pages - (ptrdiff_t)pages;
}
