/* The bins of free spans, the loose spans, and splitting and merging: see free_spans.h. */
#include "page/free_spans.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/random.h"
#include "page/arena.h"
#include "page/state.h"

enum { PROBE_LIMIT = 16 }; /* spans that are examined in a bin whose members differ in length */

static unsigned bins_index_of(size_t pages)
{
    if (pages < EXACT_BINS)
        return (unsigned)pages;
    unsigned top = highest_bit(pages);
    unsigned step = (unsigned)(pages >> (top - STEP_BITS)) & ((1u << STEP_BITS) - 1);
    return EXACT_BINS + ((top - 6) << STEP_BITS) + step;
}

static unsigned bins_set_of(const struct span *span)
{
    return span->dirty_pages != 0 ? DIRTY : CLEAN;
}

void bins_insert(struct span *span)
{
    struct page_shard *shard = shard_of(span);
    unsigned set = bins_set_of(span);
    unsigned bin = bins_index_of(span->pages);
    struct span *head = shard->heads[bin][set];
    span->next = head;
    span->prev = NULL;
    if (head)
        head->prev = span;
    shard->heads[bin][set] = span;
    shard->filled[set][bin / 64] |= (uint64_t)1 << bin % 64;
}

void bins_remove(struct span *span)
{
    struct page_shard *shard = shard_of(span);
    unsigned set = bins_set_of(span);
    unsigned bin = bins_index_of(span->pages);
    if (span->next)
        span->next->prev = span->prev;
    if (span->prev)
        span->prev->next = span->next;
    else
        shard->heads[bin][set] = span->next;
    if (shard->heads[bin][set] == NULL)
        shard->filled[set][bin / 64] &= ~((uint64_t)1 << bin % 64);
}

/* The first filled bin at or above `bin`; BIN_COUNT if there is none. */
static unsigned bins_next_filled(const struct page_shard *shard, unsigned set, unsigned bin)
{
    const uint64_t *filled = shard->filled[set];
    unsigned word = bin / 64;
    if (word >= BIN_WORDS)
        return BIN_COUNT;
    uint64_t bits = filled[word] & (~(uint64_t)0 << bin % 64);
    while (bits == 0) {
        if (++word == BIN_WORDS)
            return BIN_COUNT;
        bits = filled[word];
    }
    return word * 64 + lowest_bit(bits);
}

static bool bins_span_fits(const struct span *span, size_t pages, size_t alignment_pages)
{
    size_t first = (uintptr_t)span->base >> PAGE_SHIFT;
    return align_up(first, alignment_pages) - first + pages <= span->pages;
}

static struct span *bins_find_in(const struct page_shard *shard, unsigned set, size_t pages,
                                 size_t alignment_pages)
{
    unsigned bin = bins_next_filled(shard, set, bins_index_of(pages));
    for (; bin < BIN_COUNT; bin = bins_next_filled(shard, set, bin + 1)) {
        struct span *best = NULL;
        unsigned probes = 0;
        for (struct span *span = shard->heads[bin][set]; span && probes < PROBE_LIMIT;
             span = span->next, probes++)
            if (bins_span_fits(span, pages, alignment_pages) &&
                (best == NULL || span->pages < best->pages))
                best = span;
        if (best)
            return best;
    }
    return NULL;
}

struct span *bins_find(const struct page_shard *shard, size_t pages, size_t alignment_pages)
{
    struct span *span = bins_find_in(shard, DIRTY, pages, alignment_pages);
    return span ? span : bins_find_in(shard, CLEAN, pages, alignment_pages);
}

struct span *bins_longest(const struct page_shard *shard, unsigned set)
{
    for (unsigned word = BIN_WORDS; word-- > 0;)
        if (shard->filled[set][word])
            return shard->heads[word * 64 + highest_bit(shard->filled[set][word])][set];
    return NULL;
}

size_t bins_verify(const struct page_shard *shard)
{
    size_t pages = 0;
    for (unsigned set = 0; set < SETS; set++)
        for (unsigned bin = 0; bin < BIN_COUNT; bin++) {
            struct span *prev = NULL;
            for (struct span *span = shard->heads[bin][set]; span; prev = span, span = span->next) {
                check_internal(span->prev == prev);
                check_internal(span->tag == SPAN_FREE && shard_of(span) == shard);
                check_internal(bins_index_of(span->pages) == bin && bins_set_of(span) == set);
                check_internal(span->mark == 0 || (span->mark <= shard->loose_count &&
                                                   shard->loose[span->mark - 1] == span));
                pages += span->pages;
            }
            check_internal((shard->heads[bin][set] != NULL) == bitmap_has(shard->filled[set], bin));
        }
    return pages;
}

/* Sets the boundary tags of a span in the page map: the entries of its first and its last page. */
static void free_spans_tag_ends(const struct span *span, struct span *value)
{
    page_map_set_page(span->base, value);
    page_map_set_page(span->base + ((size_t)(span->pages - 1) << PAGE_SHIFT), value);
}

