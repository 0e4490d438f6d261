/* The layout of a trace file, for its writer in the process and its readers elsewhere, and the
 * encoding of events and stacks. docs/dev/TRACE-FORMAT.md documents what the fields mean, and
 * why the order of events is right. Each change of the layout changes TRACE_VERSION.
 *
 *   header   TRACE_HEADER_BYTES
 *   chunk    TRACE_CHUNK_BYTES each, sorted by their first_order
 *
 * All numbers are little-endian.
 *
 * The encoding functions only write to the memory of a chunk and to a state next to it. Each record
 * is complete before `used` counts it, so the file of a process that was killed can be read.
 *
 * Threads: the functions are called by the thread that holds the chunk. */
#ifndef CAIRN_WATCH_TRACE_FORMAT_H
#define CAIRN_WATCH_TRACE_FORMAT_H

#include "base/atomic.h"
#include "base/compiler.h"

#include <stdint.h>

#define TRACE_MAGIC "CairnTrc"

enum {
    TRACE_VERSION = 1,
    TRACE_HEADER_BYTES = 4096,
    TRACE_CHUNK_BYTES = 64 << 10,
    TRACE_DEPTH = 64,        /* maximum frames of a stack; the outermost ones are left out */
    TRACE_RECORD_MAX = 64,   /* maximum bytes of an event */
    TRACE_ADDRESS_SHIFT = 3, /* addresses are multiples of 8 */
    TRACE_LANES = 64,        /* maximum chunks of events that grow at a time */
};

/* How a trace has ended. */
enum trace_state {
    TRACE_RUNS,  /* not ended, or the process was killed */
    TRACE_ENDED, /* the process has ended */
    TRACE_CUT,   /* the trace ended before the process: see enum trace_reason */
};

/* Why a trace has ended before the process. */
enum trace_reason {
    TRACE_NO_REASON,
    TRACE_LIMIT,   /* the file has reached the limit of its size */
    TRACE_DISK,    /* the disk is full, or another error of the file */
    TRACE_MEMORY,  /* no address space to map more of the file */
    TRACE_STOPPED, /* the program or an operator stopped it */
};

enum trace_flags {
    TRACE_FREE_STACKS = 1, /* frees have stacks, too */
};

/* The header of a file. The rest of its TRACE_HEADER_BYTES is zero. Fields up to `flags` are const
 * after the start, the fields behind it change while the trace is written. */
struct trace_header {
    char magic[8]; /* TRACE_MAGIC */
    uint32_t version;
    uint32_t chunk_bytes;
    uint32_t process;      /* number of the process */
    uint32_t number;       /* 1 for the first file of that process number, 2 after an exec */
    uint32_t parent;       /* the parent, if this process is its fork; else 0 */
    uint32_t machine;      /* EM_X86_64 or EM_AARCH64 */
    uint64_t fork_order;   /* order of the parent's trace at the fork */
    uint64_t start_ns;     /* CLOCK_MONOTONIC, as all times in the file */
    uint64_t start_date_s; /* seconds since 1970 */
    uint64_t limit_bytes;  /* 0: none */
    uint32_t time_step_ns; /* times of events may be too early by about two steps */
    uint32_t flags;        /* enum trace_flags */

    uint32_t state;     /* enum trace_state */
    uint32_t reason;    /* enum trace_reason */
    uint64_t end_order; /* unless TRACE_RUNS: events from this order on are invalid */
    uint64_t end_ns;    /* unless TRACE_RUNS: time of the end */
    uint64_t chunks;    /* number of chunks that were begun; ignore the rest of the file */
};

enum trace_chunk_kind {
    TRACE_UNUSED = 0,
    TRACE_EVENTS = 1,
    TRACE_STACKS = 2,
    TRACE_TEXT = 3,
};

/* The first bytes of a chunk. */
struct trace_chunk {
    uint32_t kind; /* enum trace_chunk_kind; written last when a chunk is begun */
    uint32_t lane; /* chunks of one kind and lane follow each other */
    uint32_t used; /* bytes that were written, including this structure */
    uint32_t reserved;
    uint64_t first_order; /* no event of the chunk has a lower order */
    uint64_t start_ns;    /* no event of the chunk is older than this */
    uint64_t zero[4];
};

