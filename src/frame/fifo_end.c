/* The ends of a FIFO's objects, on whichever thread may touch its inside, and its own: see
 * cairn/fifo.h and fifo_state.h. */
#include "frame/fifo_state.h"

/* The count of the object's page has gone down to 0, or below. */
static void end_page(struct fifo *fifo, void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    struct fifo_group *group = group_at(address);
    if (unlikely(group->head.live[page_index(address)] < 0) && run_object_holds(group, address))
        fifo_die_foreign(fifo, pointer);
    if (unlikely(group->head.live[page_index(address)] < 0))
        die("fifo \"%s\": double free of %p", fifo->name, pointer);
    if (group->large) {
        if (group->large != address)
            fifo_die_foreign(fifo, pointer);
        large_object_end(fifo, group);
        return;
    }
    struct fifo_segment *segment = segment_at(address);
    if (segment->state == SEGMENT_RUN) {
        if (address % PAGE_BYTES != 0)
            fifo_die_foreign(fifo, pointer);
        run_object_end(fifo, group, page_index(address));
        return;
    }
    segment->live_pages--;
    if (segment->state == SEGMENT_RETIRED && segment->live_pages == 0)
        segment_give(fifo, segment);
    else if (segment->state == SEGMENT_RETIRED)
        segment_pages_died(fifo, segment, page_index(address), page_index(address) + 1);
}

api void cairn_fifo_end_page(cairn_fifo *head, void *pointer)
{
    struct fifo *fifo = fifo_of(head);
    end_page(fifo, pointer);
    fifo_verify(fifo);
}

struct fifo_group *fifo_find_group(const struct fifo *fifo, uintptr_t address)
{
    for (struct fifo_group *group = fifo->groups; group; group = group->next)
        if (address - (uintptr_t)group < group->reserved)
            return group;
    return NULL;
}

void fifo_end_object(struct fifo *fifo, void *pointer, bool queued)
{
    if (fifo->checked)
        pointer = fifo_checked_end(fifo, pointer, queued);
    uintptr_t address = (uintptr_t)pointer;
    if (unlikely(address % GROUP_BYTES == 0)) { /* the group's header lies before */
        struct fifo_group *group = fifo_find_group(fifo, address);
        if (group == NULL || group->large != address)
            fifo_die_foreign(fifo, pointer);
        large_object_end(fifo, group);
        return;
    }
    struct fifo_group *group = group_at(address);
    if (unlikely(!group_is_of(group, fifo)))
        fifo_die_foreign(fifo, pointer);
    if (--group->head.live[page_index(address)] <= 0)
        end_page(fifo, pointer);
}

void fifo_destroy(struct fifo *fifo)
{
    fifo_free_groups(fifo);
    store_relaxed(&fifo->owner, (void *)NULL);
    store_relaxed(&fifo->head.owner, (void *)NULL);
    fifo->head.position = 0;
    fifo->head.limit = 0;
    cell_give(CELL_FIFO, fifo);
}