static void free_spans_enter(struct span *span)
{
    store_relaxed(&span->tag, (uint8_t)SPAN_FREE);
    free_spans_tag_ends(span, span);
    bins_insert(span);
    struct page_shard *shard = shard_of(span);
    store_relaxed(&shard->free_pages, shard->free_pages + span->pages);
    store_relaxed(&shard->dirty_pages, shard->dirty_pages + span->dirty_pages);
}

enum { LOOSE_MAX_PAGES = 16 };

static void free_spans_loose_remove(struct span *span)
{
    struct page_shard *shard = shard_of(span);
    struct span *last = shard->loose[--shard->loose_count];
    shard->loose[span->mark - 1] = last;
    last->mark = span->mark;
    span->mark = 0;
}

void span_withdraw(struct span *span)
{
    if (span->mark != 0)
        free_spans_loose_remove(span);
    bins_remove(span);
    free_spans_tag_ends(span, NULL);
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    struct page_shard *shard = shard_of(span);
    store_relaxed(&shard->free_pages, shard->free_pages - span->pages);
    store_relaxed(&shard->dirty_pages, shard->dirty_pages - span->dirty_pages);
}

/* Bits of the identity of the thread that purges. If two threads have the same bits, the child of a
 * fork may lose a span. */
static uint32_t free_spans_purger(void) { return (uint32_t)(thread_identity() >> 6); }

void span_begin_purge(struct span *span)
{
    fetch_add_relaxed(&pages_state.purging_pages, (size_t)span->pages);
    fetch_add_relaxed(&pages_state.purging_dirty, (size_t)span->dirty_pages);
    span->purger = free_spans_purger();
    struct page_shard *shard = shard_of(span);
    span->prev = shard->purging;
    shard->purging = span;
}

void span_end_purge(struct span *span)
{
    struct span **link = &shard_of(span)->purging;
    while (*link != span)
        link = &(*link)->prev;
    *link = span->prev;
}

struct span *span_free_neighbour(const struct arena *arena, const char *page)
{
    if (page < arena->base || arena_page(arena, page) >= arena->frontier)
        return NULL;
    struct span *span = page_map_find(page);
    /* a span in use may be changed by its owner now */
    return load_relaxed(&span->tag) == SPAN_FREE ? span : NULL;
}

static void free_spans_absorb(struct span *span, struct span *other)
{
    span_withdraw(other);
    span->base = (char *)smaller_of((uintptr_t)span->base, (uintptr_t)other->base);
    span->pages += other->pages;
    store_relaxed(&span->dirty_pages, span->dirty_pages + other->dirty_pages);
    header_push(other);
}

/* Each side may have several free neighbours, because some are loose. */
void span_release(struct arena *arena, struct span *span)
{
    struct span *other;
    while ((other = span_free_neighbour(arena, span->base - PAGE_BYTES)) != NULL)
        free_spans_absorb(span, other);
    while ((other = span_free_neighbour(arena, span_end(span))) != NULL)
        free_spans_absorb(span, other);
    span->mark = 0;
    free_spans_enter(span);
}

bool spans_merge(struct page_shard *shard)
{
    bool any = shard->loose_count != 0;
    while (shard->loose_count != 0) {
        struct span *span = shard->loose[shard->loose_count - 1];
        span_withdraw(span);
        span_release(span_arena(span), span);
    }
    return any;
}

/* A huge page that is free as a whole was not handed out in part. */
static void free_spans_mark_rest(struct span *span)
{
    struct arena *arena = span_arena(span);
    if (load_relaxed(&arena->begun) == 0)
        return;
    uintptr_t start = (uintptr_t)span->base;
    uintptr_t end = (uintptr_t)span_end(span);
    uintptr_t first = smaller_of(align_up(start, HUGE_PAGE_BYTES), end);
    uintptr_t last = larger_of(align_down(end, HUGE_PAGE_BYTES), first);
    span_withdraw(span);
    arena_mark_rests(arena, start, first);
    arena_mark_rests(arena, last, end);
    store_relaxed(&span->dirty_pages,
                  bitmap_count(arena->dirty, arena_page(arena, span->base), span->pages));
    free_spans_enter(span);
}

cold void spans_mark_rests(struct page_shard *shard)
{
    (void)spans_merge(shard);
    for (unsigned set = SETS; set-- > 0;) /* dirty spans first: clean ones may become dirty */
        for (unsigned bin = bins_next_filled(shard, set, 0); bin < BIN_COUNT;
             bin = bins_next_filled(shard, set, bin + 1))
            for (struct span *span = shard->heads[bin][set], *next; span; span = next) {
                next = span->next;
                free_spans_mark_rest(span);
            }
}

void range_release(struct arena *arena, char *base, size_t pages, size_t dirty_pages)
{
    struct span *span = header_pop(arena->shard, 0);
    span->base = base;
    span->pages = (uint32_t)pages;
    store_relaxed(&span->dirty_pages, dirty_pages);
    span_release(arena, span);
}

