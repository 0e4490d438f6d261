/* The state of the page layer, the limits, unused headers and the cap: see state.h. limits.h and
 * purge.h enforce the limits. */
#include "page/state.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "base/tagged.h"
#include "os/process.h"
#include "page/page.h"

#include <string.h>

struct page_shard page_shards[SHARDS_MAX];
thread_local_word uint8_t own_shard;

struct page_state pages_state = {
    .lock = {.rank = 1}, /* shards have rank 0 */
    .limits = PAGE_LIMITS_DEFAULT,
    .shard_count = 1,
    .kept_low = SIZE_MAX,
};

/* Takes the lock of a shard by `take`, and the page lock if there is a hard limit. */
inline_always bool shard_take(struct page_shard *shard, bool (*take)(struct lock *lock))
{
    if (!take(&shard->lock))
        return false;
    if (likely(load_relaxed(&pages_state.limits.hard_limit_bytes) == 0))
        return true;
    bool taken = take(&pages_state.lock);
    shard->has_page_lock = taken;
    if (!taken)
        lock_release(&shard->lock);
    return taken;
}

bool shard_acquire(struct page_shard *shard) { return shard_take(shard, lock_acquire); }

bool shard_try_acquire(struct page_shard *shard) { return shard_take(shard, lock_try_acquire); }

static bool shard_differs(size_t count, size_t told, size_t by)
{
    return larger_of(count, told) - smaller_of(count, told) > by;
}

/* Tells others whether they may take runs from the shard. Its bit changes under its lock only. */
static void shard_tell_lending(const struct page_shard *shard)
{
    size_t used_pages = shard->committed_pages - shard->free_pages;
    bool lends = shard->dirty_pages > used_pages + GROWTH_MAX_PAGES;
    uint64_t bit = (uint64_t)1 << shard_number(shard);
    if (unlikely(lends != ((load_relaxed(&pages_state.lending) & bit) != 0)))
        fetch_add_relaxed(&pages_state.lending, lends ? bit : 0 - bit);
}

/* Brings the counts of pages_state up to date. A shard that is the only one writes them without
 * locked instructions: the lock of the first one is taken to begin another. */
static void shard_tell(struct page_shard *shard)
{
    size_t free_pages = shard->free_pages;
    size_t dirty_pages = shard->dirty_pages;
    if (shard_count() == 1) {
        store_relaxed(&pages_state.free_pages, free_pages);
        store_relaxed(&pages_state.dirty_pages, dirty_pages);
    } else {
        const struct page_limits *limits = &pages_state.limits;
        bool exactly = (load_relaxed(&limits->soft_limit_bytes) |
                        load_relaxed(&limits->hard_limit_bytes)) != 0 ||
                       load_relaxed(&pages_state.pressed);
        size_t by = exactly ? 0 : TOLD_PAGES;
        if (likely(!shard_differs(free_pages, shard->told_free, by) &&
                   !shard_differs(dirty_pages, shard->told_dirty, by)))
            return;
        fetch_add_relaxed(&pages_state.free_pages, free_pages - shard->told_free);
        fetch_add_relaxed(&pages_state.dirty_pages, dirty_pages - shard->told_dirty);
    }
    shard_tell_lending(shard);
    shard->told_free = free_pages;
    shard->told_dirty = dirty_pages;
    store_relaxed(&shard->tells, shard->tells + 1);
}

void shard_release(struct page_shard *shard)
{
    shard->dirty_low = smaller_of(shard->dirty_low, shard->dirty_pages);
    shard_tell(shard);
    if (unlikely(shard->has_page_lock)) {
        shard->has_page_lock = false;
        lock_release(&pages_state.lock);
    }
    lock_release(&shard->lock);
}

void shard_count_committed(struct page_shard *shard, size_t change)
{
    store_relaxed(&shard->committed_pages, shard->committed_pages + change);
    fetch_add_relaxed(&pages_state.committed_pages, change);
}

size_t shards_used_pages(void)
{
    size_t committed = load_relaxed(&pages_state.committed_pages);
    size_t free = load_relaxed(&pages_state.free_pages) + load_relaxed(&pages_state.purging_pages);
    return committed - smaller_of(free, committed); /* all may change meanwhile */
}

void shards_count_free(size_t *free_pages, size_t *dirty_pages)
{
    *free_pages = *dirty_pages = 0;
    for (unsigned i = 0; i < shard_count(); i++) {
        *free_pages += load_relaxed(&page_shards[i].free_pages);
        *dirty_pages += load_relaxed(&page_shards[i].dirty_pages);
    }
}

/* Tells the counts of all shards, after a limit was set. While another thread forks, a shard tells
 * its counts later. */
static seldom_called void shards_tell(void)
{
    for (unsigned i = 0; i < shard_count(); i++)
        if (shard_acquire(&page_shards[i]))
            shard_release(&page_shards[i]);
}

