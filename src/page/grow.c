/* How the arenas grow and in which pages, fences within arenas, pages for metadata: see grow.h.
 *
 * In hardened builds (docs/HARDENING.md) there are fences within arenas, too, at random
 * distances of STRETCH_PAGES to twice that many pages, at first. Fences belong to no span and stay
 * for ever, so runs are taken and given without a system call for them. Each fence costs two
 * mappings of the kernel, which limits these (vm.max_map_count): where it refuses one, there is no
 * fence. The program needs mappings too, for the stacks of its threads. So the distances double
 * after each FENCES_TO_DOUBLE fences, up to the length of a growth. */
#include "page/grow.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "base/random.h"
#include "os/memory.h"
#include "os/process.h"
#include "page/arena.h"
#include "page/free_spans.h"
#include "page/limits.h"
#include "page/meta.h"
#include "page/page_map.h"
#include "page/state.h"

#include <errno.h>
#include <string.h>

/* No run is longer than a stretch, unless a longer one was requested. A stretch is long enough
 * for a slab of any class except the largest. */
enum { STRETCH_PAGES = 32, FENCES_TO_DOUBLE = 2048, DOUBLINGS_MAX = 5 };
static size_t fence_count; /* atomic: fences within all arenas */

/* The number of pages of a fence, 0 in builds without fences within arenas. */
static size_t grow_fence_pages(void) { return config_fences ? os_page_size() >> PAGE_SHIFT : 0; }

/* The lengths of a growth, in pages. */
enum {
    MIN_BATCH = (256 << 10) >> PAGE_SHIFT,
    HUGE_PAGES = 1 << HUGE_PAGE_SHIFT, /* pages of a huge page */
};

/* atomic, each: the last growth and the one before. A word has the start and, in its low bits, the
 * length in pages; 0: none. If threads grow at the same time, one growth may be missed. */
static uintptr_t growths[2];

static_check((int)GROW_NOTED_MAX < (int)PAGE_BYTES, "a length fits beside an address");

void grow_note(const char *start, size_t pages)
{
    if (pages > GROW_NOTED_MAX)
        return;
    uintptr_t before = exchange_acq_rel(&growths[0], (uintptr_t)start | pages);
    store_relaxed(&growths[1], before);
}

/* The number of pages of a slab that are not known to be touched. `fresh_slot` is 1 in a slab that
 * has handed out no block. */
static cold size_t grow_untouched_of(const struct span *slab, unsigned class)
{
    const struct slab_shape *shape = &pages_state.shapes[class];
    if (shape->unit_bytes > PAGE_BYTES)
        return shape->pages;
    uint64_t fresh = load_relaxed(&slab->fresh_slot);
    uint64_t bytes = (fresh - (fresh != 0)) * shape->unit_bytes;
    return shape->pages - smaller_of((bytes + PAGE_BYTES - 1) >> PAGE_SHIFT, (size_t)shape->pages);
}

cold bool grow_is_touched(void)
{
    enum { PART = 4 }; /* one page in 4 may be untouched: slabs that were just opened, free runs */
    const uintptr_t noted[2] = {load_relaxed(&growths[0]), load_relaxed(&growths[1])};
    if (noted[0] == 0 || noted[1] == 0)
        return false;
    size_t most = (noted[0] % PAGE_BYTES + noted[1] % PAGE_BYTES) / PART;
    size_t untouched = 0;
    for (int i = 1; i >= 0; i--) {
        size_t length = noted[i] % PAGE_BYTES;
        const char *start = (const char *)(noted[i] - length);
        /* Stops early, because it reads lines that the threads of these pages write. */
        for (size_t page = 0, step; page < length && untouched <= most; page += step) {
            struct span *span = page_map_find(start + (page << PAGE_SHIFT));
            unsigned tag = load_relaxed(&span->tag);
            step = tag >= SPAN_SLAB ? pages_state.shapes[tag - SPAN_SLAB].pages : 1;
            untouched += tag >= SPAN_SLAB ? grow_untouched_of(span, tag - SPAN_SLAB) : 1;
        }
    }
    return untouched <= most;
}

/* Defers a new free run, divided by fences into stretches of at least `least` pages each. The
 * last stretch may be shorter. */
