/* See free_spans.h. */
#include "page/free_spans.h"

#include "base/bits.h"
#include "base/random.h"
#include "os/os.h"
#include "page/arena.h"
#include "page/bins.h"
#include "page/header.h"
#include "page/state.h"

/* The page map's boundary tags of a span with one header: first and last page. */
static void tag_ends(const struct span *span, struct span *value)
{
    page_map_set_page(span->base, value);
    page_map_set_page(span->base + ((size_t)(span->pages - 1) << PAGE_SHIFT), value);
}

static void span_enter(struct span *span)
{
    store_relaxed(&span->tag, (uint8_t)SPAN_FREE);
    tag_ends(span, span);
    bins_insert(span);
    store_relaxed(&pages_state.free_pages, pages_state.free_pages + span->pages);
    store_relaxed(&pages_state.dirty_pages, pages_state.dirty_pages + span->dirty_pages);
}

enum { LOOSE_MOST = 64, LOOSE_MOST_PAGES = 16 };

static struct span *loose[LOOSE_MOST]; /* page lock */
static unsigned loose_count;           /* page lock */

static void loose_add(struct span *span)
{
    loose[loose_count] = span;
    span->until = (uint8_t)++loose_count;
}

static void loose_remove(struct span *span)
{
    struct span *last = loose[--loose_count];
    loose[span->until - 1] = last;
    last->until = span->until;
    span->until = 0;
}

bool span_has_place(const struct span *span)
{
    return span->until == 0 || (span->until <= loose_count && loose[span->until - 1] == span);
}

void span_withdraw(struct span *span)
{
    if (span->until != 0)
        loose_remove(span);
    bins_remove(span);
    tag_ends(span, NULL);
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    store_relaxed(&pages_state.free_pages, pages_state.free_pages - span->pages);
    store_relaxed(&pages_state.dirty_pages, pages_state.dirty_pages - span->dirty_pages);
}

void span_begin_purge(struct span *span)
{
    fetch_add_relaxed(&pages_state.purging_pages, (size_t)span->pages);
    fetch_add_relaxed(&pages_state.purging_dirty, (size_t)span->dirty_pages);
    span->purger = thread_identity();
    span->prev = pages_state.purging;
    pages_state.purging = span;
}

void span_end_purge(struct span *span)
{
    if (pages_state.purging == span) {
        pages_state.purging = span->prev;
        return;
    }
    struct span *before = pages_state.purging;
    while (before->prev != span)
        before = before->prev;
    before->prev = span->prev;
}

/* One of this thread's is of the call that a signal handler's fork interrupted, and that goes on.
 */
void spans_end_others_purges(void)
{
    size_t pages = 0;
    size_t dirty_pages = 0;
    struct span *span = pages_state.purging;
    pages_state.purging = NULL;
    for (struct span *next; span; span = next) {
        next = span->prev;
        if (span->purger == thread_identity()) {
            pages += span->pages;
            dirty_pages += span->dirty_pages;
            span->prev = pages_state.purging;
            pages_state.purging = span;
        } else { /* nobody knows how much of it was purged */
            struct arena *arena = arena_find(span->base);
            bitmap_set(arena->dirty, arena_page(arena, span->base), span->pages);
            store_relaxed(&span->dirty_pages, (size_t)span->pages);
            span_release(arena, span);
        }
    }
    store_relaxed(&pages_state.purging_pages, pages);
    store_relaxed(&pages_state.purging_dirty, dirty_pages);
    pages_state.forgets++;
}

void note_dirty_low(void)
{
    pages_state.dirty_low = smaller_of(pages_state.dirty_low, pages_state.dirty_pages);
}

struct span *span_free_neighbour(const struct arena *arena, const char *page)
{
    if (page < arena->base || arena_page(arena, page) >= arena->frontier)
        return NULL;
    struct span *span = page_map_find(page);
    return load_relaxed(&span->tag) == SPAN_FREE
               ? span
               : NULL; /* in use, its owner may write it just now */
}

