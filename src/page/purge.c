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

/* Gives back the whole system pages within the span, and what the page map has for them. Returns
 * their number in map pages, and where they start. */
static size_t purge_inside(const struct span *span, char **start)
{
    size_t granule = os_page_size();
    uintptr_t from = align_up((uintptr_t)span->base, granule);
    uintptr_t to = align_down((uintptr_t)span_end(span), granule);
    *start = (char *)from;
    if (to > from)
        arena_withdraw_advice(*start, to - from);
    if (to <= from || os_purge(*start, to - from) != 0)
        return 0;
    page_map_purge(*start, (to - from) >> PAGE_SHIFT);
    return (to - from) >> PAGE_SHIFT;
}

size_t pages_purge_part(char *start, size_t pages)
{
    size_t granule = os_page_size();
    uintptr_t from = align_up((uintptr_t)start, granule);
    uintptr_t to = align_down((uintptr_t)start + (pages << PAGE_SHIFT), granule);
    if (to > from)
        arena_withdraw_advice((char *)from, to - from);
    if (to <= from || os_purge((char *)from, to - from) != 0)
        return 0;
    size_t purged = (to - from) >> PAGE_SHIFT;
    fetch_add_relaxed(&pages_state.part_pages, purged);
    fetch_add_relaxed(&pages_state.part_purges, (size_t)1);
    return purged;
}

bool pages_purge_marked(char *start, uint64_t marked)
{
    size_t purged = 0;
    for (size_t page = 0; marked != 0;) {
        unsigned skip = lowest_bit(marked);
        uint64_t rest = ~(marked >> skip);
        unsigned count = rest == 0 ? 64 - skip : lowest_bit(rest);
        page += skip;
        purged += pages_purge_part(start + (page << PAGE_SHIFT), count);
        page += count;
        marked = skip + count == 64 ? 0 : marked >> skip >> count;
    }
    return purged != 0;
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

/* Takes one dirty span, or its end where fewer pages will do, purges it, puts it back. Returns the
 * dirty pages purged, 0 when there is nothing to do. */
static size_t purge_one(size_t pages_wanted)
{
    if (!lock_acquire(&pages_state.lock))
        return 0;
    (void)spans_merge();
    struct span *span = bins_longest_dirty();
    if (span) {
        span_withdraw(span);
        if (pages_wanted < span->dirty_pages)
            keep_end(span, pages_wanted);
        span_begin_purge(span);
    }
    lock_release(&pages_state.lock);
    if (span == NULL)
        return 0;
    char *start;
    size_t pages = span->pages;
    size_t before = span->dirty_pages;
    size_t cleaned = purge_inside(span, &start);
    if (!lock_acquire(&pages_state.lock)) {
        end_purging(pages, before);
        store_relaxed(&span->dirty_pages, (size_t)span->pages); /* as far as the bitmap knows */
        span->until = SPAN_WAS_PURGED;
        defer(span);
        return 0;
    }
    end_purging(pages, before);
    span_end_purge(span);
    struct arena *arena = arena_find(span->base);
    bitmap_clear(arena->dirty, arena_page(arena, start), cleaned);
    store_relaxed(&span->dirty_pages,
                  bitmap_count(arena->dirty, arena_page(arena, span->base), span->pages));
    size_t purged = before - span->dirty_pages;
    store_relaxed(&pages_state.purged_pages, pages_state.purged_pages + purged);
    store_relaxed(&pages_state.purges, pages_state.purges + 1);
    span_release(arena, span);
    note_dirty_low();
    lock_release(&pages_state.lock);
    return purged;
}

static size_t purge_up_to(size_t pages, bool exact)
{
    size_t purged = 0;
    while (purged < pages) {
        size_t step = purge_one(exact ? pages - purged : SIZE_MAX);
        if (step == 0)
            break; /* nothing left, or the kernel refuses: the pages stay dirty, and usable */
        purged += step;
    }
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
