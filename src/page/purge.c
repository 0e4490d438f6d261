/* The passes over dirty spans, the decay interval, and purging of parts of runs: see purge.h. */
#include "page/purge.h"

#include "base/bits.h"
#include "os/memory.h"
#include "os/process.h"
#include "page/arena.h"
#include "page/free_spans.h"
#include "page/kept_mappings.h"
#include "page/revoked.h"
#include "page/state.h"

/* One pass over the dirty spans, the longest first. A span that still has dirty pages after its
 * purge (purge.h says why) stays out of the bins until the end of the pass. Otherwise it would
 * be the longest again, and the pass would never reach the others. */
struct pass {
    struct span *left; /* spans that still have dirty pages, linked by `next` */
    size_t left_pages; /* sum of the dirty pages of these spans */
    unsigned refusals; /* refusals after which the pass ends */
};

/* Where all memory is locked, a pass ends after REFUSALS_MAX refusals. Later passes end at the
 * first span that keeps dirty pages, until as many more pages are dirty. */
enum { REFUSALS_MAX = 256 };

/* A huge page that a sweep of slabs cuts was zeroed by the kernel and divided again for little
 * use, and the next one probably will be too. So the heap grows first by SMALL_TIMES as much in
 * small pages. */
enum { SMALL_TIMES = 4 };

/* Purges a range of a span that is out of the bins, and the entries of the page map for it. Where
 * the system refuses, which one locked page is enough for, it halves the range until the parts are
 * accepted, and marks these as clean.
 * Returns: whether the caller still has to mark the whole range as clean. */
static bool purge_range(struct arena *arena, char *start, size_t pages, struct pass *pass)
{
    if (os_purge(start, pages << PAGE_SHIFT) == 0) {
        page_map_purge(start, pages);
        return true;
    }
    pass->refusals--;
    size_t half = align_down((pages << PAGE_SHIFT) / 2, os_page_size()) >> PAGE_SHIFT;
    for (int i = 0; i < 2 && half != 0 && pass->refusals != 0; i++) {
        char *part = i == 0 ? start : start + (half << PAGE_SHIFT);
        size_t length = i == 0 ? half : pages - half;
        if (purge_range(arena, part, length, pass) && shard_acquire(arena->shard)) {
            arena_mark_clean(arena, part, length); /* not while another thread forks */
            shard_release(arena->shard);
        }
    }
    return false;
}

size_t pages_purge_part(char *start, size_t pages)
{
    char *whole;
    size_t purged = arena_whole_pages(start, pages, &whole);
    if (purged == 0)
        return 0;
    size_t cut = arena_withdraw_advice(whole, purged << PAGE_SHIFT);
    if (unlikely(cut != 0))
        fetch_add_relaxed(&pages_state.small_pages, (cut * SMALL_TIMES) << HUGE_PAGE_SHIFT);
    if (os_purge(whole, purged << PAGE_SHIFT) != 0)
        return 0;
    fetch_add_relaxed(&pages_state.part_pages, purged);
    fetch_add_relaxed(&pages_state.part_purges, (size_t)1);
    return purged;
}

uint64_t pages_purge_marked(char *start, uint64_t marked)
{
    uint64_t went = 0;
    while (marked != 0) {
        unsigned page = lowest_bit(marked);
        uint64_t rest = ~(marked >> page);
        unsigned count = rest == 0 ? 64 - page : lowest_bit(rest);
        uint64_t run = UINT64_MAX >> (64 - count) << page;
        if (pages_purge_part(start + ((size_t)page << PAGE_SHIFT), count) == count)
            went |= run;
        marked &= ~run;
    }
    return went;
}

uint64_t pages_whole_marked(const char *start, uint64_t marked)
{
    size_t granule = os_page_size();
    if (likely(granule == PAGE_BYTES))
        return marked;
    uint64_t whole = 0;
    size_t count = granule >> PAGE_SHIFT;
    size_t page = (align_up((uintptr_t)start, granule) - (uintptr_t)start) >> PAGE_SHIFT;
    for (; page + count <= 64; page += count) {
        uint64_t all = UINT64_MAX >> (64 - count) << page;
        if ((marked & all) == all)
            whole |= all;
    }
    return whole;
}

