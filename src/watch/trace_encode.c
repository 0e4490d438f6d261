/* Events and stacks as bytes: see trace_encode.h. */
#include "watch/trace_encode.h"

#include "base/atomic.h"

static uint8_t *put_varint(uint8_t *to, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        *to++ = (uint8_t)(value | 128);
    *to++ = (uint8_t)value;
    return to;
}

static uint8_t *put_signed(uint8_t *to, int64_t value)
{
    return put_varint(to, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

static uint8_t *start_of(const struct trace_encoder *encoder)
{
    return (uint8_t *)encoder->chunk + encoder->used;
}

/* Whoever reads the file while it grows sees whole records. */
static void publish(struct trace_encoder *encoder, const uint8_t *end)
{
    encoder->used = (uint32_t)(end - (uint8_t *)encoder->chunk);
    store_release(&encoder->chunk->used, encoder->used); /* pairs with who reads the file */
}

static void begin(struct trace_chunk *chunk, uint32_t kind, uint32_t lane, uint64_t first_order,
                  uint64_t now_ns)
{
    chunk->lane = lane;
    chunk->used = sizeof *chunk;
    chunk->first_order = first_order;
    chunk->start_ns = now_ns;
    store_release(&chunk->kind, kind); /* pairs with who reads the file */
}

void encode_begin(struct trace_encoder *encoder, struct trace_chunk *chunk, uint32_t lane,
                  uint64_t first_order, uint64_t now_ns)
{
    begin(chunk, TRACE_EVENTS, lane, first_order, now_ns);
    *encoder = (struct trace_encoder){
        .chunk = chunk, .used = sizeof *chunk, .order = first_order - 1, .time_ns = now_ns};
}

void encode_thread(struct trace_encoder *encoder, uint32_t number, uint32_t kernel_number)
{
    uint8_t *to = start_of(encoder);
    *to++ = TRACE_MARK | TRACE_MARK_THREAD << TRACE_MARK_SHIFT;
    to = put_varint(to, number);
    publish(encoder, put_varint(to, kernel_number));
    encoder->thread = number;
}

void encode_time(struct trace_encoder *encoder, uint64_t now_ns)
{
    uint8_t *to = start_of(encoder);
    *to++ = TRACE_MARK | TRACE_MARK_TIME << TRACE_MARK_SHIFT;
    publish(encoder, put_varint(to, now_ns - encoder->time_ns));
    encoder->time_ns = now_ns;
}

static bool has_size(unsigned operation)
{
    return (1u << operation & (1u << TRACE_ALLOCATE | 1u << TRACE_ALLOCATE_OTHERWISE |
                               1u << TRACE_RESIZE | 1u << TRACE_RESIZE_TO)) != 0;
}

void encode_event(struct trace_encoder *encoder, const struct trace_record *record)
{
    uint8_t *tag = start_of(encoder);
    uint8_t *to = tag + 1;
    unsigned operation = record->operation;
    unsigned bits = operation;
    if (operation == TRACE_ALLOCATE_OTHERWISE)
        *to++ = record->manner;
    if (record->order != encoder->order + 1) {
        bits |= TRACE_HAS_ORDER;
        to = put_varint(to, record->order - encoder->order);
    }
    encoder->order = record->order;
    if (record->stack != encoder->stacks[operation]) {
        bits |= TRACE_HAS_STACK;
        to = put_varint(to, record->stack);
        encoder->stacks[operation] = record->stack;
    }
    if (has_size(operation) && record->size != encoder->size) {
        bits |= TRACE_HAS_SIZE;
        to = put_varint(to, record->size);
        encoder->size = record->size;
    }
    if (operation != TRACE_RESIZE_FAILED && record->address != encoder->address) {
        bits |= TRACE_HAS_PLACE;
        to = put_signed(to, (int64_t)(record->address - encoder->address) >> TRACE_ADDRESS_SHIFT);
        encoder->address = record->address;
    }
    *tag = (uint8_t)bits;
    publish(encoder, to);
}

void encode_stacks_begin(struct stack_encoder *encoder, struct trace_chunk *chunk, uint32_t lane,
                         uint64_t first_order)
{
    begin(chunk, TRACE_STACKS, lane, first_order, 0);
    encoder->chunk = chunk;
    encoder->used = sizeof *chunk;
    encoder->depth = 0;
}

enum { FRAME_BYTES_MOST = 10, STACK_BYTES_MOST = (TRACE_DEPTH + 3) * FRAME_BYTES_MOST };

bool encode_stack(struct stack_encoder *encoder, uint32_t number, const uintptr_t *frames,
                  unsigned depth, bool cut)
{
    if (encoder->chunk == NULL || encoder->used + STACK_BYTES_MOST > TRACE_CHUNK_BYTES)
        return false;
    unsigned shared = 0;
    while (shared < depth && shared < encoder->depth &&
           encoder->outermost[shared] == frames[depth - 1 - shared])
        shared++;
    uint8_t *to = (uint8_t *)encoder->chunk + encoder->used;
    to = put_varint(to, number);
    to = put_varint(to, shared);
    to = put_varint(to, 2 * (uint64_t)(depth - shared) + cut);
    uint64_t before = shared > 0 ? encoder->outermost[shared - 1] : 0;
    for (unsigned i = shared; i < depth; i++) {
        uint64_t frame = frames[depth - 1 - i];
        to = put_signed(to, (int64_t)(frame - before));
        encoder->outermost[i] = before = frame;
    }
    encoder->depth = depth;
    encoder->used = (uint32_t)(to - (uint8_t *)encoder->chunk);
    store_release(&encoder->chunk->used, encoder->used); /* pairs with who reads the file */
    return true;
}

void encode_text(struct trace_chunk *chunk, uint64_t first_order, uint32_t bytes)
{
    begin(chunk, TRACE_TEXT, 0, first_order, 0);
    store_release(&chunk->used, (uint32_t)sizeof *chunk + bytes); /* as above */
}
