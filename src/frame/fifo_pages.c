/* The memory of a FIFO: groups of segments, their return to the system, and objects above 16 KiB.
 * Structure and invariants are described in fifo_state.h.
 *
 * A segment that died is filled next, while it is in the cache. The coldest spare segments are
 * returned when an interval passed without need of them. Dead pages of a segment in use are
 * returned when it is nearly dead and CANDIDATES others have become nearly dead after it. In plain
 * first in, first out, a segment dies soon after it is nearly dead, and then no page is returned
 * early.
 *
 * A run of pages (objects of up to 1 MiB) has no stored length: `back` of its pages counts up, and
 * `back` of the page behind it does not continue. Pages without a run have 0 there. The next run
 * begins behind the last one, which leaves no gaps, and continues over the end of the segment when
 * the next segments are free. But it uses other spare memory before new memory is taken.
 *
 * Threads: the drainer of the FIFO only.
 */
#include "frame/fifo_state.h"
#include "os/memory.h"

#include <string.h>

struct fifo_group *group_map(struct fifo *fifo, size_t size_bytes)
{
    size_t granule = os_page_size();
    size_bytes = align_up(size_bytes, granule);
    char *start = os_reserve(size_bytes + GROUP_BYTES);
    if (start == NULL)
        return NULL;
    char *base = (char *)align_up((uintptr_t)start, GROUP_BYTES);
    size_t lead = (size_t)(base - start);
    if (os_commit(base, granule) != 0) {
        os_unmap(start, size_bytes + GROUP_BYTES);
        return NULL;
    }
    if (lead > 0)
        os_unmap(start, lead);
    os_unmap(base + size_bytes, GROUP_BYTES - lead);
    struct fifo_group *group = (struct fifo_group *)(void *)base;
    group->reserved = size_bytes;
    group->committed = granule;
    group->head.tag = (uintptr_t)fifo ^ (uintptr_t)group;
    group->next = fifo->groups;
    if (fifo->groups)
        fifo->groups->prev = group;
    fifo->groups = group;
    fifo->group_count++;
    return group;
}

void group_unlink(struct fifo *fifo, struct fifo_group *group)
{
    if (group->prev)
        group->prev->next = group->next;
    else
        fifo->groups = group->next;
    if (group->next)
        group->next->prev = group->prev;
    fifo->group_count--;
    size_t reserved = group->reserved;
    mark_defined(group, reserved);
    group->head.tag = 0; /* in case the unmapping fails */
    os_unmap(group, reserved);
}

bool group_commit(struct fifo_group *group, size_t end)
{
    if (end <= group->committed)
        return true;
    size_t target = smaller_of(larger_of(end, 2 * group->committed), group->reserved);
    target = smaller_of(align_up(target, os_page_size()), group->reserved);
    if (os_commit((char *)group + group->committed, target - group->committed) != 0)
        return false;
    group->committed = target;
    return true;
}

unsigned longest_run(uint32_t mask)
{
    unsigned length = 0;
    for (mask &= ~(uint32_t)1; mask != 0 && length < RUN_SEGMENTS; length++)
        mask &= mask >> 1;
    return length;
}

/* Moves a group to the list of its longest run of one kind; 0: to no list. */
static void fifo_list_group(struct fifo *fifo, struct fifo_group *group, enum run_kind kind,
                            unsigned longest)
{
    struct group_listing *listing = &group->listings[kind];
    struct fifo_group **lists = fifo->by_run[kind];
    if (longest == listing->longest)
        return;
    if (listing->prev)
        listing->prev->listings[kind].next = listing->next;
    else if (listing->longest != 0)
        lists[listing->longest - 1] = listing->next;
    if (listing->next)
        listing->next->listings[kind].prev = listing->prev;
    *listing = (struct group_listing){.longest = longest};
    if (longest == 0)
        return;
    listing->next = lists[longest - 1];
    if (listing->next)
        listing->next->listings[kind].prev = group;
    lists[longest - 1] = group;
}

