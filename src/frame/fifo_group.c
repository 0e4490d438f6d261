/* The groups of a FIFO: their address space, and which of them has long runs of free segments. See
 * fifo_state.h. */
#include "frame/fifo_state.h"

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
    group->head.tag = 0; /* should the unmapping be refused */
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

static void list_group(struct fifo *fifo, struct fifo_group *group, enum run_kind kind,
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
    list_group(fifo, group, RUN_SPARE, longest_run(group->spare_mask));
    list_group(fifo, group, RUN_FREE, longest_run(group->free_mask));
}

void group_unlist(struct fifo *fifo, struct fifo_group *group)
{
    list_group(fifo, group, RUN_SPARE, 0);
    list_group(fifo, group, RUN_FREE, 0);
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
