/* Events and stacks as bytes of a chunk: see trace_format.h. Pure functions on the memory of the
 * chunk and a state beside it; whoever holds the chunk. Each record is whole before `used` counts
 * it, so what a killed process leaves can be read.
 */
#ifndef CAIRN_WATCH_TRACE_ENCODE_H
#define CAIRN_WATCH_TRACE_ENCODE_H

#include "base/atomic.h"
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

inline_always uint8_t *encode_varint(uint8_t *to, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        *to++ = (uint8_t)(value | 128);
    *to++ = (uint8_t)value;
    return to;
}

inline_always uint8_t *encode_signed(uint8_t *to, int64_t value)
{
    return encode_varint(to, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

inline_always uint8_t *encode_start(const struct trace_encoder *encoder)
{
    return (uint8_t *)encoder->chunk + encoder->used;
}

/* Whoever reads the file while it grows sees whole records. */
inline_always void encode_publish(struct trace_encoder *encoder, const uint8_t *end)
{
    encoder->used = (uint32_t)(end - (uint8_t *)encoder->chunk);
    store_release(&encoder->chunk->used, encoder->used); /* pairs with who reads the file */
}

inline_always bool encode_has_size(unsigned operation)
{
    return (1u << operation & (1u << TRACE_ALLOCATE | 1u << TRACE_ALLOCATE_OTHERWISE |
                               1u << TRACE_RESIZE | 1u << TRACE_RESIZE_TO)) != 0;
}

/* Here, since each event of a traced program comes through it. A byte that is written may be any
 * field for all that the compiler knows: so each is read before. */
inline_always void encode_event(struct trace_encoder *encoder, const struct trace_record *record)
{
    const struct trace_record event = *record;
    uint8_t *tag = encode_start(encoder);
    uint8_t *to = tag + 1;
    unsigned bits = event.operation;
    uint64_t order = event.order - encoder->order;
    encoder->order = event.order;
    int64_t place = (int64_t)(event.address - encoder->address) >> TRACE_ADDRESS_SHIFT;
    if (unlikely(event.operation == TRACE_ALLOCATE_OTHERWISE))
        *to++ = event.manner;
    if (unlikely(order != 1)) {
        bits |= TRACE_HAS_ORDER;
        to = encode_varint(to, order);
    }
    if (event.stack != encoder->stacks[event.operation]) {
        encoder->stacks[event.operation] = event.stack;
        bits |= TRACE_HAS_STACK;
        to = encode_varint(to, event.stack);
    }
    if (encode_has_size(event.operation) && event.size != encoder->size) {
        encoder->size = event.size;
        bits |= TRACE_HAS_SIZE;
        to = encode_varint(to, event.size);
    }
    if (likely(event.operation != TRACE_RESIZE_FAILED) && place != 0) {
        encoder->address = event.address;
        bits |= TRACE_HAS_PLACE;
        to = encode_signed(to, place);
    }
    *tag = (uint8_t)bits;
    encode_publish(encoder, to);
}

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
