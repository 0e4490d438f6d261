/* Taking and giving runs of pages: see page.h. Splitting and merging by boundary tags in the page
 * map.
 *
 * Invariant: behind each arena's frontier the spans lie gapless, no two free ones side by side
 * (those whose memory is being purged excepted); a free span's first and last pages map to it.
 * pages_verify checks it.
 */
#include "page/page.h"

#include "base/bits.h"
#include "base/check.h"
#include "base/random.h"
#include "os/os.h"
#include "page/arena.h"
#include "page/bins.h"
#include "page/detached.h"
#include "page/grow.h"
#include "page/header.h"
#include "page/listed.h"
#include "page/state.h"
#include "page/steal.h"

#include <string.h>

void pages_init(const struct slab_shape *shapes)
{
    page_map_init();
    pages_state.shapes = shapes;
    if (config_random_runs)
        pages_state.random = os_entropy();
    store_relaxed(&pages_state.interval_start_ms, os_now_ms());
}

static void (*on_fork)(void); /* const after the heap's start */

void pages_on_fork(void (*in_child)(void)) { on_fork = in_child; }

static void after_fork_in_child(void)
{
    pages_thaw_in_child();
    if (on_fork)
        on_fork();
}

void pages_start(void)
{
    static bool started; /* atomic */
    if (likely(load_relaxed(&started)) || exchange_acq_rel(&started, true))
        return;
    os_init();
    meta_start(fenced_steal);
    (void)os_fork_register(pages_freeze, pages_thaw, after_fork_in_child);
}

/* The page map's boundary tags of a span with one header: first and last page. */
static void tag_ends(const struct span *span, struct span *value)
{
    page_map_set(span->base, 1, value);
    page_map_set(span->base + ((size_t)(span->pages - 1) << PAGE_SHIFT), 1, value);
}

static void span_enter(struct span *span)
{
    store_relaxed(&span->tag, (uint8_t)SPAN_FREE);
    tag_ends(span, span);
    bins_insert(span);
    store_relaxed(&pages_state.free_pages, pages_state.free_pages + span->pages);
    store_relaxed(&pages_state.dirty_pages, pages_state.dirty_pages + span->dirty_pages);
}

void span_withdraw(struct span *span)
{
    bins_remove(span);
    tag_ends(span, NULL);
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    store_relaxed(&pages_state.free_pages, pages_state.free_pages - span->pages);
    store_relaxed(&pages_state.dirty_pages, pages_state.dirty_pages - span->dirty_pages);
}

void note_dirty_low(void)
{
    pages_state.dirty_low = smaller_of(pages_state.dirty_low, pages_state.dirty_pages);
}

static struct span *free_neighbour(const struct arena *arena, const char *page)
{
    if (page < arena->base || arena_page(arena, page) >= arena->frontier)
        return NULL;
    struct span *span = page_map_find(page);
    return load_relaxed(&span->tag) == SPAN_FREE
               ? span
               : NULL; /* in use, its owner may write it just now */
}

void span_release(struct arena *arena, struct span *span)
{
    struct span *left = free_neighbour(arena, span->base - PAGE_BYTES);
    struct span *right = free_neighbour(arena, span->base + ((size_t)span->pages << PAGE_SHIFT));
    if (left) {
        span_withdraw(left);
        span->base = left->base;
        span->pages += left->pages;
        span->dirty_pages += left->dirty_pages;
        header_push(left);
    }
    if (right) {
        span_withdraw(right);
        span->pages += right->pages;
        span->dirty_pages += right->dirty_pages;
        header_push(right);
    }
    span_enter(span);
}

/* Lays a new free span over a committed range that is in no one's use. Page lock; a header is
 * there. */
static void range_release(struct arena *arena, char *base, size_t pages, size_t dirty_pages)
{
    struct span *span = header_pop(0);
    span->base = base;
    span->pages = (uint32_t)pages;
    span->dirty_pages = dirty_pages;
    span_release(arena, span);
}

/* Takes a run out of the bins; what is left of its span goes back. Page lock, two headers there.
 * NULL if none fits. */