/* An event is a tag byte, whose low four bits are the operation, and then the fields that its high
 * bits announce, in this order:
 *
 *   (ALLOCATE_OTHERWISE) a byte: enum trace_manner
 *   TRACE_HAS_ORDER   varint   order - (order of the previous event in the chunk);
 *                              without the bit: 1
 *   TRACE_HAS_STACK   varint   stack number, 0: unknown; without the bit: that of the last event
 *                              with this operation in the chunk, 0 if there is none
 *   TRACE_HAS_SIZE    varint   size; without the bit: that of the last event of the chunk with a
 *                              size, 0 if there is none. Only ALLOCATE…, RESIZE, RESIZE_TO
 *   TRACE_HAS_PLACE   signed   (address - last address in the chunk) >> TRACE_ADDRESS_SHIFT;
 *                              without the bit: 0. All operations but RESIZE_FAILED
 *
 * A varint has seven bits a byte, the lowest first; bit 7 is set in all bytes but the last. A
 * signed number n is the varint 2 * n, or -2 * n - 1 if n is negative. Before the first event of a
 * chunk the order is first_order - 1, the time is start_ns, and the address, the size and the
 * stacks are 0. */
enum trace_operation {
    TRACE_NOTHING = 0,            /* never written */
    TRACE_ALLOCATE = 1,           /* malloc, new */
    TRACE_ALLOCATE_OTHERWISE = 2, /* calloc, aligned_alloc: with a byte of enum trace_manner */
    TRACE_FREE = 3,
    TRACE_RESIZE = 4,        /* realloc in place */
    TRACE_RESIZE_FROM = 5,   /* realloc that may move: the old address is free from here on */
    TRACE_RESIZE_TO = 6,     /* its end, the thread's next event: new address and size */
    TRACE_RESIZE_FAILED = 7, /* its other end: the block is unchanged */
    TRACE_MARK = 8,
    TRACE_OPERATIONS = 9,
};

enum {
    TRACE_OPERATION_BITS = 4, /* lowest bits of the tag */
    TRACE_OPERATION_MASK = 15,
    TRACE_MARK_SHIFT = 4, /* shift of enum trace_mark in a tag with TRACE_MARK */
};

enum {
    TRACE_HAS_ORDER = 1 << 4,
    TRACE_HAS_STACK = 1 << 5,
    TRACE_HAS_SIZE = 1 << 6,
    TRACE_HAS_PLACE = 1 << 7,
};

/* Marks are written between events. A mark is no event and has no order. */
enum trace_mark {
    TRACE_MARK_THREAD = 1, /* varint number, varint kernel's number: thread of the next events */
    TRACE_MARK_TIME = 2,   /* varint ns since the last time in the chunk, for the next events */
};

enum trace_manner {
    TRACE_MANNER_ALIGNMENT = 63, /* mask: logarithm of the requested alignment; 0: none */
    TRACE_MANNER_ZEROED = 64,    /* calloc */
};

/* A record of a chunk of stacks has these fields:
 *
 *   varint   number, not 0
 *   varint   number of frames shared with the previous record of the chunk, the outermost ones
 *   varint   2 * (number of other frames) + (1 if outer frames were left out)
 *   signed   each of the other frames, from the outermost to the innermost, as the difference to
 *            the frame before it; to the last shared one or 0 for the first of them
 *
 * Frames are return addresses.
 *
 * A chunk of text has lines. Readers ignore lines that they do not know.
 *
 *   library VERSION
 *   program NAME
 *   maps STACK                            the next lines are for stacks from this number on,
 *                                         in place of earlier ones
 *   map START END OFFSET BUILD-ID FILE    an executable mapping, numbers hexadecimal
 */

static_check(sizeof(struct trace_header) == 104, "the file's layout");
static_check(sizeof(struct trace_chunk) == 64, "the file's layout");
static_check((int)TRACE_OPERATIONS <= (int)TRACE_OPERATION_MASK + 1, "it fits its bits");