size_t pages_most_kept(void)
{
    size_t cap_bytes = load_relaxed(&pages_state.limits.dirty_cap_bytes);
    return load_relaxed(&pages_state.pressed) ? 0 : cap_bytes / 8 >> PAGE_SHIFT;
}

/* The start of the shortest end of the pages from `first` to before `end` that has `wanted` dirty
 * pages, or `first` if there are fewer. */
static size_t purge_find_dirty(const uint64_t *dirty, size_t first, size_t end, size_t wanted)
{
    enum { WORD_PAGES = 64 };
    size_t page = end;
    while (wanted != 0 && page > first) {
        size_t step = smaller_of((page - 1) % WORD_PAGES + 1, page - first);
        if (bitmap_count(dirty, page - step, step) >= wanted)
            step = 1;
        page -= step;
        wanted -= bitmap_count(dirty, page, step);
    }
    return page;
}

/* Shortens a span, which is out of the bins, to an end with `dirty_pages` dirty pages, without the
 * clean pages behind the last dirty one. Without this cut each purge of a part would pass the pages
 * that the purges before it returned to the system again.
 * Locking: shard's lock held. */
static void purge_keep_end(struct span *span, size_t dirty_pages)
{
    struct arena *arena = span_arena(span);
    size_t first = arena_page(arena, span->base);
    size_t end = purge_find_dirty(arena->dirty, first, first + span->pages, 1) + 1;
    size_t start = purge_find_dirty(arena->dirty, first, end, dirty_pages);
    /* Long parts begin with a huge page, which would otherwise be divided. */
    size_t granule = dirty_pages < HUGE_PAGE_BYTES >> PAGE_SHIFT ? os_page_size() : HUGE_PAGE_BYTES;
    uintptr_t from = align_down((uintptr_t)arena->base + (start << PAGE_SHIFT), granule);
    uintptr_t to = align_up((uintptr_t)arena->base + (end << PAGE_SHIFT), os_page_size());
    from = larger_of(from, (uintptr_t)span->base);
    to = smaller_of(to, (uintptr_t)span_end(span));
    (void)span_cut(span, (char *)from, (to - from) >> PAGE_SHIFT); /* no header: it stays whole */
}

/* Returns a span to the bins; defers it while another thread forks, which `locked` excludes. */
static void purge_put_back(struct span *span, bool locked)
{
    fetch_sub_relaxed(&pages_state.purging_pages, (size_t)span->pages);
    fetch_sub_relaxed(&pages_state.purging_dirty, (size_t)span->dirty_pages);
    if (locked) {
        span_end_purge(span);
        span_release(span_arena(span), span);
    } else {
        store_relaxed(&span->dirty_pages, (size_t)span->pages); /* the bitmap was not updated */
        span->mark = SPAN_WAS_PURGED;
        defer(span);
    }
}

/* Takes the longest dirty span of the shard out of the bins, or only its end if fewer pages are
 * wanted. Returns: NULL when there is no dirty span, or while another thread forks. */
static struct span *purge_take_dirty(struct page_shard *shard, size_t pages_wanted)
{
    if (!shard_acquire(shard))
        return NULL;
    (void)spans_merge(shard);
    struct span *span = bins_longest(shard, DIRTY);
    if (span) {
        span_withdraw(span);
        purge_keep_end(span, smaller_of(pages_wanted, span->dirty_pages));
        span_begin_purge(span);
    }
    shard_release(shard);
    return span;
}

/* Takes one dirty span, purges it, and returns it to the bins or keeps it until the end of the
 * pass. Adds the number of purged pages to `*purged`.
 * Returns: false when there is nothing more to do. */