/* The number of threads that take runs from each shard. */
static uint16_t shard_threads[SHARDS_MAX] cache_aligned; /* atomic */

/* Begins to use shard `number`, the next one. The first thread asks nothing: a program with one
 * thread may be in a sandbox that forbids the question. glibc asks for its second arena, too.
 * Returns: false if the process has no more processors, or another thread forks. */
static bool shard_open(unsigned number)
{
    static unsigned processors; /* atomic; 0 before the second thread */
    if (load_relaxed(&processors) == 0)
        store_relaxed(&processors, os_processor_count());
    struct page_shard *first = &page_shards[0];
    if (number >= smaller_of(load_relaxed(&processors), (unsigned)SHARDS_MAX) ||
        !lock_acquire(&first->lock))
        return false;
    if (number >= shard_count()) { /* otherwise another thread was first */
        if (config_random_runs)
            page_shards[number].random = os_random();
        store_relaxed(&pages_state.shard_count, number + 1);
    }
    lock_release(&first->lock);
    return true;
}

uint8_t pages_enter_shard(uint8_t last)
{
    unsigned count = shard_count();
    unsigned best = last;
    for (unsigned i = 0; i < count; i++)
        if (load_relaxed(&shard_threads[i]) < load_relaxed(&shard_threads[best]))
            best = i;
    if (load_relaxed(&shard_threads[best]) != 0 && shard_open(count))
        best = count;
    fetch_add_relaxed(&shard_threads[best], (uint16_t)1);
    own_shard = (uint8_t)best;
    return own_shard;
}

void pages_leave_shard(uint8_t number)
{
    if (load_relaxed(&shard_threads[number]) != 0) /* or a signal handler has forked since */
        fetch_sub_relaxed(&shard_threads[number], (uint16_t)1);
    own_shard = 0;
}

void shards_forget_threads(void) { memset(shard_threads, 0, sizeof shard_threads); }

/* Puts a list of runs or headers of one shard on the stack `deferred`. */
static void defer_list(struct span *first, struct span *last)
{
    struct span **deferred = &shard_of(first)->deferred;
    last->next = load_relaxed(deferred);
    /* release: pairs with free_spans_settle */
    while (!compare_swap_acq_rel(deferred, &last->next, first))
        pause_processor();
}

void defer(struct span *span) { defer_list(span, span); }

at_process_start void pages_configure(const struct page_limits *limits)
{
    struct page_limits *own = &pages_state.limits;
    store_relaxed(&own->decay_ms, limits->decay_ms);
    store_relaxed(&own->dirty_cap_bytes, limits->dirty_cap_bytes);
    store_relaxed(&own->huge_pages, limits->huge_pages);
    store_relaxed(&own->soft_limit_bytes, limits->soft_limit_bytes);
    store_relaxed(&own->hard_limit_bytes, limits->hard_limit_bytes);
    if (unlikely(shard_count() > 1)) /* not at the start of the process */
        shards_tell();
}

seldom_called void pages_limit_soft(size_t bytes)
{
    store_relaxed(&pages_state.limits.soft_limit_bytes, bytes);
    shards_tell();
}

seldom_called void pages_limit_hard(size_t bytes)
{
    store_relaxed(&pages_state.limits.hard_limit_bytes, bytes);
    shards_tell();
}

void pages_read_limits(struct page_limits *limits)
{
    const struct page_limits *own = &pages_state.limits;
    *limits = (struct page_limits){
        .decay_ms = load_relaxed(&own->decay_ms),
        .dirty_cap_bytes = load_relaxed(&own->dirty_cap_bytes),
        .soft_limit_bytes = load_relaxed(&own->soft_limit_bytes),
        .hard_limit_bytes = load_relaxed(&own->hard_limit_bytes),
        .huge_pages = load_relaxed(&own->huge_pages),
    };
}

bool pages_are_huge(void) { return load_relaxed(&pages_state.limits.huge_pages) == HUGE_PAGES_ON; }

/* A small shard makes the header of a slab when it needs it, others make some at once. */
enum { HEADERS_AT_ONCE = 8, MANY_FROM_PAGES = 1 << HUGE_PAGE_SHIFT };

struct span *header_pop(struct page_shard *shard, unsigned side_units)
{
    struct span *span = shard->headers[side_units];
    if (span)
        shard->headers[side_units] = span->next;
    return span;
}

void header_push(struct span *span)
{
    struct page_shard *shard = shard_of(span);
    store_relaxed(&span->tag, (uint8_t)SPAN_NONE);
    span->next = shard->headers[span->side_units];
    shard->headers[span->side_units] = span;
}

void header_return(struct span *span)
{
    span->pages = 0;
    store_relaxed(&span->tag, (uint8_t)SPAN_NONE);
    tagged_push(&shard_of(span)->shared_headers[span->side_units], span,
                offsetof(struct span, next));
}