void group_list_by_runs(struct fifo *fifo, struct fifo_group *group)
{
    fifo_list_group(fifo, group, RUN_SPARE, longest_run(group->spare_mask));
    fifo_list_group(fifo, group, RUN_FREE, longest_run(group->free_mask));
}

void group_unlist(struct fifo *fifo, struct fifo_group *group)
{
    fifo_list_group(fifo, group, RUN_SPARE, 0);
    fifo_list_group(fifo, group, RUN_FREE, 0);
}

struct fifo_group *group_with_run(const struct fifo *fifo, enum run_kind kind, size_t count)
{
    for (size_t length = RUN_SEGMENTS; length >= count; length--)
        if (fifo->by_run[kind][length - 1])
            return fifo->by_run[kind][length - 1];
    return NULL;
}

struct fifo_segment *longest_run_of(struct fifo_group *group, uint32_t mask)
{
    uint32_t starts = mask & ~(uint32_t)1;
    for (unsigned length = longest_run(mask); length > 1; length--)
        starts &= starts >> 1;
    return &group->segments[lowest_bit(starts)];
}

enum { NEARLY_DEAD_PAGES = SEGMENT_PAGES / 4 };

/* Whether a live run reaches into the segment. */
static bool fifo_reaches_in(const struct fifo_group *group, size_t index)
{
    size_t page = index * SEGMENT_PAGES;
    return group->back[page] != 0 && group->head.live[page - group->back[page]] > 0;
}

static void fifo_verify_segment(const struct fifo *fifo, const struct fifo_group *group,
                                size_t index)
{
    const struct fifo_segment *segment = &group->segments[index];
    bool is_free = segment->state == SEGMENT_SPARE || segment->state == SEGMENT_EMPTY;
    check_internal(is_free == ((group->free_mask >> index & 1) != 0));
    unsigned live = 0;
    for (size_t page = index * SEGMENT_PAGES; page < (index + 1) * SEGMENT_PAGES; page++)
        live += group->head.live[page] > 0;
    if (segment->state == SEGMENT_CURRENT)
        check_internal(segment == fifo->current && live == segment->live_pages + 1u);
    else if (segment->state == SEGMENT_RETIRED)
        check_internal(live == segment->live_pages && live != 0);
    else if (segment->state == SEGMENT_RUN)
        check_internal(live + fifo_reaches_in(group, index) == segment->live_pages &&
                       (segment->live_pages != 0 || segment == fifo->run));
    else
        check_internal(live == 0);
    check_internal((segment->state == SEGMENT_SPARE) == ((group->spare_mask >> index & 1) != 0));
}

void fifo_verify(const struct fifo *fifo)
{
    if (!config_debug)
        return;
    size_t busy = 0;
    size_t groups = 0;
    for (const struct fifo_group *group = fifo->groups; group; group = group->next) {
        check_internal(group_is_of(group, fifo));
        groups++;
        busy += group->large ? 1 : group->busy;
        check_internal(group->large != 0 ||
                       group->busy == GROUP_SEGMENTS - count_bits(group->free_mask));
        for (size_t i = 0; i < GROUP_SEGMENTS && group->large == 0; i++)
            fifo_verify_segment(fifo, group, i);
        check_internal(group->listings[RUN_FREE].longest == longest_run(group->free_mask));
        check_internal(group->listings[RUN_SPARE].longest == longest_run(group->spare_mask));
    }
    check_internal(busy == fifo->busy && groups == fifo->group_count);
}

static void fifo_list_add(struct segment_list *list, struct fifo_segment *segment, bool hot)
{
    struct fifo_segment *beside = hot ? list->hottest : list->coldest;
    segment->next = hot ? beside : NULL;
    segment->prev = hot ? NULL : beside;
    if (hot)
        list->hottest = segment;
    else
        list->coldest = segment;
    if (beside == NULL)
        list->hottest = list->coldest = segment;
    else if (hot)
        beside->prev = segment;
    else
        beside->next = segment;
    list->count++;
}