static char *carve(size_t pages, size_t alignment_pages, size_t *dirty_pages)
{
    struct span *span = bins_find(pages, alignment_pages);
    if (span == NULL)
        return NULL;
    struct arena *arena = arena_find(span->base);
    span_withdraw(span);
    char *run = (char *)align_up((uintptr_t)span->base, alignment_pages << PAGE_SHIFT);
    if (config_random_runs && random_next(&pages_state.random) % 2 != 0)
        run = (char *)align_down((uintptr_t)span->base + ((span->pages - pages) << PAGE_SHIFT),
                                 alignment_pages << PAGE_SHIFT);
    size_t lead = (size_t)(run - span->base) >> PAGE_SHIFT;
    size_t tail = span->pages - lead - pages;
    *dirty_pages = 0;
    if (span->dirty_pages != 0)
        *dirty_pages = bitmap_count(arena->dirty, arena_page(arena, run), pages);
    size_t lead_dirty = 0;
    if (lead > 0) {
        lead_dirty = bitmap_count(arena->dirty, arena_page(arena, span->base), lead);
        range_release(arena, span->base, lead, lead_dirty);
    }
    if (tail > 0)
        range_release(arena, run + (pages << PAGE_SHIFT), tail,
                      span->dirty_pages - lead_dirty - *dirty_pages);
    header_push(span);
    note_dirty_low();
    return run;
}

/* Does what was deferred while the lock was frozen. Page lock. Returns the runs that lie in no
 * arena, linked by `next`: unmap_list disposes of them once the lock is released. */
static struct span *settle_deferred(void)
{
    if (likely(load_relaxed(&pages_state.deferred) == NULL))
        return NULL;
    struct span *span =
        exchange_acquire(&pages_state.deferred, (struct span *)NULL); /* pairs with defer */
    struct span *unmap = NULL;
    for (struct span *next; span; span = next) {
        next = span->next;
        struct arena *arena = arena_find(span->base);
        if (span->pages == 0) {
            header_push(span);
        } else if (arena) {
            if (span->dirty_pages != 0)
                bitmap_set(arena->dirty, arena_page(arena, span->base), span->pages);
            span_release(arena, span);
        } else {
            span->next = unmap;
            unmap = span;
        }
    }
    return unmap;
}

/* Runs of a mapping of their own, taken while the lock was frozen. Those for which there is no
 * place are missed by statistics, and in the child of a fork. */
enum { APART_MOST = 1024 };
static struct span *apart_places[APART_MOST];
static const struct span_list apart = {apart_places, APART_MOST};

bool apart_each(span_visit *visit, void *context) { return listed_each(&apart, visit, context); }

static void unmap_list(struct span *span)
{
    for (struct span *next; span; span = next) {
        next = span->next;
        (void)listed_remove(&apart, span);
        fetch_sub_relaxed(&pages_state.apart_pages, (size_t)span->pages);
        detached_give(span);
    }
}

/* Makes headers for a list that ran empty. False when memory is out. */
static bool refill_headers(unsigned cold_64, unsigned count)
{
    for (; count > 0; count--) {
        struct span *span = header_make(cold_64);
        if (span == NULL)
            return false;
        span->pages = 0;
        defer(span); /* the next holder of the lock puts it into its list */
    }
    return true;
}

enum outcome { TAKEN, DETACHED, EXHAUSTED };

/* While the lock is frozen for a fork. */
static struct span *take_apart(size_t pages, size_t alignment_bytes, unsigned cold_64,
                               size_t covered_bytes)
{
    if (!hard_limit_admits(pages))
        return NULL;
    struct span *span = detached_take(pages, alignment_bytes, cold_64, covered_bytes);
    if (span)
        fetch_add_relaxed(&pages_state.apart_pages, pages);
    return span;
}

/* What take_run lacked: true when it may try again. */
static bool provide(bool admitted, bool spares, bool has_header, unsigned cold_64, size_t pages,
                    size_t grow_pages)
{
    if (!admitted)
        return purge_for_hard_limit(pages);
    if (!spares)
        return refill_headers(0, 8);
    return has_header ? pages_grow(grow_pages) : refill_headers(cold_64, 1);
}

