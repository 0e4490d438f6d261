/* Objects of a FIFO above 16 KiB: up to 1 MiB runs of pages, one behind the other over the segments
 * of a group; beyond that, mappings of their own. See cairn/fifo.h, and fifo_state.h for how runs
 * lie in segments.
 *
 * A run's length is not stored: `back` of its pages counts up, and of the page behind it does not.
 * Pages without a run have 0 there.
 *
 * Where the next run goes: behind the last one, which is the tightest, over the end of the segment
 * when the next ones are free; but into other memory that is spare before new memory is taken.
 */
#include "frame/fifo_state.h"

#include <string.h>

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

/* Makes room for so many bytes at run_at, behind the last run. */
static bool extend(struct fifo *fifo, size_t bytes)
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
    if (fifo->run_at == end) { /* nothing of the next run lies in it */
        run_leave(fifo);
        fifo->run_at = end;
    }
    return true;
}

/* Calls that of each segment in which the pages lie. */
static void each_segment(struct fifo *fifo, struct fifo_group *group, size_t first, size_t end,
                         void (*each)(struct fifo *, struct fifo_segment *, size_t, size_t))
{
    for (size_t from = first, to; from < end; from = to) {
        to = smaller_of(align_up(from + 1, SEGMENT_PAGES), end);
        each(fifo, &group->segments[from / SEGMENT_PAGES], from, to);
    }
}

static void count_run(struct fifo *fifo, struct fifo_segment *segment, size_t first, size_t end)
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
    if (!extend(fifo, bytes)) {
        if (fifo->run && fifo->run->live_pages == 0)
            run_leave(fifo); /* counts for the maximum no more */
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
    each_segment(fifo, group, first, first + pages, count_run);
    fifo->run_at = start + bytes;
    return (void *)start;
}

static void end_run(struct fifo *fifo, struct fifo_segment *segment, size_t first, size_t end)
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
        fifo->run_at = start; /* the newest */
    each_segment(fifo, group, first, first + pages, end_run);
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