static void fifo_list_remove(struct segment_list *list, struct fifo_segment *segment)
{
    if (segment->prev)
        segment->prev->next = segment->next;
    else
        list->hottest = segment->next;
    if (segment->next)
        segment->next->prev = segment->prev;
    else
        list->coldest = segment->prev;
    list->count--;
}

static struct segment_list *fifo_list_of(struct fifo *fifo, const struct fifo_segment *segment)
{
    return segment->state == SEGMENT_SPARE ? &fifo->spare : &fifo->empty;
}

/* Adds a group of empty segments to the FIFO. */
static bool fifo_group_add(struct fifo *fifo)
{
    struct fifo_group *group = group_map(fifo, GROUP_BYTES);
    if (group == NULL)
        return false;
    group->free_mask = UINT32_MAX;
    for (size_t i = 0; i < GROUP_SEGMENTS; i++)
        fifo_list_add(&fifo->empty, &group->segments[i], false);
    group_list_by_runs(fifo, group);
    return true;
}

/* Makes the missing pages of segments resident in one step. If this fails, each page becomes
 * resident at its first access. */
static void fifo_populate(struct fifo_segment *first, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t from = i;
        while (i < count && (first[i].state == SEGMENT_EMPTY || first[i].returned))
            i++;
        if (i > from)
            (void)os_populate((void *)(segment_end(first + from) - SEGMENT_BYTES),
                              (i - from) * SEGMENT_BYTES);
    }
}

/* Moves adjacent free segments from their lists into use.
 * Returns: false when out of memory. */
static bool fifo_occupy(struct fifo *fifo, struct fifo_segment *first, size_t count,
                        enum segment_state state)
{
    struct fifo_group *group = group_of(first);
    if (!group_commit(group, segment_end(first + count - 1) - (uintptr_t)group))
        return false;
    if (fifo->group_count > 1) /* a small FIFO may stay small */
        fifo_populate(first, count);
    for (struct fifo_segment *segment = first; segment < first + count; segment++) {
        fifo_list_remove(fifo_list_of(fifo, segment), segment);
        segment->state = (uint8_t)state;
        segment->live_pages = 0;
        segment->returned = false;
    }
    size_t index = segment_index(first);
    uint32_t bits = bits_of(index, count);
    group->free_mask &= ~bits;
    group->spare_mask &= ~bits;
    group_list_by_runs(fifo, group);
    memset(&group->back[index * SEGMENT_PAGES], 0, count * SEGMENT_PAGES);
    group->busy += (uint32_t)count;
    fifo->busy += count;
    fifo->busy_bytes += count * SEGMENT_BYTES;
    fifo->spare_low = smaller_of(fifo->spare_low, fifo->spare.count);
    return true;
}

struct fifo_segment *segment_take(struct fifo *fifo)
{
    fifo_tick(fifo);
    if (fifo->busy_bytes + SEGMENT_BYTES > fifo->max_bytes)
        return NULL;
    struct fifo_segment *segment = fifo->spare.hottest;
    if (segment == NULL) {
        if (fifo->empty.hottest == NULL && !fifo_group_add(fifo))
            return NULL;
        segment = fifo->empty.hottest;
    }
    return fifo_occupy(fifo, segment, 1, SEGMENT_CURRENT) ? segment : NULL;
}

static bool fifo_may_hold_more(const struct fifo *fifo, size_t count)
{
    return fifo->busy_bytes + count * SEGMENT_BYTES <= fifo->max_bytes;
}

bool segment_has_spare_run(const struct fifo *fifo, size_t count)
{
    return group_with_run(fifo, RUN_SPARE, count) != NULL;
}

