/* See purge.h. */
#include "page/purge.h"

#include "base/bits.h"
#include "os/os.h"
#include "page/arena.h"
#include "page/bins.h"
#include "page/free_spans.h"
#include "page/room.h"
#include "page/state.h"
#include "page/trapped.h"

/* One way through the dirty spans, the longest first. One that still has dirty pages after its
 * purge (purge.h says why) stays outside the bins until the end: else it would be the longest
 * again, and the others never be reached. */
struct pass {
    struct span *left; /* those spans, linked by `next` */
    size_t left_pages; /* sum of their dirty pages */
    unsigned refusals; /* so many more, and the pass ends */
};

/* Where all memory is locked a pass comes to its end soon, and the next ones end at the first span
 * that is left, until so many dirty pages have come since. */
enum { REFUSALS_MOST = 256, STUCK_LEAST_PAGES = 256 };
static size_t stuck_pages; /* atomic: dirty ones that the last whole pass has left; a hint */

/* False while another thread forks. */
static bool range_is_dirty(const struct arena *arena, const char *start, size_t pages)
{
    if (!lock_acquire(&pages_state.lock))
        return false;
    bool dirty = bitmap_count(arena->dirty, arena_page(arena, start), pages) != 0;
    lock_release(&pages_state.lock);
    return dirty;
}

/* While another thread forks it stays dirty, as far as the bitmap knows. */
static void note_clean(struct arena *arena, const char *start, size_t pages)
{
    if (!lock_acquire(&pages_state.lock))
        return;
    bitmap_clear(arena->dirty, arena_page(arena, start), pages);
    lock_release(&pages_state.lock);
}

/* Of a part of a span that is out of the bins, refused as a whole: one locked page of it is enough
 * for that. So half by half, as far as there is something to give back. */
static void purge_halves(struct arena *arena, char *start, size_t pages, struct pass *pass)
{
    size_t half = align_down((pages << PAGE_SHIFT) / 2, os_page_size()) >> PAGE_SHIFT;
    for (int i = 0; i < 2 && half != 0; i++) {
        char *part = i == 0 ? start : start + (half << PAGE_SHIFT);
        size_t length = i == 0 ? half : pages - half;
        if (pass->refusals == 0 || !range_is_dirty(arena, part, length))
            continue;
        if (os_purge(part, length << PAGE_SHIFT) == 0) {
            page_map_purge(part, length);
            note_clean(arena, part, length);
        } else {
            pass->refusals--;
            purge_halves(arena, part, length, pass);
        }
    }
}

/* The whole system pages within the span. Returns their number in map pages, and where they start.
 */
static size_t whole_inside(const struct span *span, char **start)
{
    size_t granule = os_page_size();
    uintptr_t from = align_up((uintptr_t)span->base, granule);
    uintptr_t to = align_down((uintptr_t)span_end(span), granule);
    *start = (char *)from;
    return to > from ? (to - from) >> PAGE_SHIFT : 0;
}

/* Gives so many pages back, of which some are dirty, and what the page map has for them. Returns
 * how many of them the bitmap does not know to be clean yet. */
static size_t purge_inside(struct arena *arena, char *start, size_t pages, struct pass *pass)
{
    (void)arena_withdraw_advice(start, pages << PAGE_SHIFT);
    if (os_purge(start, pages << PAGE_SHIFT) == 0) {
        page_map_purge(start, pages);
        return pages;
    }
    pass->refusals--;
    purge_halves(arena, start, pages, pass);
    return 0;
}