bool span_cut(struct span *span, char *start, size_t pages)
{
    if (pages == span->pages)
        return true;
    struct arena *arena = span_arena(span);
    char *base = span->base;
    size_t lead = (size_t)(start - base) >> PAGE_SHIFT;
    size_t tail = span->pages - lead - pages;
    const struct span *header = arena->shard->headers[0];
    for (int parts = (lead != 0) + (tail != 0); parts > 0; parts--, header = header->next)
        if (header == NULL)
            return false;
    size_t lead_dirty = 0, dirty = 0;
    if (span->dirty_pages != 0) {
        lead_dirty = bitmap_count(arena->dirty, arena_page(arena, base), lead);
        dirty = bitmap_count(arena->dirty, arena_page(arena, start), pages);
    }
    size_t tail_dirty = span->dirty_pages - lead_dirty - dirty;
    span->base = start;
    span->pages = (uint32_t)pages;
    store_relaxed(&span->dirty_pages, dirty);
    if (lead > 0)
        range_release(arena, base, lead, lead_dirty);
    if (tail > 0)
        range_release(arena, span_end(span), tail, tail_dirty);
    return true;
}

static struct span *free_spans_find(struct page_shard *shard, size_t pages, size_t alignment_pages,
                                    bool only_dirty)
{
    struct span *span = bins_find_in(shard, DIRTY, pages, alignment_pages);
    if (span == NULL && spans_merge(shard))
        span = bins_find_in(shard, DIRTY, pages, alignment_pages);
    return span || only_dirty ? span : bins_find_in(shard, CLEAN, pages, alignment_pages);
}

char *range_carve(struct page_shard *shard, size_t pages, size_t alignment_pages, bool only_dirty,
                  size_t *dirty_pages)
{
    struct span *span = free_spans_find(shard, pages, alignment_pages, only_dirty);
    if (span == NULL)
        return NULL;
    size_t dirty_before = shard->dirty_pages;
    span_withdraw(span);
    char *run = (char *)align_up((uintptr_t)span->base, alignment_pages << PAGE_SHIFT);
    if (config_random_runs && random_next(&shard->random) % 2 != 0)
        run = (char *)align_down((uintptr_t)span->base + ((span->pages - pages) << PAGE_SHIFT),
                                 alignment_pages << PAGE_SHIFT);
    (void)span_cut(span, run, pages);
    *dirty_pages = span->dirty_pages;
    if (*dirty_pages != 0)
        shard->dirty_high = larger_of(shard->dirty_high, dirty_before);
    header_push(span);
    return run;
}

/* Whether a freed run stays loose. Not with random runs: merged spans are cut at random places. */
static bool free_spans_is_loose(const struct span *span)
{
    return !config_random_runs && span->mark == SPAN_WAS_SLAB && span->pages <= LOOSE_MAX_PAGES &&
           shard_of(span)->loose_count < LOOSE_MAX;
}

/* Frees a run that was on the stack of defer(), or could have been. */
static void free_spans_free(struct page_shard *shard, struct span *span)
{
    struct arena *arena = span_arena(span);
    if (span->mark == SPAN_WAS_PURGED)
        span_end_purge(span);
    else if (span->mark == SPAN_IS_NEW)
        shard_count_committed(shard, span->pages);
    if (span->dirty_pages != 0)
        bitmap_set(arena->dirty, arena_page(arena, span->base), span->pages);
    if (free_spans_is_loose(span)) {
        shard->loose[shard->loose_count] = span;
        span->mark = (uint8_t)++shard->loose_count;
        free_spans_enter(span);
    } else {
        span_release(arena, span);
    }
}

/* A span that this thread was purging belongs to a call that a signal handler's fork interrupted.
 * That call continues in the child, so the span stays withdrawn. */
void spans_end_others_purges(struct page_shard *shard)
{
    struct span *span = shard->purging;
    shard->purging = NULL;
    for (struct span *next; span; span = next) {
        next = span->prev;
        if (span->purger == free_spans_purger()) {
            span_begin_purge(span);
        } else { /* how much of it was purged is not known */
            store_relaxed(&span->dirty_pages, (size_t)span->pages);
            span->mark = 0;
            free_spans_free(shard, span);
        }
    }
}

void free_spans_settle(struct page_shard *shard, struct span *given)
{
    struct span *span = NULL;
    if (unlikely(load_relaxed(&shard->deferred) != NULL))
        span = exchange_acquire(&shard->deferred, (struct span *)NULL); /* pairs with defer */
    if (given) {
        given->next = span;
        span = given;
    }
    for (struct span *next; span; span = next) {
        next = span->next;
        if (span->pages == 0)
            header_push(span);
        else
            free_spans_free(shard, span);
    }
}

void free_spans_settle_all(void)
{
    for (unsigned i = 0; i < shard_count(); i++) {
        struct page_shard *shard = &page_shards[i];
        if (load_relaxed(&shard->deferred) == NULL || !shard_acquire(shard))
            continue;
        free_spans_settle(shard, NULL);
        shard_release(shard);
    }
}