struct fifo_segment *segment_take_run(struct fifo *fifo, size_t count)
{
    if (!fifo_may_hold_more(fifo, count))
        return NULL;
    struct fifo_group *group = group_with_run(fifo, RUN_SPARE, count);
    uint32_t mask = group ? group->spare_mask : 0;
    if (group == NULL) {
        group = group_with_run(fifo, RUN_FREE, count);
        if (group == NULL && !fifo_group_add(fifo))
            return NULL;
        group = group ? group : fifo->groups;
        mask = group->free_mask;
    }
    struct fifo_segment *first = longest_run_of(group, mask);
    return fifo_occupy(fifo, first, count, SEGMENT_RUN) ? first : NULL;
}

static bool fifo_next_are_in(const struct fifo_segment *last, size_t count, uint32_t mask)
{
    size_t next = segment_index(last) + 1;
    return next + count <= GROUP_SEGMENTS && (~mask & bits_of(next, count)) == 0;
}

bool segment_next_are_spare(const struct fifo_segment *last, size_t count)
{
    return fifo_next_are_in(last, count, group_of(last)->spare_mask);
}

bool segment_extend_run(struct fifo *fifo, struct fifo_segment *last, size_t count)
{
    return fifo_may_hold_more(fifo, count) &&
           fifo_next_are_in(last, count, group_of(last)->free_mask) &&
           fifo_occupy(fifo, last + 1, count, SEGMENT_RUN);
}

static bool fifo_is_candidate(const struct fifo *fifo, const struct fifo_segment *segment)
{
    for (size_t i = 0; i < CANDIDATES; i++)
        if (fifo->candidates[i] == segment)
            return true;
    return false;
}

static void fifo_forget_candidate(struct fifo *fifo, const struct fifo_segment *segment)
{
    for (size_t i = 0; i < CANDIDATES; i++)
        if (fifo->candidates[i] == segment)
            fifo->candidates[i] = NULL;
}

/* Whether no object lives in a page, and no live object reaches into it. The group's header does
 * not count as dead. */
static bool fifo_page_is_dead(const struct fifo_group *group, size_t page)
{
    return page != 0 && group->head.live[page] == 0 &&
           (group->back[page] == 0 || group->head.live[page - group->back[page]] == 0);
}

/* Returns the whole system pages among the given pages to the system, and adds their size to
 * *given.
 * Returns: false when the system refuses, as for locked memory; the pages are unchanged then. */
static bool fifo_purge_pages(struct fifo_group *group, size_t first, size_t end, size_t *given)
{
    uintptr_t from = align_up((uintptr_t)group + (first << PAGE_SHIFT), os_page_size());
    uintptr_t to = align_down((uintptr_t)group + (end << PAGE_SHIFT), os_page_size());
    if (from >= to)
        return true;
    if (os_purge((void *)from, to - from) != 0)
        return false;
    *given += to - from;
    return true;
}

/* Returns all dead pages of a segment in use that is not being filled.
 * Returns: the number of bytes. */
static size_t fifo_return_dead_pages(struct fifo_segment *segment)
{
    struct fifo_group *group = group_of(segment);
    size_t end = (segment_index(segment) + 1) * SEGMENT_PAGES;
    size_t given = 0;
    bool returned = true;
    for (size_t page = end - SEGMENT_PAGES; page < end; page++) {
        size_t first = page;
        while (page < end && fifo_page_is_dead(group, page))
            page++;
        returned = fifo_purge_pages(group, first, page, &given) && returned;
    }
    segment->returned = returned;
    return given;
}

size_t group_returned_bytes(const struct fifo_group *group)
{
    size_t bytes = 0;
    for (size_t page = 0; page < CAIRN_FIFO_PAGES && group->large == 0; page++) {
        const struct fifo_segment *segment = &group->segments[page / SEGMENT_PAGES];
        bool in_use = segment->state == SEGMENT_RETIRED || segment->state == SEGMENT_RUN;
        if (in_use && segment->returned && fifo_page_is_dead(group, page))
            bytes += PAGE_BYTES;
    }
    return bytes;
}

/* Returns the memory of a free segment to the system.
 * Returns: false when the system refuses. */