/* More than one on a side where some are loose. */
void span_release(struct arena *arena, struct span *span)
{
    struct span *left, *right;
    while ((left = span_free_neighbour(arena, span->base - PAGE_BYTES)) != NULL) {
        span_withdraw(left);
        span->base = left->base;
        span->pages += left->pages;
        store_relaxed(&span->dirty_pages, span->dirty_pages + left->dirty_pages);
        header_push(left);
    }
    while ((right = span_free_neighbour(arena, span_end(span))) != NULL) {
        span_withdraw(right);
        span->pages += right->pages;
        store_relaxed(&span->dirty_pages, span->dirty_pages + right->dirty_pages);
        header_push(right);
    }
    span->until = 0;
    span_enter(span);
}

bool spans_merge(void)
{
    bool any = loose_count != 0;
    while (loose_count != 0) {
        struct span *span = loose[loose_count - 1];
        span_withdraw(span);
        span_release(arena_find(span->base), span);
    }
    return any;
}

static void mark_rest(struct span *span)
{
    struct arena *arena = arena_find(span->base);
    size_t size_bytes = (size_t)span->pages << PAGE_SHIFT;
    uintptr_t from = (uintptr_t)span->base;
    uintptr_t to = from + size_bytes;
    uintptr_t head_end = smaller_of(align_up(from, HUGE_PAGE_BYTES), to);
    uintptr_t tail = larger_of(align_down(to, HUGE_PAGE_BYTES), head_end);
    size_t head_pages = (head_end - from) >> PAGE_SHIFT;
    size_t tail_pages = (to - tail) >> PAGE_SHIFT;
    if (head_pages + tail_pages == 0 || !arena_may_hold_rests(arena, span->base, size_bytes))
        return;
    span_withdraw(span);
    bitmap_set(arena->dirty, arena_page(arena, span->base), head_pages);
    bitmap_set(arena->dirty, arena_page(arena, (char *)tail), tail_pages);
    store_relaxed(&span->dirty_pages, head_pages + tail_pages);
    span_enter(span);
}

void spans_mark_rests(void)
{
    if (!arenas_begin_trim())
        return;
    (void)spans_merge();
    bins_each_clean(mark_rest);
}

void range_release(struct arena *arena, char *base, size_t pages, size_t dirty_pages)
{
    struct span *span = header_pop(0);
    span->base = base;
    span->pages = (uint32_t)pages;
    store_relaxed(&span->dirty_pages, dirty_pages);
    span_release(arena, span);
}

static struct span *find(size_t pages, size_t alignment_pages)
{
    struct span *span = bins_find(pages, alignment_pages);
    bool grows = span == NULL || span->dirty_pages == 0;
    return grows && spans_merge() ? bins_find(pages, alignment_pages) : span;
}

char *range_carve(size_t pages, size_t alignment_pages, size_t *dirty_pages)
{
    struct span *span = find(pages, alignment_pages);
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

/* Where runs lie at random they are cut at random, too. */
static bool is_loose(const struct span *span)
{
    return !config_random_runs && span->until == SPAN_WAS_SLAB && span->pages <= LOOSE_MOST_PAGES &&
           loose_count < LOOSE_MOST;
}

struct span *deferred_settle(void)
{
    if (likely(load_relaxed(&pages_state.deferred) == NULL))
        return NULL;
    struct span *span =
        exchange_acquire(&pages_state.deferred, (struct span *)NULL); /* pairs with defer */
    struct span *unmap = NULL;
    for (struct span *next; span; span = next) {
        next = span->next;
        struct arena *arena = arena_find(span->base);
        if (span->pages != 0 && span->until == SPAN_WAS_SLAB) {
            fetch_sub_relaxed(&pages_state.swept_pages, (size_t)span->swept_pages);
            span->swept_pages = 0; /* it may be deferred again, see pages_freeze */
        }
        if (span->pages == 0) {
            header_push(span);
        } else if (arena) {
            if (span->until == SPAN_WAS_PURGED)
                span_end_purge(span);
            if (span->dirty_pages != 0)
                bitmap_set(arena->dirty, arena_page(arena, span->base), span->pages);
            if (is_loose(span)) {
                loose_add(span);
                span_enter(span);
            } else {
                span_release(arena, span);
            }
        } else {
            span->next = unmap;
            unmap = span;
        }
    }
    return unmap;
}
