// Decodes the events of a trace in columns, block by block, for trace_reader.c.
#ifndef CAIRN_TOOLS_TRACE_UNPACK_H
#define CAIRN_TOOLS_TRACE_UNPACK_H

#include "trace_input.h"
#include "trace_reader.h"
#include "trace_stacks.h"

struct unpacker;

struct unpacked_block {
    uint32_t events;           // number of events for unpack_event()
    uint64_t row_bytes;        // their bytes in the first form
    const unsigned char *text; // of a block of text, valid until the next block
    size_t text_bytes;
    bool end;
};

// Threads have numbers up to `threads_most`.
struct unpacker *unpack_new(const struct trace_header *header, uint64_t threads_most);
void unpack_free(struct unpacker *unpacker); // NULL is ignored

// Reads a block. The stacks of the block are added to `stacks`.
// Returns: NULL, or a description of the damage.
const char *unpack_block(struct unpacker *unpacker, struct trace_input *input,
                         struct trace_stacks *stacks, struct unpacked_block *block);

// Decodes the block's next event; trace_reader.c joins the parts of resizes. Returns: false when
// damaged.
bool unpack_event(struct unpacker *unpacker, struct trace_event *event);
// Returns: the kernel's number of the last event's thread.
uint32_t unpack_thread_id(const struct unpacker *unpacker);
// Returns: whether all columns of the block were read to their ends.
bool unpack_ends(const struct unpacker *unpacker);

#endif