static void grow_defer_fenced(struct span *span, size_t least)
{
    size_t fence = grow_fence_pages();
    uint64_t random = os_random();
    while (span->pages >= fence + least &&
           os_protect(span->base, fence << PAGE_SHIFT, OS_NONE) == 0) {
        span->base += fence << PAGE_SHIFT;
        span->pages -= (uint32_t)fence;
        size_t doubled = fetch_add_relaxed(&fence_count, (size_t)1) / FENCES_TO_DOUBLE;
        size_t stretch = STRETCH_PAGES + random_below(&random, STRETCH_PAGES);
        stretch <<= smaller_of(doubled, (size_t)DOUBLINGS_MAX);
        stretch = align_up(larger_of(stretch, least), fence);
        struct span *rest =
            span->pages > stretch + fence ? headers_make(shard_of(span), 0, 1) : NULL;
        if (rest == NULL)
            break;
        rest->base = span->base + (stretch << PAGE_SHIFT);
        rest->pages = span->pages - (uint32_t)stretch;
        rest->mark = SPAN_IS_NEW;
        store_relaxed(&rest->dirty_pages, (size_t)0);
        span->pages = (uint32_t)stretch;
        defer(span);
        span = rest;
        least = smaller_of(least, span->pages - fence); /* the last stretch may be shorter */
    }
    defer(span);
}

/* Commits `pages` pages, or the rest of an arena, and defers them as free runs, `needed` of them in
 * one run. Adds an arena if none has enough pages. */
static int grow_by(struct page_shard *shard, size_t pages, size_t needed, enum arena_step step)
{
    struct span *span = header_take(shard, 0);
    if (span == NULL)
        return -ENOBUFS;
    int error = 0;
    char *base;
    do
        base = arena_commit(shard, &pages, needed + grow_fence_pages(), step, &error);
    while (base == NULL && error == -ENOSPC && (error = arena_add(shard, pages)) == 0);
    if (base == NULL) {
        header_return(span);
        return error;
    }
    span->base = base;
    span->pages = (uint32_t)pages;
    span->mark = SPAN_IS_NEW;
    store_relaxed(&span->dirty_pages, (size_t)0);
    if (pages >= HUGE_PAGES && needed <= GROWTH_MAX_PAGES) /* a long run does not show density */
        grow_note(base, pages);
    if (config_fences)
        grow_defer_fenced(span, needed);
    else
        defer(span);
    return 0;
}

/* Whether the next growth has to be in small pages, after huge pages that were cut (purge.c).
 * Subtracts the growth from what is still due. */
static bool grow_owes_small_pages(size_t pages)
{
    size_t due = load_relaxed(&pages_state.small_pages);
    if (likely(due == 0))
        return false;
    size_t left = due - smaller_of(pages, due); /* a growth of another thread may be missed */
    (void)compare_swap_acq_rel(&pages_state.small_pages, &due, left);
    return true;
}

/* Chooses the pages of the next growth, of at least one huge page, for a run of `needed` pages.
 * With HUGE_PAGES_AUTO, a large heap whose program has touched the last growths asks for huge
 * pages: not for a run above GROWTH_MAX_PAGES, which the program may not fill, nor near a limit,
 * nor after huge pages were cut. A large heap that may not ask, and a heap of any size whose
 * program has not touched the last growths, refuses huge pages, because the system may be set to
 * use them without a request. All else is left to the system. */
static enum arena_step grow_step_of(size_t pages, size_t needed)
{
    if (load_relaxed(&pages_state.limits.huge_pages) != HUGE_PAGES_AUTO)
        return ARENA_TO_HUGE_END;
    bool large = load_relaxed(&pages_state.committed_pages) >= HUGE_PAGES_FROM_BYTES >> PAGE_SHIFT;
    bool touched = grow_is_touched();
    if (large && touched && pages <= GROWTH_MAX_PAGES && limits_admit_huge_pages(pages) &&
        !grow_owes_small_pages(pages))
        return ARENA_IN_HUGE_PAGES;
    bool small = (large || !touched) && needed < HUGE_PAGES;
    return small ? ARENA_IN_SMALL_PAGES : ARENA_TO_HUGE_END;
}

/* The length of the next growth. A heap of at least one huge page grows by whole huge pages,
 * whether it asks for them or not (arena.h). Committed memory costs nothing until it is touched. */
static size_t grow_batch_of(size_t committed_pages)
{
    size_t least = committed_pages < HUGE_PAGES || config_fences ? MIN_BATCH : HUGE_PAGES;
    return larger_of(least, smaller_of(committed_pages / 8, GROWTH_MAX_PAGES));
}

int pages_grow(struct page_shard *shard, size_t pages)
{
    size_t granule = os_page_size() >> PAGE_SHIFT;
    limits_heed_growth(pages);
    size_t needed = align_up(pages, granule);
    size_t batch = grow_batch_of(load_relaxed(&pages_state.committed_pages));
    size_t least = needed + grow_fence_pages();
    batch = larger_of(align_up(batch, granule), least);
    enum arena_step step = ARENA_EXACTLY;
    if (batch >= HUGE_PAGES && !config_fences) /* fences would divide huge pages */
        step = grow_step_of(batch, needed);
    int error = grow_by(shard, batch, needed, step);
    if (error == 0)
        return 0;
    bool no_memory = error == -ENOMEM;
    error = grow_by(shard, least, needed, ARENA_EXACTLY);
    return error != 0 && no_memory ? -ENOMEM : error;
}