static bool fifo_purge_segment(struct fifo_segment *segment)
{
    uintptr_t start = segment_start(segment);
    return os_purge((void *)start, segment_end(segment) - start) == 0;
}

void segment_give(struct fifo *fifo, struct fifo_segment *segment)
{
    struct fifo_group *group = group_of(segment);
    uint32_t bit = bits_of(segment_index(segment), 1);
    fifo_forget_candidate(fifo, segment);
    segment->state = SEGMENT_SPARE; /* pages that were returned become resident with the next use */
    /* A checked FIFO uses the coldest segment first, so that old pointers do not find new
     * objects. */
    fifo_list_add(fifo_list_of(fifo, segment), segment, !fifo->checked);
    group->free_mask |= bit;
    group->spare_mask |= bit;
    group_list_by_runs(fifo, group);
    group->busy--;
    fifo->busy--;
    fifo->busy_bytes -= SEGMENT_BYTES;
}

/* Makes a segment the newest candidate, and returns the dead pages of the oldest one. */
static void fifo_become_candidate(struct fifo *fifo, struct fifo_segment *segment)
{
    struct fifo_segment *oldest = fifo->candidates[CANDIDATES - 1];
    if (oldest)
        fifo_return_dead_pages(oldest);
    for (size_t i = CANDIDATES - 1; i > 0; i--)
        fifo->candidates[i] = fifo->candidates[i - 1];
    fifo->candidates[0] = segment;
}

/* Whether the return of the segment's dead pages would be worth its cost if no more pages die. */
static bool fifo_is_nearly_dead(const struct fifo_segment *segment)
{
    if (segment->state != SEGMENT_RUN)
        return segment->live_pages <= NEARLY_DEAD_PAGES;
    if (segment->live_pages > 1)
        return false;
    unsigned dead = 0;
    size_t first = segment_index(segment) * SEGMENT_PAGES;
    for (size_t page = first; page < first + SEGMENT_PAGES; page++)
        dead += fifo_page_is_dead(group_of(segment), page);
    return dead >= SEGMENT_PAGES / 2;
}

void segment_was_filled(struct fifo *fifo, struct fifo_segment *segment)
{
    if (fifo_is_nearly_dead(segment))
        fifo_become_candidate(fifo, segment);
}

void segment_pages_died(struct fifo *fifo, struct fifo_segment *segment, size_t first, size_t end)
{
    if (segment->returned) {
        /* The first page is alive if an object from before it reaches in. Pages behind, into which
         * the last object reached, are dead too. */
        struct fifo_group *group = group_of(segment);
        first += !fifo_page_is_dead(group, first);
        while (end < align_up(end, SEGMENT_PAGES) && fifo_page_is_dead(group, end) &&
               group->back[end] != 0)
            end++;
        size_t given = 0;
        if (!fifo_purge_pages(group, first, end, &given))
            segment->returned = false;
    } else if (fifo_is_nearly_dead(segment) && !fifo_is_candidate(fifo, segment)) {
        fifo_become_candidate(fifo, segment);
    }
}

/* Unmaps a group of free segments. */
static void fifo_group_drop(struct fifo *fifo, struct fifo_group *group)
{
    for (size_t i = 0; i < GROUP_SEGMENTS; i++)
        fifo_list_remove(fifo_list_of(fifo, &group->segments[i]), &group->segments[i]);
    group_unlist(fifo, group);
    group_unlink(fifo, group);
}

/* Returns the coldest spare segment, or its whole group when no segment of it is in use and `keep`
 * spare segments remain.
 * Returns: the number of bytes; 0 when the system refuses. */
