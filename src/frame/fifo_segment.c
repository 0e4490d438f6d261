/* The memory of a FIFO: groups, their segments, and when they go back. See cairn/fifo.h and
 * fifo_state.h.
 *
 * A segment that died is filled next, while it is in cache; the coldest go back when an interval
 * passed without need of them. Dead pages of a segment go back when it is nearly dead and others
 * became so after it: in plain first in, first out a segment dies soon after it is nearly dead, and
 * nothing is worth doing.
 */
#include "frame/fifo_state.h"

#include <string.h>

enum { NEARLY_DEAD_PAGES = SEGMENT_PAGES / 4 };

/* Whether a live run reaches into the segment. */
static bool reaches_in(const struct fifo_group *group, size_t index)
{
    size_t page = index * SEGMENT_PAGES;
    return group->back[page] != 0 && group->head.live[page - group->back[page]] > 0;
}

static void verify_segment(const struct fifo *fifo, const struct fifo_group *group, size_t index)
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
        check_internal(live + reaches_in(group, index) == segment->live_pages &&
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
            verify_segment(fifo, group, i);
        check_internal(group->listings[RUN_FREE].longest == longest_run(group->free_mask));
        check_internal(group->listings[RUN_SPARE].longest == longest_run(group->spare_mask));
    }
    check_internal(busy == fifo->busy && groups == fifo->group_count);
}

static void list_add(struct segment_list *list, struct fifo_segment *segment, bool hot)
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

static void list_remove(struct segment_list *list, struct fifo_segment *segment)
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

static struct segment_list *list_of(struct fifo *fifo, const struct fifo_segment *segment)
{
    return segment->state == SEGMENT_SPARE ? &fifo->spare : &fifo->empty;
}

static bool group_add(struct fifo *fifo)
{
    struct fifo_group *group = group_map(fifo, GROUP_BYTES);
    if (group == NULL)
        return false;
    group->free_mask = UINT32_MAX;
    for (size_t i = 0; i < GROUP_SEGMENTS; i++)
        list_add(&fifo->empty, &group->segments[i], false);
    group_list_by_runs(fifo, group);
    return true;
}

/* Brings the pages in together that segments have not; refused, they come one by one. */
static void populate(struct fifo_segment *first, size_t count)
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

/* Takes free segments out of their lists for use. */
static bool occupy(struct fifo *fifo, struct fifo_segment *first, size_t count,
                   enum segment_state state)
{
    struct fifo_group *group = group_of(first);
    if (!group_commit(group, segment_end(first + count - 1) - (uintptr_t)group))
        return false;
    if (fifo->group_count > 1) /* else it may stay small */
        populate(first, count);
    for (struct fifo_segment *segment = first; segment < first + count; segment++) {
        list_remove(list_of(fifo, segment), segment);
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
        if (fifo->empty.hottest == NULL && !group_add(fifo))
            return NULL;
        segment = fifo->empty.hottest;
    }
    return occupy(fifo, segment, 1, SEGMENT_CURRENT) ? segment : NULL;
}

static bool may_hold_more(const struct fifo *fifo, size_t count)
{
    return fifo->busy_bytes + count * SEGMENT_BYTES <= fifo->max_bytes;
}

bool segment_has_spare_run(const struct fifo *fifo, size_t count)
{
    return group_with_run(fifo, RUN_SPARE, count) != NULL;
}

struct fifo_segment *segment_take_run(struct fifo *fifo, size_t count)
{
    if (!may_hold_more(fifo, count))
        return NULL;
    struct fifo_group *group = group_with_run(fifo, RUN_SPARE, count);
    uint32_t mask = group ? group->spare_mask : 0;
    if (group == NULL) {
        group = group_with_run(fifo, RUN_FREE, count);
        if (group == NULL && !group_add(fifo))
            return NULL;
        group = group ? group : fifo->groups;
        mask = group->free_mask;
    }
    struct fifo_segment *first = longest_run_of(group, mask);
    return occupy(fifo, first, count, SEGMENT_RUN) ? first : NULL;
}

