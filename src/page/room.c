/* Ranges of room: see room.h. A few, so they are searched one by one. */
#include "page/room.h"

#include "base/bits.h"
#include "base/check.h"
#include "os/os.h"
#include "page/arena.h"
#include "page/header.h"

/* In `until` of a range. */
enum { IS_BEHIND = 1, IS_AGED = 2 };

static struct span *ranges[ROOM_MOST]; /* page lock */
static unsigned range_count;           /* page lock */

static void count(size_t more, size_t less)
{
    store_relaxed(&pages_state.room_pages, pages_state.room_pages + more - less);
}

/* What is behind a block may lie in a region that the page map does not know: then only readers
 * outside miss it. */
static void enter(struct span *range, struct span *value)
{
    uintptr_t address = (uintptr_t)range->base;
    if (page_map_reaches(address) && load_acquire(&page_map.root[address >> REGION_SHIFT]) != 0)
        page_map_set_page(range->base, value); /* acquire: pairs with page_map_cover */
}

static void add(struct span *range, uint8_t state)
{
    range->until = state;
    store_relaxed(&range->tag, (uint8_t)SPAN_KEPT);
    enter(range, range);
    ranges[range_count++] = range;
    count(range->pages, 0);
}

/* Out of the list; the span is the caller's. */
static void withdraw(unsigned index)
{
    struct span *range = ranges[index];
    enter(range, NULL);
    count(0, range->pages);
    range->until = 0;
    ranges[index] = ranges[--range_count];
}

/* ROOM_MOST where there is none. */
static unsigned find_behind(const struct span *block)
{
    for (unsigned i = 0; i < range_count; i++)
        if (ranges[i]->base == span_end(block) && (ranges[i]->until & IS_BEHIND) != 0)
            return i;
    return ROOM_MOST;
}

/* What is behind the block becomes part of its span. Whether there was anything. */
static bool join(struct span *block)
{
    unsigned index = find_behind(block);
    if (index == ROOM_MOST)
        return false;
    struct span *range = ranges[index];
    withdraw(index);
    store_relaxed(&block->pages, block->pages + range->pages);
    header_push(range);
    return true;
}

/* So many pages may be kept beside what is. As with free runs, a large program keeps more; but no
 * more room than the cap alone. */
static size_t allowed(void)
{
    if (load_relaxed(&pages_state.pressed))
        return 0;
    size_t cap = load_relaxed(&pages_state.limits.dirty_cap_bytes) >> PAGE_SHIFT;
    size_t used = load_relaxed(&pages_state.committed_pages) - pages_state.free_pages +
                  load_relaxed(&pages_state.huge_pages);
    size_t most = larger_of(cap, used);
    size_t kept = pages_state.room_pages;
    size_t unused = smaller_of(kept + pages_state.dirty_pages, most);
    return smaller_of(most - unused, cap - smaller_of(kept, cap));
}

static size_t whole_pages_down(size_t pages)
{
    return align_down(pages << PAGE_SHIFT, os_page_size()) >> PAGE_SHIFT;
}

static size_t whole_pages_up(size_t pages)
{
    return align_up(pages << PAGE_SHIFT, os_page_size()) >> PAGE_SHIFT;
}

static void unmap(char *start, size_t pages) { (void)os_unmap(start, pages << PAGE_SHIFT); }

bool room_give(struct span *span)
{
    if (!lock_acquire(&pages_state.lock))
        return false;
    page_map_set_page(span->base, NULL);
    fetch_sub_relaxed(&pages_state.huge_pages, (size_t)span->pages);
    fetch_sub_relaxed(&pages_state.huge_count, (size_t)1);
    (void)join(span);
    size_t kept = whole_pages_down(smaller_of(span->pages, allowed()));
    if (kept < ROOM_LEAST_PAGES || range_count == ROOM_MOST)
        kept = 0;
    char *rest = span->base + (kept << PAGE_SHIFT);
    size_t rest_pages = span->pages - kept;
    span->pages = (uint32_t)kept;
    if (kept != 0)
        add(span, 0);
    else
        header_push(span);
    lock_release(&pages_state.lock);
    if (rest_pages != 0)
        unmap(rest, rest_pages);
    return true;
}

/* The shortest whole range of so many pages at least; ROOM_MOST if none is. */
static unsigned find_whole(size_t pages)
{
    unsigned best = ROOM_MOST;
    for (unsigned i = 0; i < range_count; i++)
        if ((ranges[i]->until & IS_BEHIND) == 0 && ranges[i]->pages >= pages &&
            (best == ROOM_MOST || ranges[i]->pages < ranges[best]->pages))
            best = i;
    return best;
}

/* Uses the header for what is left, or gives it back. */
static struct span *take(size_t pages, struct span *rest)
{
    unsigned index = find_whole(pages);
    struct span *span = index != ROOM_MOST ? ranges[index] : NULL;
    if (span == NULL || span->pages == pages) {
        header_push(rest);
        rest = NULL;
    }
    if (span == NULL)
        return NULL;
    withdraw(index);
    if (rest) {
        rest->base = span->base + (pages << PAGE_SHIFT);
        rest->pages = span->pages - (uint32_t)pages;
        span->pages = (uint32_t)pages;
        add(rest, IS_BEHIND);
    }
    fetch_add_relaxed(&pages_state.huge_pages, (size_t)span->pages);
    fetch_add_relaxed(&pages_state.huge_count, (size_t)1);
    return span;
}

