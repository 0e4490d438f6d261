/* The encoding of marks, stacks and text: see trace_format.h. */
#include "watch/trace_format.h"

/* Begins a chunk. `kind` is written last, for the readers of the file. */
static void trace_encode_begin(struct trace_chunk *chunk, uint32_t kind, uint32_t lane,
                               uint64_t first_order, uint64_t now_ns)
{
    chunk->lane = lane;
    chunk->used = sizeof *chunk;
    chunk->first_order = first_order;
    chunk->start_ns = now_ns;
    store_release(&chunk->kind, kind); /* pairs with the readers of the file */
}

void encode_begin(struct trace_encoder *encoder, struct trace_chunk *chunk, uint32_t lane,
                  uint64_t first_order, uint64_t now_ns)
{
    trace_encode_begin(chunk, TRACE_EVENTS, lane, first_order, now_ns);
    *encoder = (struct trace_encoder){
        .chunk = chunk, .used = sizeof *chunk, .order = first_order - 1, .time_ns = now_ns};
}

void encode_thread(struct trace_encoder *encoder, uint32_t number, uint32_t kernel_number)
{
    uint8_t *to = encode_start(encoder);
    *to++ = TRACE_MARK | TRACE_MARK_THREAD << TRACE_MARK_SHIFT;
    to = encode_varint(to, number);
    encode_publish(encoder, encode_varint(to, kernel_number));
    encoder->thread = number;
}

void encode_time(struct trace_encoder *encoder, uint64_t now_ns)
{
    uint8_t *to = encode_start(encoder);
    *to++ = TRACE_MARK | TRACE_MARK_TIME << TRACE_MARK_SHIFT;
    encode_publish(encoder, encode_varint(to, now_ns - encoder->time_ns));
    encoder->time_ns = now_ns;
}

void encode_stacks_begin(struct stack_encoder *encoder, struct trace_chunk *chunk, uint32_t lane,
                         uint64_t first_order)
{
    trace_encode_begin(chunk, TRACE_STACKS, lane, first_order, 0);
    encoder->chunk = chunk;
    encoder->used = sizeof *chunk;
    encoder->depth = 0;
}

enum { FRAME_BYTES_MAX = 10, STACK_BYTES_MAX = (TRACE_DEPTH + 3) * FRAME_BYTES_MAX };

bool encode_stack(struct stack_encoder *encoder, uint32_t number, const uintptr_t *frames,
                  unsigned depth, bool cut)
{
    if (encoder->chunk == NULL || encoder->used + STACK_BYTES_MAX > TRACE_CHUNK_BYTES)
        return false;
    unsigned shared = 0;
    while (shared < depth && shared < encoder->depth &&
           encoder->outermost[shared] == frames[depth - 1 - shared])
        shared++;
    uint8_t *to = (uint8_t *)encoder->chunk + encoder->used;
    to = encode_varint(to, number);
    to = encode_varint(to, shared);
    to = encode_varint(to, 2 * (uint64_t)(depth - shared) + cut);
    uint64_t before = shared > 0 ? encoder->outermost[shared - 1] : 0;
    for (unsigned i = shared; i < depth; i++) {
        uint64_t frame = frames[depth - 1 - i];
        to = encode_signed(to, (int64_t)(frame - before));
        encoder->outermost[i] = before = frame;
    }
    encoder->depth = depth;
    encoder->used = (uint32_t)(to - (uint8_t *)encoder->chunk);
    store_release(&encoder->chunk->used, encoder->used); /* pairs with the readers of the file */
    return true;
}

void encode_text(struct trace_chunk *chunk, uint64_t first_order, uint32_t bytes)
{
    trace_encode_begin(chunk, TRACE_TEXT, 0, first_order, 0);
    /* Release: pairs with the readers of the file. */
    store_release(&chunk->used, (uint32_t)sizeof *chunk + bytes);
}