void headers_share(struct page_shard *shard)
{
    if (!tagged_is_empty(&shard->shared_headers[0]))
        return;
    for (int i = 0; i < HEADERS_AT_ONCE && shard->headers[0]; i++)
        header_return(header_pop(shard, 0));
}

struct span *headers_make(const struct page_shard *shard, unsigned side_units, unsigned count)
{
    size_t bytes = sizeof(struct span) + (size_t)side_units * 64;
    char *at = meta_take(side_units == 0 ? META_HOT : META_COLD, count * bytes);
    struct span *first = NULL;
    for (unsigned i = count; at && i-- > 0;) {
        struct span *span = (struct span *)(void *)(at + i * bytes);
        span->side_units = (uint8_t)side_units;
        span->shard = shard_number(shard);
        store_relaxed(&span->tag, (uint8_t)SPAN_NONE);
        span->next = first;
        first = span;
    }
    return first;
}

bool headers_refill(struct page_shard *shard, unsigned side_units)
{
    struct span *first = tagged_pop_all(&shard->shared_headers[side_units]);
    bool many = side_units == 0 || load_relaxed(&shard->committed_pages) >= MANY_FROM_PAGES;
    if (first == NULL)
        first = headers_make(shard, side_units, many ? HEADERS_AT_ONCE : 1);
    if (first == NULL)
        return false;
    struct span *last = first;
    while (last->next)
        last = last->next;
    defer_list(first, last);
    return true;
}

struct span *header_take(struct page_shard *shard, unsigned side_units)
{
    struct span *span = tagged_pop(&shard->shared_headers[side_units], offsetof(struct span, next));
    if (span == NULL && lock_acquire(&shard->lock)) {
        span = header_pop(shard, side_units);
        lock_release(&shard->lock);
    }
    return span ? span : headers_make(shard, side_units, 1);
}

/* The cap ages by this part in an interval, and is raised by as much more than was missed. */
enum { CAP_AGED_PART = 8 };

static struct {
    ptrdiff_t learned_pages; /* atomic: the cap minus its first value */
    size_t missed_pages;     /* atomic: purged pages that may be taken again soon */
    size_t given_pages;      /* atomic: pages purged above the cap in this interval */
} cache_aligned cap;

/* The option `dirty_cap` in pages, limited so that no computation overflows. */
static size_t cap_option_pages(void)
{
    return smaller_of(load_relaxed(&pages_state.limits.dirty_cap_bytes) >> PAGE_SHIFT,
                      (size_t)PTRDIFF_MAX / CAP_MAX_TIMES);
}

/* The nearest value of cap.learned_pages for which the cap is within its bounds. */
static ptrdiff_t cap_within_bounds(ptrdiff_t learned)
{
    ptrdiff_t option = (ptrdiff_t)cap_option_pages();
    ptrdiff_t first = option / CAP_FIRST_PART;
    ptrdiff_t least = option / CAP_MIN_PART - first;
    ptrdiff_t most = option * CAP_MAX_TIMES - first;
    return learned < least ? least : learned > most ? most : learned;
}

size_t cap_pages(void)
{
    ptrdiff_t learned = cap_within_bounds(load_relaxed(&cap.learned_pages));
    return cap_option_pages() / CAP_FIRST_PART + (size_t)learned;
}

/* Changes the cap by `pages`. If two threads do, one change may be lost. */
static void cap_learn(ptrdiff_t pages)
{
    ptrdiff_t learned = load_relaxed(&cap.learned_pages) + pages;
    store_relaxed(&cap.learned_pages, cap_within_bounds(learned));
}

void cap_note_given(size_t pages)
{
    if (pages == 0 || load_relaxed(&pages_state.pressed))
        return; /* under pressure memory is not purged because the program has too much of it */
    fetch_add_relaxed(&cap.given_pages, pages);
    fetch_add_relaxed(&cap.missed_pages, pages);
    cap_learn(-(ptrdiff_t)(pages / CAP_LOWERED_PART));
}

void cap_note_taken(size_t pages)
{
    size_t missed = load_relaxed(&cap.missed_pages);
    size_t again = smaller_of(pages, missed);
    if (likely(again == 0) ||
        !compare_swap_acq_rel(&cap.missed_pages, &missed, missed - again)) /* another thread does */
        return;
    cap_learn((ptrdiff_t)(again + again / CAP_AGED_PART));
}

void cap_age(size_t swing)
{
    size_t given = exchange_acq_rel(&cap.given_pages, (size_t)0);
    store_relaxed(&cap.missed_pages, smaller_of(load_relaxed(&cap.missed_pages), given));
    ptrdiff_t used = (ptrdiff_t)swing - (ptrdiff_t)(cap_option_pages() / CAP_FIRST_PART);
    ptrdiff_t learned = cap_within_bounds(load_relaxed(&cap.learned_pages));
    ptrdiff_t aged = learned - learned / CAP_AGED_PART;
    ptrdiff_t least = used < learned ? used : learned;
    cap_learn((aged > least ? aged : least) - learned);
}