static bool next_are_in(const struct fifo_segment *last, size_t count, uint32_t mask)
{
    size_t next = segment_index(last) + 1;
    return next + count <= GROUP_SEGMENTS && (~mask & bits_of(next, count)) == 0;
}

bool segment_next_are_spare(const struct fifo_segment *last, size_t count)
{
    return next_are_in(last, count, group_of(last)->spare_mask);
}

bool segment_extend_run(struct fifo *fifo, struct fifo_segment *last, size_t count)
{
    return may_hold_more(fifo, count) && next_are_in(last, count, group_of(last)->free_mask) &&
           occupy(fifo, last + 1, count, SEGMENT_RUN);
}

static bool is_candidate(const struct fifo *fifo, const struct fifo_segment *segment)
{
    for (size_t i = 0; i < CANDIDATES; i++)
        if (fifo->candidates[i] == segment)
            return true;
    return false;
}

static void forget_candidate(struct fifo *fifo, const struct fifo_segment *segment)
{
    for (size_t i = 0; i < CANDIDATES; i++)
        if (fifo->candidates[i] == segment)
            fifo->candidates[i] = NULL;
}

/* No object lives in the page, nor does the one that reaches into it; the group's header does not
 * count as dead. */
static bool page_is_dead(const struct fifo_group *group, size_t page)
{
    return page != 0 && group->head.live[page] == 0 &&
           (group->back[page] == 0 || group->head.live[page - group->back[page]] == 0);
}

/* Gives the pages back, as far as they are whole pages of the system, and counts them. False when
 * the system refuses, as for locked memory: then they are as they were. */
static bool purge_pages(struct fifo_group *group, size_t first, size_t end, size_t *given)
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

/* Gives back all dead pages of a segment that is in use, but is not being filled. */
static size_t return_dead_pages(struct fifo_segment *segment)
{
    struct fifo_group *group = group_of(segment);
    size_t end = (segment_index(segment) + 1) * SEGMENT_PAGES;
    size_t given = 0;
    bool returned = true;
    for (size_t page = end - SEGMENT_PAGES; page < end; page++) {
        size_t first = page;
        while (page < end && page_is_dead(group, page))
            page++;
        returned = purge_pages(group, first, page, &given) && returned;
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
        if (in_use && segment->returned && page_is_dead(group, page))
            bytes += PAGE_BYTES;
    }
    return bytes;
}

/* Gives the memory of a segment back that is not in use. False when the system refuses. */
static bool purge_segment(struct fifo_segment *segment)
{
    uintptr_t start = segment_start(segment);
    return os_purge((void *)start, segment_end(segment) - start) == 0;
}

void segment_give(struct fifo *fifo, struct fifo_segment *segment)
{
    struct fifo_group *group = group_of(segment);
    uint32_t bit = bits_of(segment_index(segment), 1);
    forget_candidate(fifo, segment);
    segment->state = SEGMENT_SPARE; /* what of its pages had gone back comes with the next use */
    /* A checked FIFO uses the longest dead first, so that stale pointers find no new objects. */
    list_add(list_of(fifo, segment), segment, !fifo->checked);
    group->free_mask |= bit;
    group->spare_mask |= bit;
    group_list_by_runs(fifo, group);
    group->busy--;
    fifo->busy--;
    fifo->busy_bytes -= SEGMENT_BYTES;
}

static void become_candidate(struct fifo *fifo, struct fifo_segment *segment)
{
    struct fifo_segment *oldest = fifo->candidates[CANDIDATES - 1];
    if (oldest)
        return_dead_pages(oldest);
    for (size_t i = CANDIDATES - 1; i > 0; i--)
        fifo->candidates[i] = fifo->candidates[i - 1];
    fifo->candidates[0] = segment;
}

/* Whether giving its dead pages back is worth it, should it stay so. */
static bool is_nearly_dead(const struct fifo_segment *segment)
{
    if (segment->state != SEGMENT_RUN)
        return segment->live_pages <= NEARLY_DEAD_PAGES;
    if (segment->live_pages > 1)
        return false;
    unsigned dead = 0;
    size_t first = segment_index(segment) * SEGMENT_PAGES;
    for (size_t page = first; page < first + SEGMENT_PAGES; page++)
        dead += page_is_dead(group_of(segment), page);
    return dead >= SEGMENT_PAGES / 2;
}

