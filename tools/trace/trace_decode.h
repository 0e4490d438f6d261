// Decodes the events of one chunk, one after the other, for trace_reader.c.
#ifndef CAIRN_TOOLS_TRACE_DECODE_H
#define CAIRN_TOOLS_TRACE_DECODE_H

#include "trace_reader.h"

struct trace_lane {
    unsigned char *chunk; // NULL: no chunk is open
    const unsigned char *at, *end;
    uint64_t address, size; // of the previous event
    uint32_t stacks[TRACE_OPERATIONS];
    uint32_t thread_id;
    struct trace_event event; // the last decoded event
};

enum lane_result { LANE_EVENT, LANE_END, LANE_DAMAGED };

void lane_begin(struct trace_lane *lane, unsigned char *chunk);
enum lane_result lane_decode(struct trace_lane *lane);

#endif