/* The state of a chunk of events. Owner: the thread that holds the chunk. */
struct trace_encoder {
    struct trace_chunk *chunk; /* NULL: none */
    uint32_t used;
    uint32_t thread;                        /* thread of the next events; 0: not written yet */
    uint64_t order, time_ns, address, size; /* of the previous event */
    uint32_t stacks[TRACE_OPERATIONS];
};

/* An event to be written. */
struct trace_record {
    uint64_t order, address, size;
    uint32_t stack;
    uint8_t operation; /* enum trace_operation; RESIZE_FAILED has no address */
    uint8_t manner;    /* enum trace_manner; not 0 only with ALLOCATE_OTHERWISE */
};

/* Begins a chunk of events in zeroed memory. */
void encode_begin(struct trace_encoder *encoder, struct trace_chunk *chunk, uint32_t lane,
                  uint64_t first_order, uint64_t now_ns);

/* Whether there is room for an event with marks of its thread and its time. */
inline_always bool encode_has_room(const struct trace_encoder *encoder)
{
    return encoder->chunk != NULL && encoder->used + 2 * TRACE_RECORD_MAX <= TRACE_CHUNK_BYTES;
}

/* Writes the mark of a thread. */
void encode_thread(struct trace_encoder *encoder, uint32_t number, uint32_t kernel_number);

/* Writes the mark of a time, which is not before the last one. */
void encode_time(struct trace_encoder *encoder, uint64_t now_ns);

/* Writes a varint and returns the address behind it. */
inline_always uint8_t *encode_varint(uint8_t *to, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        *to++ = (uint8_t)(value | 128);
    *to++ = (uint8_t)value;
    return to;
}

/* Writes a signed number and returns the address behind it. */
inline_always uint8_t *encode_signed(uint8_t *to, int64_t value)
{
    return encode_varint(to, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

/* Returns the address of the next record. */
inline_always uint8_t *encode_start(const struct trace_encoder *encoder)
{
    return (uint8_t *)encoder->chunk + encoder->used;
}

/* Counts a complete record, which ends at `end`. Readers of the file, while it grows, see complete
 * records only. */
inline_always void encode_publish(struct trace_encoder *encoder, const uint8_t *end)
{
    encoder->used = (uint32_t)(end - (uint8_t *)encoder->chunk);
    store_release(&encoder->chunk->used, encoder->used); /* pairs with the readers of the file */
}

/* Whether events of this operation have a size. */
inline_always bool encode_has_size(unsigned operation)
{
    return (1u << operation & (1u << TRACE_ALLOCATE | 1u << TRACE_ALLOCATE_OTHERWISE |
                               1u << TRACE_RESIZE | 1u << TRACE_RESIZE_TO)) != 0;
}

/* Writes an event. The function is inline because each event of a traced program needs it. The
 * compiler must assume that a written byte may change any field, so each field is read before. */
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

/* Completes a chunk of text, which the caller has written behind the chunk's structure. */
void encode_text(struct trace_chunk *chunk, uint64_t first_order, uint32_t bytes);

/* The state of a chunk of stacks. Owner: the thread that holds the chunk. */
struct stack_encoder {
    struct trace_chunk *chunk; /* NULL: none */
    uint32_t used;
    uint32_t depth;                  /* frames of the previous stack */
    uint64_t outermost[TRACE_DEPTH]; /* frames of the previous stack, outermost first */
};

/* Begins a chunk of stacks in zeroed memory. */
void encode_stacks_begin(struct stack_encoder *encoder, struct trace_chunk *chunk, uint32_t lane,
                         uint64_t first_order);

/* Writes a stack of at most TRACE_DEPTH frames, innermost first. `cut`: outer frames were left
 * out.
 *
 * Returns: false if there is no room. */
bool encode_stack(struct stack_encoder *encoder, uint32_t number, const uintptr_t *frames,
                  unsigned depth, bool cut);

#endif
