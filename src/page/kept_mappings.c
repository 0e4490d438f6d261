/* The ranges of kept mappings, see kept_mappings.h: a short list, which is searched linearly. The
 * page lock is held in static functions, except in kept_mapping_unlock_and_unmap,
 * kept_mapping_extend_by, kept_mapping_purge_one and kept_mapping_purge_marked. */
#include "page/kept_mappings.h"

#include "base/bits.h"
#include "base/check.h"
#include "os/memory.h"
#include "page/arena.h"
#include "page/state.h"

/* Bits of `mark` of a range: it is right behind a block; no block has taken from it since the last
 * decay interval began; none has taken from it in a whole interval. */
enum { IS_BEHIND = 1, IS_AGED = 2, IS_DUE = 4 };

/* page lock: all ranges, unordered; pages_state.kept_ranges is their number */
static struct span *kept_ranges[KEPT_MAPPINGS_MAX] cache_aligned;

/* Enters a range into the page map, or clears its entry. A range behind a block may be in a region
 * that the page map does not cover; then only readers outside the process miss it. */
static void kept_mapping_enter(struct span *range, struct span *value)
{
    uintptr_t address = (uintptr_t)range->base;
    if (page_map_reaches(address) && load_acquire(&page_map.root[address >> REGION_SHIFT]) != 0)
        page_map_set_page(range->base, value); /* the acquire above pairs with page_map_cover */
}

/* Adds a range to the list, with a value for `mark`; returns the header of an empty one. */
static void kept_mapping_add(struct span *range, uint8_t state)
{
    if (range->pages == 0) {
        header_return(range);
        return;
    }
    range->mark = state;
    store_relaxed(&range->tag, (uint8_t)SPAN_KEPT);
    kept_mapping_enter(range, range);
    kept_ranges[pages_state.kept_ranges++] = range;
    store_relaxed(&pages_state.kept_mapping_pages, pages_state.kept_mapping_pages + range->pages);
}

/* Takes a range out of the list. The span of the range belongs to the caller. */
static void kept_mapping_withdraw(unsigned index)
{
    struct span *range = kept_ranges[index];
    kept_mapping_enter(range, NULL);
    store_relaxed(&pages_state.kept_mapping_pages, pages_state.kept_mapping_pages - range->pages);
    range->mark = 0;
    kept_ranges[index] = kept_ranges[--pages_state.kept_ranges];
}

/* Notes that a block took some of the `before` kept pages. */
static void kept_mapping_note_take(size_t before)
{
    store_relaxed(&pages_state.kept_high, larger_of(pages_state.kept_high, before));
    pages_state.kept_low = smaller_of(pages_state.kept_low, pages_state.kept_mapping_pages);
}

/* Adds pages from the front of the range right behind a block to the block: at least `least` and at
 * most `most`. Returns: the number of pages; 0 if there is no such range. */
static size_t kept_mapping_extend_locked(struct span *block, size_t least, size_t most)
{
    unsigned i = 0;
    while (i < pages_state.kept_ranges &&
           (kept_ranges[i]->base != span_end(block) || (kept_ranges[i]->mark & IS_BEHIND) == 0))
        i++;
    if (i == pages_state.kept_ranges || kept_ranges[i]->pages < least)
        return 0;
    struct span *range = kept_ranges[i];
    size_t pages = smaller_of(range->pages, most);
    kept_mapping_withdraw(i);
    range->base += pages << PAGE_SHIFT;
    range->pages -= (uint32_t)pages;
    kept_mapping_add(range, IS_BEHIND);
    store_relaxed(&block->pages, block->pages + (uint32_t)pages);
    return pages;
}

/* The number of pages that may be kept in addition. As with free runs, a program that uses more may
 * keep more, but never more kept mappings than the cap. */
static size_t kept_mapping_allowed(void)
{
    if (load_relaxed(&pages_state.pressed))
        return 0;
    size_t cap = cap_pages();
    size_t most = larger_of(cap, shards_used_pages() + load_relaxed(&pages_state.huge_pages));
    size_t kept = pages_state.kept_mapping_pages;
    size_t unused = smaller_of(kept + load_relaxed(&pages_state.dirty_pages), most);
    return smaller_of(most - unused, cap - smaller_of(kept, cap));
}

static size_t kept_mapping_whole_pages_up(size_t pages)
{
    return align_up(pages << PAGE_SHIFT, os_page_size()) >> PAGE_SHIFT;
}