static bool purge_one(struct page_shard *shard, size_t pages_wanted, struct pass *pass,
                      size_t *purged)
{
    struct span *span = purge_take_dirty(shard, pages_wanted);
    if (span == NULL)
        return false;
    struct arena *arena = span_arena(span);
    char *start;
    size_t pages = arena_whole_pages(span->base, span->pages, &start);
    bool cleaned = false;
    if (pages != 0) {
        (void)arena_withdraw_advice(start, pages << PAGE_SHIFT);
        cleaned = purge_range(arena, start, pages, pass);
    }
    if (!shard_acquire(shard)) {
        purge_put_back(span, false);
        return false;
    }
    if (cleaned)
        arena_mark_clean(arena, start, pages);
    size_t before = span->dirty_pages;
    size_t dirty = bitmap_count(arena->dirty, arena_page(arena, span->base), span->pages);
    store_relaxed(&span->dirty_pages, dirty);
    fetch_sub_relaxed(&pages_state.purging_dirty, before - dirty);
    fetch_add_relaxed(&pages_state.purged_pages, before - dirty);
    fetch_add_relaxed(&pages_state.purges, (size_t)(before != dirty));
    if (dirty == 0) {
        purge_put_back(span, true);
    } else {
        span->next = pass->left;
        pass->left = span;
        pass->left_pages += dirty;
    }
    shard_release(shard);
    *purged += before - dirty;
    return true;
}

/* Returns the spans that the pass kept to the bins. */
static void purge_end_pass(struct page_shard *shard, const struct pass *pass)
{
    bool locked = shard_acquire(shard);
    for (struct span *span = pass->left, *next; span; span = next) {
        next = span->next;
        purge_put_back(span, locked);
    }
    if (locked)
        shard_release(shard);
}

/* Makes one pass over a shard until at least `pages` pages are purged; returns their number. */
static size_t purge_shard(struct page_shard *shard, size_t pages)
{
    size_t left = load_relaxed(&shard->stuck_pages);
    bool whole = left == 0 || load_relaxed(&shard->dirty_pages) > left + REFUSALS_MAX;
    struct pass pass = {.refusals = whole ? REFUSALS_MAX : 1};
    size_t purged = 0;
    while (purged < pages && pass.refusals != 0 && (whole || pass.left == NULL) &&
           purge_one(shard, pages - purged, &pass, &purged))
        continue;
    if (pass.left == NULL)
        return purged;
    purge_end_pass(shard, &pass);
    if (whole)
        store_relaxed(&shard->stuck_pages,
                      pass.refusals != 0 ? pass.left_pages : load_relaxed(&shard->dirty_pages));
    return purged;
}

size_t purge_pages(size_t pages)
{
    size_t purged = 0;
    unsigned count = shard_count();
    for (unsigned i = 0; i < count && purged < pages; i++) {
        struct page_shard *shard = &page_shards[(own_shard + i) % count];
        if (load_relaxed(&shard->dirty_pages) != 0)
            purged += purge_shard(shard, pages - purged);
    }
    return purged;
}

void purge_excess(struct page_shard *shard, size_t pages)
{
    uint32_t tells = load_relaxed(&shard->tells);
    if (likely(load_relaxed(&shard->compared) == tells))
        return;
    size_t used = shards_used_pages();
    bool pressed = load_relaxed(&pages_state.pressed);
    size_t cap = pressed ? 0 : larger_of(cap_pages(), used);
    size_t bound = pressed ? SIZE_MAX : 2 * pages + PURGE_STEP_PAGES;
    size_t dirty = load_relaxed(&pages_state.dirty_pages);
    /* a quarter of the cap more, so that the next give does not purge again */
    if (unlikely(dirty > cap))
        cap_note_given(purge_pages(smaller_of(dirty - cap + cap / 4, bound)));
    else
        store_relaxed(&shard->compared, tells); /* before that, each give compares them */
    if (likely(kept_mapping_pages() == 0))
        return;
    size_t most = pressed ? 0 : larger_of(cap, used + load_relaxed(&pages_state.huge_pages));
    size_t kept = load_relaxed(&pages_state.dirty_pages) + kept_mapping_pages();
    if (unlikely(kept > most))
        cap_note_given(kept_mapping_purge(smaller_of(kept - most, bound)));
}

/* atomic: NULL before the heap has started; other allocators may call pages_tick earlier */
static pages_ticker *on_tick;

void pages_on_tick(pages_ticker *ticker)
{
    store_release(&on_tick, ticker); /* release: pairs with pages_tick */
}

/* Purging of the memory that ended intervals did not need. Each shard counts its due pages. */
static struct {
    uint64_t us; /* atomic: end of the last purge of a part; 0: nothing is due */
} cache_aligned due;

/* Purges up to `most` of a shard's due pages. Pages that the program took since are not due.
 * Returns: the number of purged pages; 0 while another thread forks. */
