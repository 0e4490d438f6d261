// The events of a trace in columns, block by block. For trace_reader.c.
#ifndef CAIRN_TOOLS_TRACE_UNPACK_H
#define CAIRN_TOOLS_TRACE_UNPACK_H

#include "trace_input.h"
#include "trace_reader.h"
#include "trace_stacks.h"

struct unpacker;

struct unpacked_block {
    uint32_t events;           // that unpack_event will give
    uint64_t row_bytes;        // of them
    const unsigned char *text; // of a block of text; until the next block
    size_t text_bytes;
    bool end;
};

struct unpacker *unpack_new(const struct trace_header *header);
void unpack_free(struct unpacker *unpacker); // NULL is ignored

// NULL, or what is wrong. Stacks go to `stacks`.
const char *unpack_block(struct unpacker *unpacker, struct trace_input *input,
                         struct trace_stacks *stacks, struct unpacked_block *block);

// The block's next event, but for what resizes have of others. False: it is damaged.
bool unpack_event(struct unpacker *unpacker, struct trace_event *event);
// The kernel's number of a thread that an event had.
uint32_t unpack_thread_id(const struct unpacker *unpacker);
// Whether the block's columns end where its events do.
bool unpack_ends(const struct unpacker *unpacker);

#endif