struct span *room_take(size_t pages)
{
    if (room_pages() < pages)
        return NULL;
    struct span *rest = header_take(0);
    if (rest == NULL)
        return NULL;
    if (!lock_acquire(&pages_state.lock)) {
        rest->pages = 0;
        defer(rest);
        return NULL;
    }
    struct span *span = take(whole_pages_up(pages), rest);
    lock_release(&pages_state.lock);
    if (span == NULL)
        return NULL;
    store_relaxed(&span->dirty_pages, (size_t)0);
    span->grew = true;
    store_relaxed(&span->tag, (uint8_t)SPAN_HUGE);
    page_map_set_page(span->base, span);
    return span;
}

bool room_extend(struct span *span, size_t pages)
{
    size_t more = whole_pages_up(pages) - span->pages;
    if (room_pages() < more || !lock_acquire(&pages_state.lock))
        return false;
    unsigned index = find_behind(span);
    bool fits = index != ROOM_MOST && ranges[index]->pages >= more;
    if (fits) {
        struct span *range = ranges[index];
        withdraw(index);
        range->base += more << PAGE_SHIFT;
        range->pages -= (uint32_t)more;
        if (range->pages != 0)
            add(range, IS_BEHIND);
        else
            header_push(range);
        fetch_add_relaxed(&pages_state.huge_pages, more);
        store_relaxed(&span->pages, span->pages + (uint32_t)more);
    }
    lock_release(&pages_state.lock);
    return fits;
}

void room_join(struct span *span)
{
    if (room_pages() == 0 || !lock_acquire(&pages_state.lock))
        return;
    size_t before = span->pages;
    if (join(span))
        fetch_add_relaxed(&pages_state.huge_pages, span->pages - before);
    lock_release(&pages_state.lock);
}

/* What is on its way back. */
struct going {
    char *start;
    size_t pages;   /* 0: nothing is */
    size_t forgets; /* of then */
};

/* Out of the list, but counted until it is unmapped. */
static struct going begin_purge(unsigned index, size_t pages)
{
    struct span *range = ranges[index];
    uint8_t state = range->until;
    withdraw(index);
    fetch_add_relaxed(&pages_state.purging_dirty, pages);
    range->pages -= (uint32_t)pages;
    struct going going = {span_end(range), pages, pages_state.forgets};
    if (range->pages != 0)
        add(range, state);
    else
        header_push(range);
    return going;
}

/* A signal handler may have forked meanwhile: its child counts nothing of it. */
static void end_purge(const struct going *going)
{
    unmap(going->start, going->pages);
    fetch_add_relaxed(&pages_state.part_pages, going->pages);
    fetch_add_relaxed(&pages_state.part_purges, (size_t)1);
    bool locked = lock_acquire(&pages_state.lock);
    if (pages_state.forgets == going->forgets)
        fetch_sub_relaxed(&pages_state.purging_dirty, going->pages);
    if (locked)
        lock_release(&pages_state.lock);
}

static unsigned find_shortest(void)
{
    unsigned best = 0;
    for (unsigned i = 1; i < range_count; i++)
        if (ranges[i]->pages < ranges[best]->pages)
            best = i;
    return best;
}

static size_t purge_one(size_t wanted)
{
    if (!lock_acquire(&pages_state.lock))
        return 0;
    struct going going = {.pages = 0};
    if (range_count != 0) {
        unsigned index = find_shortest();
        size_t all = ranges[index]->pages;
        size_t pages = smaller_of(wanted, all);
        pages = whole_pages_up(larger_of(pages, ROOM_STEP_PAGES));
        if (pages + ROOM_LEAST_PAGES > all)
            pages = all;
        going = begin_purge(index, pages);
    }
    lock_release(&pages_state.lock);
    if (going.pages != 0)
        end_purge(&going);
    return going.pages;
}

size_t room_purge(size_t pages)
{
    size_t purged = 0;
    while (purged < pages && room_pages() != 0) {
        size_t step = purge_one(pages - purged);
        if (step == 0)
            break;
        purged += step;
    }
    return purged;
}

/* The next range that no block took from since the interval before. */
static struct going take_aged(void)
{
    struct going going = {.pages = 0};
    if (!lock_acquire(&pages_state.lock))
        return going;
    for (unsigned i = 0; i < range_count && going.pages == 0; i++)
        if ((ranges[i]->until & IS_AGED) != 0)
            going = begin_purge(i, ranges[i]->pages);
    for (unsigned i = 0; i < range_count && going.pages == 0; i++)
        ranges[i]->until |= IS_AGED;
    lock_release(&pages_state.lock);
    return going;
}

void room_tick(void)
{
    for (struct going going; room_pages() != 0 && (going = take_aged()).pages != 0;)
        end_purge(&going);
}

void room_verify(void)
{
    size_t pages = 0;
    for (unsigned i = 0; i < range_count; i++) {
        const struct span *range = ranges[i];
        check_internal(range->tag == SPAN_KEPT && range->pages != 0 && range->owner == 0);
        check_internal(
            ((size_t)range->base | (size_t)range->pages << PAGE_SHIFT) % os_page_size() == 0);
        check_internal((range->until & ~(IS_BEHIND | IS_AGED)) == 0);
        check_internal((range->until & IS_BEHIND) != 0 || range->pages >= ROOM_LEAST_PAGES);
        check_internal(arena_find(range->base) == NULL);
        for (unsigned j = 0; j < i; j++)
            check_internal(span_end(range) <= ranges[j]->base ||
                           span_end(ranges[j]) <= range->base);
        pages += range->pages;
    }
    check_internal(pages == pages_state.room_pages && range_count <= ROOM_MOST);
}