static size_t fifo_give_coldest(struct fifo *fifo, size_t keep)
{
    struct fifo_segment *segment = fifo->spare.coldest;
    struct fifo_group *group = group_of(segment);
    size_t before = fifo->spare.count;
    if (group->busy == 0 && before - count_bits(group->spare_mask) >= keep) {
        fifo_group_drop(fifo, group);
        return (before - fifo->spare.count) * SEGMENT_BYTES;
    }
    if (!fifo_purge_segment(segment))
        return 0;
    fifo_list_remove(&fifo->spare, segment);
    segment->state = SEGMENT_EMPTY;
    fifo_list_add(&fifo->empty, segment, false);
    group->spare_mask &= ~bits_of(segment_index(segment), 1);
    group_list_by_runs(fifo, group);
    return SEGMENT_BYTES;
}

/* Returns the dead pages of a segment in use that is not being filled, unless they are returned
 * already.
 * Returns: the number of bytes. */
static size_t fifo_give_dead_pages(struct fifo *fifo, struct fifo_segment *segment)
{
    bool filled = segment->state == SEGMENT_RETIRED ||
                  (segment->state == SEGMENT_RUN && segment != fifo->run);
    if (!filled || segment->returned)
        return 0;
    fifo_forget_candidate(fifo, segment);
    return fifo_return_dead_pages(segment);
}

size_t fifo_give_back(struct fifo *fifo, size_t keep_bytes)
{
    size_t given = 0;
    size_t went = 1;
    while (fifo->spare.count > 0 && fifo->spare.count * SEGMENT_BYTES > keep_bytes && went != 0) {
        went = fifo_give_coldest(fifo, keep_bytes / SEGMENT_BYTES);
        given += went;
    }
    for (struct fifo_group *group = fifo->groups, *next; group; group = next) {
        next = group->next;
        if (group->large == 0 && group->busy == 0 && (group->prev || group->next) &&
            keep_bytes == 0) {
            fifo_group_drop(fifo, group);
            continue;
        }
        for (size_t i = 0; i < GROUP_SEGMENTS && group->large == 0; i++)
            given += fifo_give_dead_pages(fifo, &group->segments[i]);
    }
    fifo->spare_low = smaller_of(fifo->spare_low, fifo->spare.count);
    return given;
}

void fifo_tick(struct fifo *fifo)
{
    if (likely(!frame_interval_over(&fifo->interval_start_ms)))
        return;
    size_t keep = fifo->spare.count - fifo->spare_low;
    while (fifo->spare.count > keep && fifo_give_coldest(fifo, keep) != 0) {
    }
    fifo->spare_low = fifo->spare.count;
}

void fifo_free_groups(struct fifo *fifo)
{
    while (fifo->groups)
        group_unlink(fifo, fifo->groups);
}

static_check(RUN_OBJECT_BYTES / PAGE_BYTES <= UINT8_MAX + 1, "a run's pages count up in `back`");

void run_leave(struct fifo *fifo)
{
    struct fifo_segment *segment = fifo->run;
    fifo->run = NULL;
    fifo->run_at = 0;
    if (segment && segment->live_pages == 0)
        segment_give(fifo, segment);
    else if (segment)
        segment_was_filled(fifo, segment);
}

/* Makes space for `bytes` at run_at, behind the last run, in the segments that follow if necessary.
 * Returns: false when they are not free, or other spare memory must be used first. */