size_t pages_purge_part(char *start, size_t pages)
{
    size_t granule = os_page_size();
    uintptr_t from = align_up((uintptr_t)start, granule);
    uintptr_t to = align_down((uintptr_t)start + (pages << PAGE_SHIFT), granule);
    size_t cut = to > from ? arena_withdraw_advice((char *)from, to - from) : 0;
    if (unlikely(cut != 0))
        fetch_add_relaxed(&pages_state.cut_pages, cut << HUGE_PAGE_SHIFT);
    if (to <= from || os_purge((char *)from, to - from) != 0)
        return 0;
    size_t purged = (to - from) >> PAGE_SHIFT;
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

static ptrdiff_t kept_pages; /* atomic: claimed, of all threads; a fork may make it a few wrong */

bool pages_may_keep(size_t pages)
{
    return pages <= load_relaxed(&pages_state.limits.dirty_cap_bytes) / 8 >> PAGE_SHIFT &&
           !load_relaxed(&pages_state.pressed);
}

bool pages_claim_kept(size_t pages)
{
    if (!pages_may_keep(pages))
        return false;
    size_t most = load_relaxed(&pages_state.limits.dirty_cap_bytes) / 2 >> PAGE_SHIFT;
    ptrdiff_t more = (ptrdiff_t)pages;
    if (fetch_add_relaxed(&kept_pages, more) + more <= (ptrdiff_t)most)
        return true;
    fetch_sub_relaxed(&kept_pages, more);
    return false;
}

void pages_unclaim_kept(size_t pages) { fetch_sub_relaxed(&kept_pages, (ptrdiff_t)pages); }

void pages_reset_kept(size_t pages) { store_relaxed(&kept_pages, (ptrdiff_t)pages); }

uint64_t pages_interval_ms(void) { return load_relaxed(&pages_state.interval_start_ms); }

static void end_purging(size_t pages, size_t dirty_pages)
{
    fetch_sub_relaxed(&pages_state.purging_pages, pages);
    fetch_sub_relaxed(&pages_state.purging_dirty, dirty_pages);
}

/* Leaves the span its end, as far as so many dirty pages need; what is before becomes a free span
 * of its own. Page lock. */
static void keep_end(struct span *span, size_t dirty_pages)
{
    struct arena *arena = arena_find(span->base);
    size_t first = arena_page(arena, span->base);
    size_t page = first + span->pages;
    for (size_t found = 0; found < dirty_pages && page > first;)
        found += bitmap_count(arena->dirty, --page, 1);
    size_t lead = align_down(page << PAGE_SHIFT, os_page_size()) >> PAGE_SHIFT;
    lead = lead > first ? lead - first : 0;
    if (lead == 0 || pages_state.headers[0] == NULL)
        return;
    size_t lead_dirty = bitmap_count(arena->dirty, first, lead);
    char *base = span->base;
    span->base += lead << PAGE_SHIFT;
    span->pages -= (uint32_t)lead;
    store_relaxed(&span->dirty_pages, span->dirty_pages - lead_dirty);
    range_release(arena, base, lead, lead_dirty);
}

/* Page lock. */
static void put_back(struct span *span)
{
    end_purging(span->pages, span->dirty_pages);
    span_end_purge(span);
    span_release(arena_find(span->base), span);
    note_dirty_low();
}

/* While another thread forks. */
static void put_back_later(struct span *span)
{
    end_purging(span->pages, span->dirty_pages);
    store_relaxed(&span->dirty_pages, (size_t)span->pages); /* as far as the bitmap knows */
    span->until = SPAN_WAS_PURGED;
    defer(span);
}

/* The longest dirty span, or its end where fewer pages will do, out of the bins, and the part of it
 * that can be purged: no pages where that is clean. NULL when there is none. */
static struct span *take_dirty(size_t pages_wanted, char **start, size_t *pages)
{
    if (!lock_acquire(&pages_state.lock))
        return NULL;
    (void)spans_merge();
    struct span *span = bins_longest_dirty();
    if (span) {
        span_withdraw(span);
        if (pages_wanted < span->dirty_pages)
            keep_end(span, pages_wanted);
        span_begin_purge(span);
        struct arena *arena = arena_find(span->base);
        *pages = whole_inside(span, start);
        if (*pages != 0 && bitmap_count(arena->dirty, arena_page(arena, *start), *pages) == 0)
            *pages = 0;
    }
    lock_release(&pages_state.lock);
    return span;
}

/* Takes one dirty span, purges it, puts it back or leaves it to the end of the pass. Adds the pages
 * purged; false when there is nothing more to do. */
static bool purge_one(size_t pages_wanted, struct pass *pass, size_t *purged)
{
    char *start;
    size_t pages = 0;
    struct span *span = take_dirty(pages_wanted, &start, &pages);
    if (span == NULL)
        return false;
    struct arena *arena = arena_of(span->base);
    size_t cleaned = pages != 0 ? purge_inside(arena, start, pages, pass) : 0;
    if (!lock_acquire(&pages_state.lock)) {
        put_back_later(span);
        return false;
    }
    bitmap_clear(arena->dirty, arena_page(arena, start), cleaned);
    size_t before = span->dirty_pages;
    size_t dirty = bitmap_count(arena->dirty, arena_page(arena, span->base), span->pages);
    store_relaxed(&span->dirty_pages, dirty);
    fetch_sub_relaxed(&pages_state.purging_dirty, before - dirty);
    store_relaxed(&pages_state.purged_pages, pages_state.purged_pages + before - dirty);
    store_relaxed(&pages_state.purges, pages_state.purges + (before != dirty));
    if (dirty == 0) {
        put_back(span);
    } else {
        span->next = pass->left;
        pass->left = span;
        pass->left_pages += dirty;
    }
    lock_release(&pages_state.lock);
    *purged += before - dirty;
    return true;
}

static void end_pass(const struct pass *pass)
{
    bool locked = lock_acquire(&pages_state.lock);
    for (struct span *span = pass->left, *next; span; span = next) {
        next = span->next;
        if (locked)
            put_back(span);
        else
            put_back_later(span);
    }
    if (locked)
        lock_release(&pages_state.lock);
}

static size_t purge_up_to(size_t pages, bool exact)
{
    size_t stuck = load_relaxed(&stuck_pages);
    bool whole =
        stuck == 0 || load_relaxed(&pages_state.dirty_pages) > stuck + STUCK_LEAST_PAGES;
    struct pass pass = {.refusals = whole ? REFUSALS_MOST : 1};
    size_t purged = 0;
    while (purged < pages && pass.refusals != 0 && (whole || pass.left == NULL) &&
           purge_one(exact ? pages - purged : SIZE_MAX, &pass, &purged))
        continue;
    if (pass.left == NULL)
        return purged;
    end_pass(&pass);
    if (whole)
        store_relaxed(&stuck_pages, pass.refusals != 0 ? pass.left_pages
                                                       : load_relaxed(&pages_state.dirty_pages));
    return purged;
}

size_t purge_pages(size_t pages) { return purge_up_to(pages, false); }

size_t purge_pages_exactly(size_t pages) { return purge_up_to(pages, true); }

void purge_excess(void)
{
    size_t used =
        load_relaxed(&pages_state.committed_pages) - load_relaxed(&pages_state.free_pages);
    size_t cap = larger_of(load_relaxed(&pages_state.limits.dirty_cap_bytes) >> PAGE_SHIFT, used);
    if (unlikely(load_relaxed(&pages_state.pressed)))
        cap = 0;
    size_t dirty = load_relaxed(&pages_state.dirty_pages);
    if (unlikely(dirty > cap))
        purge_pages(dirty - cap +
                    cap / 4); /* some more, so that the next give does not purge again */
    size_t kept = load_relaxed(&pages_state.dirty_pages) + room_pages();
    if (unlikely(kept > cap) && room_pages() != 0)
        (void)room_purge(kept - cap);
}

/* atomic: NULL before the heap's start, and other allocators may tick by then */
static void (*on_interval)(void);

void pages_on_interval(void (*ended)(void))
{
    store_release(&on_interval, ended); /* pairs with pages_tick */
}

void pages_tick(void)
{
    uint64_t decay = load_relaxed(&pages_state.limits.decay_ms);
    uint64_t now = os_now_ms();
    uint64_t start = load_relaxed(&pages_state.interval_start_ms);
    if (likely(now - start < decay / 2 + 1))
        return;
    if (!compare_swap_acq_rel(&pages_state.interval_start_ms, &start, now))
        return; /* another thread does it */
    fetch_add_relaxed(&pages_state.intervals, (size_t)1);
    void (*ended)(void) = load_acquire(&on_interval); /* pairs with pages_on_interval */
    if (ended)
        ended();
    if (!lock_acquire(&pages_state.lock))
        return; /* a fork is under way */
    size_t unneeded = pages_state.dirty_low;
    pages_state.dirty_low = pages_state.dirty_pages;
    lock_release(&pages_state.lock);
    store_relaxed(&stuck_pages, (size_t)0);
    purge_pages(load_relaxed(&pages_state.pressed) ? SIZE_MAX : unneeded);
    room_tick();
    if (config_guarded_blocks)
        trapped_tick();
}

size_t pages_kept_outside(void)
{
    return config_guarded_blocks ? trapped_kept_pages() : room_pages();
}

size_t purge_outside(size_t pages)
{
    return config_guarded_blocks ? trapped_purge(pages) : room_purge(pages);
}

/* Not while a fork is under way: then the rests stay until the next trim. */
static void locked(void (*of_rests)(void))
{
    if (!lock_acquire(&pages_state.lock))
        return;
    of_rests();
    lock_release(&pages_state.lock);
}

bool pages_trim(size_t keep_bytes)
{
    locked(spans_mark_rests);
    store_relaxed(&stuck_pages, (size_t)0);
    size_t keep = keep_bytes >> PAGE_SHIFT;
    size_t kept = pages_kept_outside();
    size_t dirty = load_relaxed(&pages_state.dirty_pages) + kept;
    size_t purged = 0;
    if (dirty > keep) {
        purged = kept != 0 ? purge_outside(dirty - keep) : 0;
        purged += purge_pages(dirty - keep - smaller_of(purged, dirty - keep));
    }
    locked(arenas_end_trim);
    return purged != 0;
}