void segment_was_filled(struct fifo *fifo, struct fifo_segment *segment)
{
    if (is_nearly_dead(segment))
        become_candidate(fifo, segment);
}

void segment_pages_died(struct fifo *fifo, struct fifo_segment *segment, size_t first, size_t end)
{
    if (segment->returned) {
        /* The first of them lives on when an object that began before it reaches in; those into
         * which their own objects reached are dead with them. */
        struct fifo_group *group = group_of(segment);
        first += !page_is_dead(group, first);
        while (end < align_up(end, SEGMENT_PAGES) && page_is_dead(group, end) &&
               group->back[end] != 0)
            end++;
        size_t given = 0;
        if (!purge_pages(group, first, end, &given))
            segment->returned = false;
    } else if (is_nearly_dead(segment) && !is_candidate(fifo, segment)) {
        become_candidate(fifo, segment);
    }
}

static void group_drop(struct fifo *fifo, struct fifo_group *group)
{
    for (size_t i = 0; i < GROUP_SEGMENTS; i++)
        list_remove(list_of(fifo, &group->segments[i]), &group->segments[i]);
    group_unlist(fifo, group);
    group_unlink(fifo, group);
}

/* Gives the coldest spare segment back, with its whole group when nothing of that is in use.
 * Returns the bytes; 0 when the system refuses. */
static size_t give_coldest(struct fifo *fifo)
{
    struct fifo_segment *segment = fifo->spare.coldest;
    struct fifo_group *group = group_of(segment);
    size_t before = fifo->spare.count;
    if (group->busy == 0) {
        group_drop(fifo, group);
        return (before - fifo->spare.count) * SEGMENT_BYTES;
    }
    if (!purge_segment(segment))
        return 0;
    list_remove(&fifo->spare, segment);
    segment->state = SEGMENT_EMPTY;
    list_add(&fifo->empty, segment, false);
    group->spare_mask &= ~bits_of(segment_index(segment), 1);
    group_list_by_runs(fifo, group);
    return SEGMENT_BYTES;
}

/* Gives the dead pages back of a segment that is in use, but not being filled, unless they went. */
static size_t give_dead_pages(struct fifo *fifo, struct fifo_segment *segment)
{
    bool filled = segment->state == SEGMENT_RETIRED ||
                  (segment->state == SEGMENT_RUN && segment != fifo->run);
    if (!filled || segment->returned)
        return 0;
    forget_candidate(fifo, segment);
    return return_dead_pages(segment);
}

size_t fifo_give_back(struct fifo *fifo, size_t keep_bytes)
{
    size_t given = 0;
    size_t went = 1;
    while (fifo->spare.count > 0 && fifo->spare.count * SEGMENT_BYTES > keep_bytes && went != 0) {
        went = give_coldest(fifo);
        given += went;
    }
    for (struct fifo_group *group = fifo->groups, *next; group; group = next) {
        next = group->next;
        if (group->large == 0 && group->busy == 0 && (group->prev || group->next) &&
            keep_bytes == 0) {
            group_drop(fifo, group);
            continue;
        }
        for (size_t i = 0; i < GROUP_SEGMENTS && group->large == 0; i++)
            given += give_dead_pages(fifo, &group->segments[i]);
    }
    fifo->spare_low = smaller_of(fifo->spare_low, fifo->spare.count);
    return given;
}

void fifo_tick(struct fifo *fifo)
{
    if (likely(!frame_interval_over(&fifo->interval_start_ms)))
        return;
    size_t keep = fifo->spare.count - fifo->spare_low;
    while (fifo->spare.count > keep && give_coldest(fifo) != 0) {
    }
    fifo->spare_low = fifo->spare.count;
}

void fifo_free_groups(struct fifo *fifo)
{
    while (fifo->groups)
        group_unlink(fifo, fifo->groups);
}