/* Releases the page lock and unmaps pages that are in no list. They are counted in purging_dirty
 * until they are unmapped. If a signal handler forks meanwhile, its child no longer counts them. */
static void kept_mapping_unlock_and_unmap(char *start, size_t pages)
{
    size_t resets = pages_state.purging_resets;
    fetch_add_relaxed(&pages_state.purging_dirty, pages);
    lock_release(&pages_state.lock);
    if (pages == 0)
        return;
    (void)os_unmap(start, pages << PAGE_SHIFT);
    bool locked = lock_acquire(&pages_state.lock);
    if (pages_state.purging_resets == resets)
        fetch_sub_relaxed(&pages_state.purging_dirty, pages);
    if (locked)
        lock_release(&pages_state.lock);
}

bool kept_mapping_put(struct span *span)
{
    if (!lock_acquire(&pages_state.lock))
        return false;
    fetch_sub_relaxed(&pages_state.huge_pages, (size_t)span->pages);
    fetch_sub_relaxed(&pages_state.huge_count, (size_t)1);
    (void)kept_mapping_extend_locked(span, 0, SIZE_MAX);
    size_t most_bytes = smaller_of(span->pages, kept_mapping_allowed()) << PAGE_SHIFT;
    size_t kept = align_down(most_bytes, os_page_size()) >> PAGE_SHIFT;
    bool may_keep =
        span->pages >= KEPT_MAPPING_MIN_PAGES && pages_state.kept_ranges != KEPT_MAPPINGS_MAX;
    if (!may_keep || kept < KEPT_MAPPING_MIN_PAGES || (!span->grew && kept != span->pages))
        kept = 0;
    size_t rest = span->pages - kept;
    span->pages = (uint32_t)kept;
    char *end = span_end(span);
    kept_mapping_add(span, 0);
    kept_mapping_unlock_and_unmap(end, rest);
    if (may_keep) /* otherwise a higher cap would not help */
        cap_note_given(rest);
    return true;
}

/* The index of the shortest range of at least `pages` pages that has, of the bits `mask` of its
 * mark, the bits `marks`; KEPT_MAPPINGS_MAX if there is none. */
static unsigned kept_mapping_find(uint8_t mask, uint8_t marks, size_t pages)
{
    unsigned best = KEPT_MAPPINGS_MAX;
    for (unsigned i = 0; i < pages_state.kept_ranges; i++)
        if ((kept_ranges[i]->mark & mask) == marks && kept_ranges[i]->pages >= pages &&
            (best == KEPT_MAPPINGS_MAX || kept_ranges[i]->pages < kept_ranges[best]->pages))
            best = i;
    return best;
}

/* Takes a block from the front of a range. `rest` is an unused header for the remaining range. */
static struct span *kept_mapping_take_locked(size_t pages, struct span *rest)
{
    unsigned index = kept_mapping_find(IS_BEHIND, 0, pages);
    if (index == KEPT_MAPPINGS_MAX) {
        header_return(rest);
        return NULL;
    }
    struct span *span = kept_ranges[index];
    size_t kept = pages_state.kept_mapping_pages;
    kept_mapping_withdraw(index);
    rest->base = span->base + (pages << PAGE_SHIFT);
    rest->pages = span->pages - (uint32_t)pages;
    span->pages = (uint32_t)pages;
    kept_mapping_add(rest, IS_BEHIND);
    kept_mapping_note_take(kept);
    fetch_add_relaxed(&pages_state.huge_pages, pages);
    fetch_add_relaxed(&pages_state.huge_count, (size_t)1);
    return span;
}

struct span *pages_map_kept(size_t size_bytes)
{
    size_t pages = align_up(size_bytes, os_page_size()) >> PAGE_SHIFT;
    struct span *rest = kept_mapping_pages() >= pages ? header_take(shard_own(), 0) : NULL;
    if (rest == NULL)
        return NULL;
    if (!lock_acquire(&pages_state.lock)) {
        header_return(rest);
        return NULL;
    }
    struct span *span = kept_mapping_take_locked(pages, rest);
    lock_release(&pages_state.lock);
    if (span == NULL)
        return NULL;
    store_relaxed(&span->dirty_pages, (size_t)0); /* the flags: not zero, has not grown */
    store_relaxed(&span->tag, (uint8_t)SPAN_HUGE);
    page_map_set_page(span->base, span);
    return span;
}

