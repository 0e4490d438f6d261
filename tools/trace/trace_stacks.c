// The tree of stacks. trace_stacks.h describes it.
#include "trace_stacks.h"

#include "trace_input.h"

#include <stdlib.h>
#include <string.h>
#include <watch/trace_format.h>

static uint32_t add_node(struct trace_stacks *stacks, uint64_t frame, uint32_t outer)
{
    if (stacks->node_count == stacks->node_room) {
        stacks->node_room = stacks->node_room ? stacks->node_room * 2 : 1024;
        stacks->nodes = more_memory(stacks->nodes, stacks->node_room * sizeof *stacks->nodes);
        if (stacks->node_count == 0)
            stacks->nodes[stacks->node_count++] = (struct stack_node){0};
    }
    uint32_t depth = outer ? stacks->nodes[outer].depth + 1 : 1;
    stacks->nodes[stacks->node_count] = (struct stack_node){frame, outer, depth};
    return (uint32_t)stacks->node_count++;
}

static void set_head(struct trace_stacks *stacks, uint32_t number, uint32_t head)
{
    if (number >= stacks->room) {
        uint32_t room = stacks->room ? stacks->room : 256;
        while (number >= room)
            room *= 2;
        stacks->heads = more_memory(stacks->heads, room * sizeof *stacks->heads);
        memset(stacks->heads + stacks->room, 0, (room - stacks->room) * sizeof *stacks->heads);
        stacks->room = room;
    }
    stacks->heads[number] = head;
    if (number >= stacks->count)
        stacks->count = number + 1;
}

bool stacks_add(struct trace_stacks *stacks, uint32_t *before, uint64_t number, uint64_t shared,
                const uint64_t *frames, unsigned count, bool cut)
{
    uint32_t node = *before;
    uint32_t depth = node ? stacks->nodes[node].depth : 0;
    if (number == 0 || number > stacks->numbers_most || shared > depth ||
        count > TRACE_DEPTH - shared || stacks->node_count > UINT32_MAX / 2 - TRACE_DEPTH)
        return false;
    for (; depth > shared; depth--)
        node = stacks->nodes[node].outer;
    for (unsigned i = 0; i < count; i++)
        node = add_node(stacks, frames[i], node);
    set_head(stacks, (uint32_t)number, node << 1 | cut);
    *before = node;
    return true;
}

// Returns: the frame that a record's own frames are coded relative to; 0 when there is none.
static uint64_t shared_frame(const struct trace_stacks *stacks, uint32_t node, uint64_t shared)
{
    if (shared == 0 || node == 0)
        return 0;
    for (uint32_t depth = stacks->nodes[node].depth; depth > shared; depth--)
        node = stacks->nodes[node].outer;
    return stacks->nodes[node].frame;
}

bool stacks_decode(struct trace_stacks *stacks, const unsigned char *at, const unsigned char *end)
{
    uint32_t before = 0;
    while (at < end) {
        uint64_t number, shared, own, frames[TRACE_DEPTH];
        if (!take_varint(&at, end, &number) || !take_varint(&at, end, &shared) ||
            !take_varint(&at, end, &own) || own / 2 > TRACE_DEPTH)
            return false;
        uint64_t frame = shared_frame(stacks, before, shared);
        for (uint64_t i = 0; i < own / 2; i++) {
            uint64_t step;
            if (!take_varint(&at, end, &step))
                return false;
            frame += (uint64_t)signed_of(step);
            frames[i] = frame;
        }
        if (!stacks_add(stacks, &before, number, shared, frames, (unsigned)(own / 2), own & 1))
            return false;
    }
    return true;
}

void stacks_free(struct trace_stacks *stacks)
{
    free(stacks->nodes);
    free(stacks->heads);
}
