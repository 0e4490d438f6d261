/* Events and stacks as bytes of a chunk: see trace_format.h. Pure functions on the memory of the
 * chunk and a state beside it; whoever holds the chunk. Each record is whole before `used` counts
 * it, so what a killed process leaves can be read.
 */
#ifndef CAIRN_WATCH_TRACE_ENCODE_H
#define CAIRN_WATCH_TRACE_ENCODE_H

#include "base/compiler.h"
#include "watch/trace_format.h"

static_check(sizeof(struct trace_header) == 104, "the file's layout");
static_check(sizeof(struct trace_chunk) == 64, "the file's layout");
static_check((int)TRACE_OPERATIONS <= (int)TRACE_OPERATION_MASK + 1, "it fits its bits");

/* Of a chunk of events. All fields: who holds it. */
struct trace_encoder {
    struct trace_chunk *chunk; /* NULL: none */
    uint32_t used;
    uint32_t thread; /* whose events follow; 0: not said yet */
    uint64_t order, time_ns, address, size; /* of the event before */
    uint32_t stacks[TRACE_OPERATIONS];
};

struct trace_record {
    uint64_t order, address, size;
    uint32_t stack;
    uint8_t operation; /* of enum trace_operation; RESIZE_FAILED has no address */
    uint8_t manner;    /* enum trace_manner; not 0: the operation is ALLOCATE_OTHERWISE */
};

/* An empty chunk in zeroed memory. */
void encode_begin(struct trace_encoder *encoder, struct trace_chunk *chunk, uint32_t lane,
                  uint64_t first_order, uint64_t now_ns);

/* Room for an event with marks of its thread and time. */
inline_always bool encode_has_room(const struct trace_encoder *encoder)
{
    return encoder->chunk != NULL && encoder->used + 2 * TRACE_RECORD_MOST <= TRACE_CHUNK_BYTES;
}

void encode_thread(struct trace_encoder *encoder, uint32_t number, uint32_t kernel_number);
void encode_time(struct trace_encoder *encoder, uint64_t now_ns); /* not before the last one */
void encode_event(struct trace_encoder *encoder, const struct trace_record *record);

/* So many bytes of text stand behind the chunk's structure. */
void encode_text(struct trace_chunk *chunk, uint64_t first_order, uint32_t bytes);

/* Of a chunk of stacks. All fields: who holds it. */
struct stack_encoder {
    struct trace_chunk *chunk; /* NULL: none */
    uint32_t used;
    uint32_t depth;                 /* of the stack before */
    uint64_t outermost[TRACE_DEPTH]; /* its frames, from the outermost on */
};

void encode_stacks_begin(struct stack_encoder *encoder, struct trace_chunk *chunk, uint32_t lane,
                         uint64_t first_order);
/* `frames` from the innermost on, at most TRACE_DEPTH. False: no room. */
bool encode_stack(struct stack_encoder *encoder, uint32_t number, const uintptr_t *frames,
                  unsigned depth, bool cut);

#endif