/* Makes the whole system pages of a free span a hole.
 * Locking: shard's lock held.
 * Returns: the number of pages; 0 if there are none, or no headers for the rest of the span, or if
 * the system refuses. */
static cold size_t grow_uncommit_span(struct span *span)
{
    struct arena *arena = span_arena(span);
    char *start;
    size_t pages = arena_whole_pages(span->base, span->pages, &start);
    if (pages == 0)
        return 0;
    span_withdraw(span);
    if (!span_cut(span, start, pages) || !arena_uncommit(arena, start, pages)) {
        span_release(arena, span);
        return 0;
    }
    shard_count_committed(arena->shard, 0 - pages);
    fetch_add_relaxed(&pages_state.purged_pages, (size_t)span->dirty_pages);
    header_push(span);
    return pages;
}

/* Makes the longest free spans of a shard holes, clean ones first, until they have at least `pages`
 * pages. Spans below `least` pages stay: a hole divides a mapping of the kernel.
 * Returns: the number of pages, which may be less. */
static cold size_t grow_uncommit(struct page_shard *shard, size_t pages, size_t least)
{
    if (!shard_acquire(shard))
        return 0;
    free_spans_settle(shard, NULL);
    (void)spans_merge(shard);
    size_t done = 0;
    for (unsigned set = CLEAN; set < SETS; set++) {
        struct span *span;
        size_t step = 1;
        while (step != 0 && done < pages && (span = bins_longest(shard, set)) != NULL &&
               span->pages >= least)
            done += step = grow_uncommit_span(span);
    }
    shard_release(shard);
    return done;
}

cold bool grow_make_room(size_t pages, bool all)
{
    enum { HOLES = 256 };
    pages = align_up(pages, os_page_size() >> PAGE_SHIFT) + grow_fence_pages();
    size_t most = all ? SIZE_MAX : pages;
    size_t done = 0;
    size_t freezes = load_relaxed(&pages_state.freezes);
    bool purging = load_relaxed(&pages_state.purging_dirty) != 0;
    unsigned waited = 0;
    do
        for (unsigned i = 0; i < shard_count() && done < most; i++)
            done += grow_uncommit(&page_shards[(own_shard + i) % shard_count()], most - done,
                                  pages / HOLES);
    while (done == 0 && limits_wait_for_purges(&waited));
    /* shards are skipped while their locks are frozen */
    return done != 0 || purging || lock_is_frozen(&pages_state.lock) ||
           load_relaxed(&pages_state.freezes) != freezes;
}

/* Takes `*pages` pages from the end of a free span of the shard. A part of the span always remains,
 * so that no header is needed or left over. The start is rounded down to a system page, so `*pages`
 * may increase.
 * Returns: NULL when no span is long enough, or while the lock is frozen. */
static cold char *grow_steal_free(struct page_shard *shard, size_t *pages)
{
    if (!shard_acquire(shard))
        return NULL;
    char *stolen = NULL;
    (void)spans_merge(shard);
    size_t least = *pages + (os_page_size() >> PAGE_SHIFT);
    struct span *span = bins_find(shard, least, 1);
    if (span) {
        struct arena *arena = span_arena(span);
        char *end = span_end(span);
        stolen = (char *)align_down((uintptr_t)end - (*pages << PAGE_SHIFT), os_page_size());
        *pages = (size_t)(end - stolen) >> PAGE_SHIFT;
        span_withdraw(span);
        span->pages -= (uint32_t)*pages;
        store_relaxed(&span->dirty_pages,
                      bitmap_count(arena->dirty, arena_page(arena, span->base), span->pages));
        span_release(arena, span);
        /* from now on neither free nor in use by a span */
        shard_count_committed(shard, 0 - *pages);
    }
    shard_release(shard);
    if (stolen)
        memset(stolen, 0, *pages << PAGE_SHIFT);
    return stolen;
}

/* From behind a frontier, or else from a free span. */
cold char *arena_pages_for_metadata(size_t size_bytes)
{
    size_t fence = os_page_size();
    size_t pages = (size_bytes + 2 * fence) >> PAGE_SHIFT;
    char *start = NULL;
    for (unsigned i = 0; i < shard_count() && start == NULL; i++) {
        int error = 0;
        start = arena_commit(&page_shards[i], &pages, pages, ARENA_EXACTLY, &error);
    }
    for (unsigned i = 0; i < shard_count() && start == NULL; i++)
        start = grow_steal_free(&page_shards[i], &pages);
    if (start == NULL)
        return NULL;
    char *end = start + fence + size_bytes;
    if (os_protect(start, fence, OS_NONE) == 0 && os_protect(end, fence, OS_NONE) == 0) {
        (void)os_purge(start, fence);
        (void)os_purge(end, fence);
    }
    return start + fence;
}