/* Carves a run and pops its header, growing the arenas and the header lists as needed. */
static enum outcome take_run(size_t pages, size_t alignment_pages, unsigned cold_64,
                             struct span **header)
{
    for (unsigned refused = 0;;) {
        if (!lock_acquire(&pages_state.lock))
            return DETACHED;
        size_t freezes = pages_state.freezes;
        struct span *unmap = settle_deferred();
        struct span *spare = pages_state.headers[0];
        bool spares =
            spare && spare->next && spare->next->next; /* carve needs two, the run may need one */
        bool admitted = hard_limit_admits(pages);
        *header = spares && admitted ? header_pop(cold_64) : NULL;
        size_t dirty_pages = 0;
        char *run = *header ? carve(pages, alignment_pages, &dirty_pages) : NULL;
        if (run) {
            (*header)->base = run;
            (*header)->dirty_pages = dirty_pages;
        } else if (*header) {
            header_push(*header);
        }
        lock_release(&pages_state.lock);
        unmap_list(unmap);
        if (run && dirty_pages < pages)
            heed_soft_limit(0);
        if (run)
            return TAKEN;
        refused += !admitted;
        bool more = refused <= LIMIT_TRIES && provide(admitted, spares, *header != NULL, cold_64,
                                                      pages, pages + alignment_pages - 1);
        /* What failed because another thread forked meanwhile is no lack of memory. */
        if (!more && !load_acquire(&pages_state.lock.frozen) &&
            load_relaxed(&pages_state.freezes) == freezes)
            return EXHAUSTED;
    }
}

struct span *pages_take_slab(unsigned class)
{
    const struct slab_shape *shape = &pages_state.shapes[class];
    struct span *span;
    enum outcome outcome = take_run(shape->pages, 1, shape->cold_64, &span);
    if (outcome == DETACHED)
        span = take_apart(shape->pages, PAGE_BYTES, shape->cold_64,
                          (size_t)shape->pages << PAGE_SHIFT);
    if (outcome == EXHAUSTED || span == NULL)
        return NULL;
    /* No slab sees what another owner of its pages left. Where all were slabs, whose free blocks
     * are zero, nothing is left, and what was written since is seen when it is handed out. By
     * writing: it will touch most of them, and faults cost more. */
    if (config_cleared_slabs && span->dirty_pages != 0 && load_relaxed(&pages_state.unclean))
        memset(span->base, 0, (size_t)shape->pages << PAGE_SHIFT);
    store_relaxed(&span->tag, (uint8_t)(SPAN_SLAB + class));
    page_map_set(span->base, shape->pages, span);
    if (outcome == DETACHED)
        (void)listed_add(&apart, span);
    return span;
}

struct span *pages_take(size_t pages, size_t alignment_bytes)
{
    if (pages > UINT32_MAX / 2)
        return NULL;
    struct span *span;
    enum outcome outcome = take_run(pages, larger_of(alignment_bytes >> PAGE_SHIFT, 1), 0, &span);
    if (outcome == DETACHED)
        span = take_apart(pages, alignment_bytes, 0, pages << PAGE_SHIFT);
    if (outcome == EXHAUSTED || span == NULL)
        return NULL;
    span->zero = span->dirty_pages == 0;
    span->pages = (uint32_t)pages;
    store_relaxed(&span->tag, (uint8_t)SPAN_LARGE);
    page_map_set(span->base, 1, span);
    if (outcome == DETACHED)
        (void)listed_add(&apart, span);
    return span;
}

/* The run is in no one's use any more; all of it may have been written. */
static void give(struct span *span)
{
    span->dirty_pages = span->pages;
    defer(span);
    if (!lock_acquire(&pages_state.lock))
        return;
    struct span *unmap = settle_deferred();
    lock_release(&pages_state.lock);
    unmap_list(unmap);
    purge_excess();
}

void pages_give_slab(struct span *span)
{
    const struct slab_shape *shape = &pages_state.shapes[slab_class(span)];
    page_map_set(span->base, shape->pages, NULL);
    span->pages = shape->pages;
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    give(span);
}