static size_t purge_due_of(struct page_shard *shard, size_t most)
{
    if (load_relaxed(&shard->due_pages) == 0 || !shard_acquire(shard))
        return 0;
    size_t due_pages = smaller_of(shard->due_pages, shard->dirty_low);
    size_t pages = smaller_of(due_pages, most);
    store_relaxed(&shard->due_pages, due_pages - pages);
    shard_release(shard);
    return purge_shard(shard, pages);
}

bool pages_purge_due(void)
{
    uint64_t now = os_now_us();
    uint64_t before = exchange_acq_rel(&due.us, now);
    uint64_t passed =
        before != 0 && now > before ? smaller_of(now - before, (uint64_t)PURGE_MAX_US) : 0;
    size_t bound = larger_of(PURGE_STEP_PAGES, (size_t)passed * PURGE_STEP_PAGES / 1000);
    size_t purged = 0;
    for (unsigned i = 0; i < shard_count() && purged < bound; i++)
        purged += purge_due_of(&page_shards[i], bound - purged);
    purged += kept_mapping_decay(bound - smaller_of(purged, bound));
    /* The time of the purge itself does not count. Where all is done, or was refused, the next
     * interval tries again. */
    store_relaxed(&due.us, purged != 0 ? os_now_us() : 0);
    return purged != 0;
}

/* Ends a decay interval: makes the memory due that it did not need. */
static void purge_end_interval(void)
{
    fetch_add_relaxed(&pages_state.intervals, (size_t)1);
    free_spans_settle_all();
    size_t swing = 0;
    for (unsigned i = 0; i < shard_count(); i++) {
        struct page_shard *shard = &page_shards[i];
        if (!shard_acquire(shard))
            return; /* a fork is under way */
        store_relaxed(&shard->due_pages, shard->dirty_low);
        swing += shard->dirty_high - smaller_of(shard->dirty_low, shard->dirty_high);
        shard->dirty_low = shard->dirty_pages;
        shard->dirty_high = 0;
        shard_release(shard);
        store_relaxed(&shard->stuck_pages, (size_t)0);
    }
    if (load_relaxed(&pages_state.pressed))
        (void)purge_pages(SIZE_MAX);
    swing += kept_mapping_age();
    if (load_relaxed(&due.us) == 0)
        store_relaxed(&due.us, os_now_us());
    cap_age(swing);
    if (config_guarded_blocks)
        revoked_decay();
}

void pages_tick(void)
{
    uint64_t decay = load_relaxed(&pages_state.limits.decay_ms);
    uint64_t start = load_acquire(&pages_state.interval_start_ms);
    uint64_t now = os_now_ms(); /* read second, so it is not earlier than the start */
    pages_ticker *ticker = load_acquire(&on_tick); /* acquire: pairs with pages_on_tick */
    bool ends =
        unlikely(now - start >= decay / 2 + 1) &&
        compare_swap_acq_rel(&pages_state.interval_start_ms, &start, now); /* else another thread */
    if (ticker)
        (void)ticker(ends);
    if (ends)
        purge_end_interval();
    if (unlikely(load_relaxed(&due.us) != 0))
        (void)pages_purge_due();
}

size_t pages_kept_outside(void)
{
    return config_guarded_blocks ? load_relaxed(&revoked_memory_pages) : kept_mapping_pages();
}

size_t purge_outside(size_t pages)
{
    return config_guarded_blocks ? revoked_purge(pages) : kept_mapping_purge(pages);
}

bool pages_trim(size_t keep_bytes)
{
    free_spans_settle_all();
    for (unsigned i = 0; i < shard_count(); i++) {
        if (!shard_acquire(&page_shards[i]))
            break; /* another thread forks; the next trim finds the remaining pages */
        spans_mark_rests(&page_shards[i]);
        shard_release(&page_shards[i]);
        store_relaxed(&page_shards[i].stuck_pages, (size_t)0);
    }
    size_t keep = keep_bytes >> PAGE_SHIFT;
    size_t free_pages, dirty;
    shards_count_free(&free_pages, &dirty);
    dirty += pages_kept_outside();
    if (dirty <= keep)
        return false;
    size_t purged = purge_outside(dirty - keep);
    purged += purge_pages(dirty - keep - smaller_of(purged, dirty - keep));
    return purged != 0;
}