/* Does what kept_mapping_extend_locked does, and counts it. */
static bool kept_mapping_extend_by(struct span *block, size_t least, size_t most)
{
    if (kept_mapping_pages() < least || !lock_acquire(&pages_state.lock))
        return false;
    size_t kept = pages_state.kept_mapping_pages;
    size_t pages = kept_mapping_extend_locked(block, least, most);
    if (pages != 0) {
        kept_mapping_note_take(kept);
        fetch_add_relaxed(&pages_state.huge_pages, pages);
    }
    lock_release(&pages_state.lock);
    return pages != 0;
}

bool pages_extend_huge(struct span *span, size_t pages)
{
    size_t more = kept_mapping_whole_pages_up(pages) - span->pages;
    bool extended = pages > span->pages && kept_mapping_extend_by(span, more, more);
    span->grew = span->grew || extended;
    return extended;
}

void kept_mapping_join(struct span *span) { (void)kept_mapping_extend_by(span, 1, SIZE_MAX); }

/* Unmaps about `wanted` pages from the end of the shortest range whose `mark` has the bits `marks`.
 * Returns: the number of unmapped pages; 0 if there is no such range or the lock is frozen. */
static size_t kept_mapping_purge_one(size_t wanted, uint8_t marks)
{
    if (!lock_acquire(&pages_state.lock))
        return 0;
    unsigned index = kept_mapping_find(marks, marks, 0);
    if (index == KEPT_MAPPINGS_MAX) {
        lock_release(&pages_state.lock);
        return 0;
    }
    struct span *range = kept_ranges[index];
    uint8_t state = range->mark;
    size_t pages = smaller_of(wanted, range->pages);
    pages = kept_mapping_whole_pages_up(larger_of(pages, KEPT_MAPPING_MIN_PAGES / 4));
    if (pages + KEPT_MAPPING_MIN_PAGES > range->pages)
        pages = range->pages;
    kept_mapping_withdraw(index);
    range->pages -= (uint32_t)pages;
    char *end = span_end(range);
    kept_mapping_add(range, state);
    fetch_add_relaxed(&pages_state.part_pages, pages);
    fetch_add_relaxed(&pages_state.part_purges, (size_t)1);
    kept_mapping_unlock_and_unmap(end, pages);
    return pages;
}

static size_t kept_mapping_purge_marked(size_t pages, uint8_t marks)
{
    size_t purged = 0;
    for (size_t step = 1; step != 0 && purged < pages && kept_mapping_pages() != 0; purged += step)
        step = kept_mapping_purge_one(pages - purged, marks);
    return purged;
}

size_t kept_mapping_purge(size_t pages) { return kept_mapping_purge_marked(pages, 0); }

size_t kept_mapping_decay(size_t pages) { return kept_mapping_purge_marked(pages, IS_DUE); }

size_t kept_mapping_age(void)
{
    if ((kept_mapping_pages() | load_relaxed(&pages_state.kept_high)) == 0 ||
        !lock_acquire(&pages_state.lock))
        return 0;
    size_t high = pages_state.kept_high;
    size_t swing = high - smaller_of(pages_state.kept_low, high);
    store_relaxed(&pages_state.kept_high, (size_t)0);
    pages_state.kept_low = SIZE_MAX;
    for (unsigned i = 0; i < pages_state.kept_ranges; i++)
        kept_ranges[i]->mark |= (kept_ranges[i]->mark & IS_AGED) != 0 ? IS_DUE : IS_AGED;
    lock_release(&pages_state.lock);
    return swing;
}

void kept_mapping_verify(void)
{
    size_t pages = 0;
    for (unsigned i = 0; i < pages_state.kept_ranges; i++) {
        const struct span *range = kept_ranges[i];
        check_internal(range->tag == SPAN_KEPT && range->pages != 0 && range->owner == 0);
        check_internal(
            ((size_t)range->base | (size_t)range->pages << PAGE_SHIFT) % os_page_size() == 0);
        check_internal((range->mark & ~(IS_BEHIND | IS_AGED | IS_DUE)) == 0);
        check_internal((range->mark & IS_BEHIND) != 0 || range->pages >= KEPT_MAPPING_MIN_PAGES);
        check_internal(arena_of(range->base) == NULL);
        for (unsigned j = 0; j < i; j++)
            check_internal(span_end(range) <= kept_ranges[j]->base ||
                           span_end(kept_ranges[j]) <= range->base);
        pages += range->pages;
    }
    check_internal(pages == pages_state.kept_mapping_pages &&
                   pages_state.kept_ranges <= KEPT_MAPPINGS_MAX);
}