void pages_give(struct span *span)
{
    if (config_cleared_slabs)
        store_relaxed(&pages_state.unclean, true);
    page_map_set(span->base, 1, NULL);
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    give(span);
}

bool pages_extend(struct span *span, size_t pages)
{
    size_t more = pages - span->pages;
    if (!lock_acquire(&pages_state.lock))
        return false;
    struct arena *arena = arena_find(span->base);
    char *end = span->base + ((size_t)span->pages << PAGE_SHIFT);
    struct span *right = arena ? free_neighbour(arena, end) : NULL;
    bool fits = right && right->pages >= more && (right->pages == more || pages_state.headers[0]) &&
                hard_limit_admits(more);
    if (fits) {
        span_withdraw(right);
        size_t dirty_pages = bitmap_count(arena->dirty, arena_page(arena, end), more);
        if (right->pages > more)
            range_release(arena, end + (more << PAGE_SHIFT), right->pages - more,
                          right->dirty_pages - dirty_pages);
        header_push(right);
        note_dirty_low();
        store_relaxed(&span->pages, (uint32_t)pages);
    }
    lock_release(&pages_state.lock);
    if (fits)
        heed_soft_limit(0);
    return fits;
}

bool pages_shrink(struct span *span, size_t pages)
{
    if (config_cleared_slabs)
        store_relaxed(&pages_state.unclean, true);
    if (!lock_acquire(&pages_state.lock))
        return false;
    struct arena *arena = arena_find(span->base);
    bool can = arena && pages_state.headers[0];
    if (can) {
        char *end = span->base + (pages << PAGE_SHIFT);
        size_t rest = span->pages - pages;
        bitmap_set(arena->dirty, arena_page(arena, end), rest);
        store_relaxed(&span->pages, (uint32_t)pages);
        range_release(arena, end, rest, rest);
    }
    lock_release(&pages_state.lock);
    purge_excess();
    return can;
}

void pages_clear(struct span *span, size_t size_bytes)
{
    enum { WORDS = 16 };
    size_t pages = (size_bytes + PAGE_BYTES - 1) >> PAGE_SHIFT;
    if (span->zero)
        return;
    uint64_t dirty[WORDS];
    for (size_t done = 0; done < pages;) {
        size_t first = done;
        size_t step = smaller_of(pages - done, (WORDS - 1) * 64);
        struct arena *arena = NULL;
        if (lock_acquire(&pages_state.lock)) {
            arena = arena_find(span->base);
            size_t page = arena_page(arena, span->base) + done;
            first = page / 64 * 64;
            for (size_t i = 0; i < WORDS && first + 64 * i < page + step; i++)
                dirty[i] = arena->dirty[first / 64 + i];
            first = page - first;
            lock_release(&pages_state.lock);
        }
        for (size_t i = 0; i < step; i++, done++)
            if (arena == NULL || (dirty[(first + i) / 64] >> (first + i) % 64 & 1) != 0)
                memset(span->base + (done << PAGE_SHIFT), 0, PAGE_BYTES);
    }
}

void pages_freeze(void)
{
    lock_freeze(&pages_state.lock);
    store_relaxed(&pages_state.freezes, pages_state.freezes + 1);
    if (!lock_is_frozen_whole(&pages_state.lock))
        return; /* in a signal handler, in the middle of something */
    /* What is deferred from now on is other threads' and lost to the child; what was before is not.
     */
    struct span *unmap = settle_deferred();
    for (struct span *next; unmap; unmap = next) {
        next = unmap->next;
        defer(unmap);
    }
}

void pages_thaw(void) { lock_thaw(&pages_state.lock); }

void pages_thaw_in_child(void)
{
    if (lock_is_frozen_whole(&pages_state.lock)) {
        store_relaxed(&pages_state.deferred, (struct span *)NULL);
        /* What others were purging is lost to the child: it counts as in use. */
        store_relaxed(&pages_state.purging_pages, (size_t)0);
        store_relaxed(&pages_state.purging_dirty, (size_t)0);
        meta_forget_chunks();
    }
    lock_thaw(&pages_state.lock);
}
