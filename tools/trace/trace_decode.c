// Decodes the events of one chunk. docs/dev/TRACE-FORMAT.md documents the encoding.
#include "trace_decode.h"

#include "trace_stacks.h"

#include <string.h>

void lane_begin(struct trace_lane *lane, unsigned char *chunk)
{
    const struct trace_chunk *head = (const void *)chunk;
    *lane = (struct trace_lane){
        .chunk = chunk,
        .at = chunk + sizeof *head,
        .end = chunk + head->used,
        .event = {.order = head->first_order - 1, .time_ns = head->start_ns},
    };
}

static bool decode_mark(struct trace_lane *lane, unsigned tag)
{
    uint64_t first, second;
    if (!take_varint(&lane->at, lane->end, &first))
        return false;
    if (tag >> TRACE_MARK_SHIFT == TRACE_MARK_TIME) {
        lane->event.time_ns += first;
        return true;
    }
    if (tag >> TRACE_MARK_SHIFT != TRACE_MARK_THREAD || first > UINT32_MAX ||
        !take_varint(&lane->at, lane->end, &second))
        return false;
    lane->event.thread = (uint32_t)first;
    lane->thread_id = (uint32_t)second;
    return true;
}

static bool decode_fields(struct trace_lane *lane, unsigned tag)
{
    struct trace_event *event = &lane->event;
    unsigned operation = tag & TRACE_OPERATION_MASK;
    uint64_t value = 1;
    unsigned manner = 0;
    if (operation == TRACE_ALLOCATE_OTHERWISE) {
        if (lane->at == lane->end)
            return false;
        manner = *lane->at++;
    }
    if ((tag & TRACE_HAS_ORDER) && !take_varint(&lane->at, lane->end, &value))
        return false;
    event->order += value;
    if (tag & TRACE_HAS_STACK) {
        if (!take_varint(&lane->at, lane->end, &value))
            return false;
        lane->stacks[operation] = (uint32_t)value;
    }
    if ((tag & TRACE_HAS_SIZE) && !take_varint(&lane->at, lane->end, &lane->size))
        return false;
    if (tag & TRACE_HAS_PLACE) {
        if (!take_varint(&lane->at, lane->end, &value))
            return false;
        lane->address += (uint64_t)signed_of(value) << TRACE_ADDRESS_SHIFT;
    }
    event->stack = lane->stacks[operation];
    event->address = lane->address;
    event->old_address = 0;
    event->alignment_log2 = manner & TRACE_MANNER_ALIGNMENT;
    event->zeroed = (manner & TRACE_MANNER_ZEROED) != 0;
    bool sized = operation <= TRACE_ALLOCATE_OTHERWISE || operation == TRACE_RESIZE ||
                 operation == TRACE_RESIZE_TO;
    event->size = sized ? lane->size : 0;
    event->operation =
        operation == TRACE_ALLOCATE_OTHERWISE ? (uint8_t)TRACE_ALLOCATE : (uint8_t)operation;
    return true;
}

enum lane_result lane_decode(struct trace_lane *lane)
{
    while (lane->at < lane->end) {
        unsigned tag = *lane->at++;
        unsigned operation = tag & TRACE_OPERATION_MASK;
        if (operation == TRACE_NOTHING || operation >= TRACE_OPERATIONS)
            return LANE_DAMAGED;
        if (operation != TRACE_MARK)
            return decode_fields(lane, tag) && lane->event.thread != 0 ? LANE_EVENT : LANE_DAMAGED;
        if (!decode_mark(lane, tag))
            return LANE_DAMAGED;
    }
    return LANE_END;
}
