/* The memory of a FIFO: groups, their segments, and when they go back. See cairn/fifo.h and
 * fifo_state.h.
 *
 * A segment that died is filled next, while it is in cache; the coldest go back when an interval
 * passed without need of them. Dead pages of a segment go back when it is nearly dead and others
 * became so after it: in plain first in, first out a segment dies soon after it is nearly dead, and
 * nothing is worth doing.
 */
#include "frame/fifo_state.h"

enum { NEARLY_DEAD_PAGES = SEGMENT_PAGES / 4 };

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
    else if (is_free)
        check_internal(live == 0);
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

/* Reserves aligned address space whose first page is committed. */
static struct fifo_group *group_map(struct fifo *fifo, size_t size_bytes)
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
    os_name(base, size_bytes, "cairn: fifo");
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

static void group_unlink(struct fifo *fifo, struct fifo_group *group)
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
    group->head.tag = 0; /* should the unmapping be refused */
    os_unmap(group, reserved);
}

static bool group_add(struct fifo *fifo)
{
    struct fifo_group *group = group_map(fifo, GROUP_BYTES);
    if (group == NULL)
        return false;
    group->free_mask = UINT32_MAX;
    for (size_t i = 0; i < GROUP_SEGMENTS; i++)
        list_add(&fifo->empty, &group->segments[i], false);
    return true;
}

static bool group_commit(struct fifo_group *group, size_t end)
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

/* Takes free segments out of their lists for use. */
static bool occupy(struct fifo *fifo, struct fifo_segment *first, size_t count)
{
    struct fifo_group *group = group_of(first);
    if (!group_commit(group, segment_end(first + count - 1) - (uintptr_t)group))
        return false;
    for (struct fifo_segment *segment = first; segment < first + count; segment++) {
        if (segment->state == SEGMENT_EMPTY &&
            fifo->group_count > 1) /* else the pages come one by one */
            (void)os_populate((void *)(segment_end(segment) - SEGMENT_BYTES), SEGMENT_BYTES);
        list_remove(list_of(fifo, segment), segment);
        group->free_mask &= ~((uint32_t)1 << segment_index(segment));
        segment->live_pages = 0;
        segment->returned = false;
    }
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
    if (!occupy(fifo, segment, 1))
        return NULL;
    __builtin_memset(&group_of(segment)->back[segment_index(segment) * SEGMENT_PAGES], 0,
                     SEGMENT_PAGES);
    segment->state = SEGMENT_CURRENT;
    return segment;
}

/* `count` adjoining free segments of the group but its first, which has the header. 0: none. */
static size_t find_run(const struct fifo_group *group, size_t count)
{
    uint32_t starts = group->free_mask & ~(uint32_t)1;
    for (size_t i = 1; i < count; i++)
        starts &= starts >> 1;
    return starts ? lowest_bit(starts) : 0;
}

struct fifo_segment *segment_take_run(struct fifo *fifo, size_t count)
{
    enum { GROUPS_LOOKED_AT = 8 };
    fifo_tick(fifo);
    if (fifo->busy_bytes + count * SEGMENT_BYTES > fifo->max_bytes)
        return NULL;
    struct fifo_group *group = fifo->groups;
    size_t first = 0;
    for (int i = 0; i < GROUPS_LOOKED_AT && group && first == 0; i++) {
        first = group->large == 0 ? find_run(group, count) : 0;
        group = first == 0 ? group->next : group;
    }
    if (first == 0) {
        if (!group_add(fifo))
            return NULL;
        group = fifo->groups;
        first = find_run(group, count);
    }
    struct fifo_segment *segment = &group->segments[first];
    if (!occupy(fifo, segment, count))
        return NULL;
    for (size_t i = 0; i < count; i++) {
        segment[i].state = SEGMENT_RUN;
        segment[i].run = 0;
    }
    segment->run = (uint8_t)count;
    return segment;
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
        if (segment->state == SEGMENT_RETIRED && segment->returned && page_is_dead(group, page))
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
    size_t count = segment->state == SEGMENT_RUN ? segment->run : 1;
    struct fifo_group *group = group_of(segment);
    for (size_t i = 0; i < count; i++, segment++) {
        forget_candidate(fifo, segment);
        /* What its last survivors held, of one that has gone back but for them, follows. */
        bool empty = segment->returned && purge_segment(segment);
        segment->state = empty ? SEGMENT_EMPTY : SEGMENT_SPARE;
        /* A checked FIFO uses the longest dead first, so that stale pointers find no new objects.
         */
        list_add(list_of(fifo, segment), segment, !fifo->checked);
        group->free_mask |= (uint32_t)1 << segment_index(segment);
    }
    group->busy -= (uint32_t)count;
    fifo->busy -= count;
    fifo->busy_bytes -= count * SEGMENT_BYTES;
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

void segment_was_filled(struct fifo *fifo, struct fifo_segment *segment)
{
    if (segment->live_pages <= NEARLY_DEAD_PAGES)
        become_candidate(fifo, segment);
}

void segment_page_died(struct fifo *fifo, struct fifo_segment *segment, size_t page)
{
    if (segment->returned) {
        /* The page itself, unless an object that began before it reaches in; and those into which
         * its own objects reached. */
        struct fifo_group *group = group_of(segment);
        size_t first = page_is_dead(group, page) ? page : page + 1;
        size_t end = page + 1;
        while (end < align_up(page + 1, SEGMENT_PAGES) && page_is_dead(group, end) &&
               group->back[end] != 0)
            end++;
        size_t given = 0;
        if (!purge_pages(group, first, end, &given))
            segment->returned = false;
    } else if (segment->live_pages == NEARLY_DEAD_PAGES) {
        become_candidate(fifo, segment);
    }
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

static void group_drop(struct fifo *fifo, struct fifo_group *group)
{
    for (size_t i = 0; i < GROUP_SEGMENTS; i++)
        list_remove(list_of(fifo, &group->segments[i]), &group->segments[i]);
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
    return SEGMENT_BYTES;
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
            if (group->segments[i].state == SEGMENT_RETIRED && !group->segments[i].returned) {
                forget_candidate(fifo, &group->segments[i]);
                given += return_dead_pages(&group->segments[i]);
            }
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