static bool fifo_extend(struct fifo *fifo, size_t bytes)
{
    struct fifo_segment *segment = fifo->run;
    if (segment == NULL)
        return false;
    if (segment->live_pages == 0 && !fifo->checked)
        fifo->run_at = segment_start(segment);
    uintptr_t end = segment_end(segment);
    if (bytes <= end - fifo->run_at)
        return true;
    size_t more = (bytes - (end - fifo->run_at) + SEGMENT_BYTES - 1) / SEGMENT_BYTES;
    size_t afresh = (bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES;
    if (!segment_next_are_spare(segment, more) && segment_has_spare_run(fifo, afresh))
        return false;
    if (!segment_extend_run(fifo, segment, more))
        return false;
    if (fifo->run_at == end) { /* the next run begins in the next segment */
        run_leave(fifo);
        fifo->run_at = end;
    }
    return true;
}

/* Calls a function for each segment of the pages from `first` up to `end`. */
static void fifo_each_segment(struct fifo *fifo, struct fifo_group *group, size_t first, size_t end,
                              void (*each)(struct fifo *, struct fifo_segment *, size_t, size_t))
{
    for (size_t from = first, to; from < end; from = to) {
        to = smaller_of(align_up(from + 1, SEGMENT_PAGES), end);
        each(fifo, &group->segments[from / SEGMENT_PAGES], from, to);
    }
}

static void fifo_count_run(struct fifo *fifo, struct fifo_segment *segment, size_t first,
                           size_t end)
{
    (void)first;
    (void)end;
    segment->live_pages++;
    fifo->run = segment;
}

void *run_object_make(struct fifo *fifo, size_t size)
{
    size_t bytes = align_up(size, PAGE_BYTES);
    fifo_tick(fifo);
    if (!fifo_extend(fifo, bytes)) {
        struct fifo_segment *segment =
            segment_take_run(fifo, (bytes + SEGMENT_BYTES - 1) / SEGMENT_BYTES);
        if (segment == NULL)
            return NULL;
        run_leave(fifo);
        fifo->run_at = segment_start(segment);
    }
    uintptr_t start = fifo->run_at;
    struct fifo_group *group = group_at(start);
    size_t first = page_index(start);
    size_t pages = bytes >> PAGE_SHIFT;
    group->head.live[first] = 1;
    for (size_t i = 0; i < pages; i++)
        group->back[first + i] = (uint8_t)i;
    fifo_each_segment(fifo, group, first, first + pages, fifo_count_run);
    fifo->run_at = start + bytes;
    return (void *)start;
}

static void fifo_end_run(struct fifo *fifo, struct fifo_segment *segment, size_t first, size_t end)
{
    segment->live_pages--;
    if (segment == fifo->run)
        return;
    if (segment->live_pages == 0)
        segment_give(fifo, segment);
    else
        segment_pages_died(fifo, segment, first, end);
}

void run_object_end(struct fifo *fifo, struct fifo_group *group, size_t first)
{
    size_t pages = 1;
    while (first + pages < CAIRN_FIFO_PAGES && group->back[first + pages] == pages)
        pages++;
    memset(&group->back[first], 0, pages);
    uintptr_t start = (uintptr_t)group + (first << PAGE_SHIFT);
    if (start + (pages << PAGE_SHIFT) == fifo->run_at &&
        start >= segment_end(fifo->run) - SEGMENT_BYTES && !fifo->checked)
        fifo->run_at = start; /* the newest run: the next one uses its pages again */
    fifo_each_segment(fifo, group, first, first + pages, fifo_end_run);
}

bool run_object_holds(const struct fifo_group *group, uintptr_t address)
{
    size_t page = page_index(address);
    return group->large == 0 && group->segments[page / SEGMENT_PAGES].state == SEGMENT_RUN &&
           group->back[page] != 0;
}

void *large_object_make(struct fifo *fifo, size_t size, size_t align)
{
    size_t offset = larger_of(align, PAGE_BYTES);
    if (align > GROUP_BYTES || size > PTRDIFF_MAX / 2 ||
        fifo->busy_bytes + offset + size > fifo->max_bytes)
        return NULL;
    fifo_tick(fifo);
    struct fifo_group *group = group_map(fifo, offset + size);
    if (group == NULL)
        return NULL;
    if (!group_commit(group, group->reserved)) {
        group_unlink(fifo, group);
        return NULL;
    }
    group->large = (uintptr_t)group + offset;
    group->head.live[page_index(group->large)] = 1;
    fifo->busy++;
    fifo->busy_bytes += group->reserved;
    return (void *)group->large;
}

void large_object_end(struct fifo *fifo, struct fifo_group *group)
{
    fifo->busy--;
    fifo->busy_bytes -= group->reserved;
    group_unlink(fifo, group);
}
