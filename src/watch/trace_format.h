/* The layout of a trace file, for its writer in the process and its readers elsewhere. Plain
 * structures and constants, no other header: docs/TRACE-FORMAT.md tells what they mean, and why the
 * order of events is right. Whatever changes here changes TRACE_VERSION.
 *
 *   header   TRACE_HEADER_BYTES
 *   chunk    TRACE_CHUNK_BYTES each, in the order of their first_order
 *
 * All numbers are little-endian.
 */
#ifndef CAIRN_WATCH_TRACE_FORMAT_H
#define CAIRN_WATCH_TRACE_FORMAT_H

#include <stdint.h>

#define TRACE_MAGIC "CairnTrc"

enum {
    TRACE_VERSION = 1,
    TRACE_HEADER_BYTES = 4096,
    TRACE_CHUNK_BYTES = 64 << 10,
    TRACE_DEPTH = 64,         /* frames of a stack at most; the outermost are left out */
    TRACE_RECORD_MOST = 64,   /* bytes of an event at most */
    TRACE_ADDRESS_SHIFT = 3,  /* addresses are multiples of 8 */
    TRACE_LANES = 64,         /* at most so many chunks of events grow at a time */
};

enum trace_state {
    TRACE_RUNS,  /* or the process was killed: all that is there is good */
    TRACE_ENDED, /* the process came to its end */
    TRACE_CUT,   /* the trace ends before the process: see trace_reason */
};

enum trace_reason {
    TRACE_NO_REASON,
    TRACE_LIMIT,   /* it has the size that it may have */
    TRACE_DISK,    /* no room on the disk, or another error of the file */
    TRACE_MEMORY,  /* no address space to map more of the file */
    TRACE_STOPPED, /* the program or an operator stopped it */
};

enum trace_flags {
    TRACE_FREE_STACKS = 1, /* events that free have stacks, too */
};

/* The first TRACE_HEADER_BYTES; what is behind the structure is zero. */
struct trace_header {
    char magic[8];     /* TRACE_MAGIC; these: const after the start */
    uint32_t version;
    uint32_t chunk_bytes;
    uint32_t process;  /* the kernel's number */
    uint32_t number;   /* 1 for the first file of that process, 2 after an exec */
    uint32_t parent;   /* process whose fork this is a child of, else 0 */
    uint32_t machine;  /* EM_X86_64 or EM_AARCH64 */
    uint64_t fork_order;  /* order of the parent's trace at the fork */
    uint64_t start_ns;    /* CLOCK_MONOTONIC, as all times */
    uint64_t start_date_s; /* seconds since 1970 */
    uint64_t limit_bytes; /* 0: none */
    uint32_t time_step_ns; /* times of events may be late by about so much */
    uint32_t flags;        /* enum trace_flags */

    uint32_t state;     /* enum trace_state; these change while it is written */
    uint32_t reason;    /* enum trace_reason */
    uint64_t end_order; /* unless state is TRACE_RUNS: events from this order on do not count */
    uint64_t end_ns;    /* unless state is TRACE_RUNS */
    uint64_t chunks;    /* so many are begun; those behind are to be ignored */
};

enum trace_chunk_kind {
    TRACE_UNUSED = 0,
    TRACE_EVENTS = 1,
    TRACE_STACKS = 2,
    TRACE_TEXT = 3,
};

/* The first bytes of a chunk. */
struct trace_chunk {
    uint32_t kind;        /* enum trace_chunk_kind; written last when a chunk is begun */
    uint32_t lane;        /* chunks of one kind and lane follow each other */
    uint32_t used;        /* bytes that are written, this structure among them */
    uint32_t reserved;
    uint64_t first_order; /* no event of the chunk comes before this order */
    uint64_t start_ns;    /* no event of the chunk is older */
    uint64_t zero[4];
};

/* An event: the tag byte, whose low four bits are the operation, then as its high bits say, in this
 * order
 *
 *   (ALLOCATE_OTHERWISE) a byte: enum trace_manner
 *   TRACE_HAS_ORDER   varint   order - (order of the event before in the chunk); else that is 1
 *   TRACE_HAS_STACK   varint   stack number, 0: unknown; else that of the last event of the same
 *                              operation in the chunk, 0 if there is none
 *   TRACE_HAS_SIZE    varint   size; else that of the last event of the chunk that could have one,
 *                              0 if there is none. Only ALLOCATE…, RESIZE, RESIZE_TO
 *   TRACE_HAS_PLACE   signed   (address - last address in the chunk) >> TRACE_ADDRESS_SHIFT; else
 *                              the same address. All but RESIZE_FAILED
 *
 * A varint has seven bits a byte, the lowest first, bit 7 set in all but the last. A signed one is
 * 2 * n, or -2 * n - 1 of a negative n, as a varint. Before the first event of a chunk order is
 * first_order - 1, the time start_ns, the address, size and stacks 0.
 */
enum trace_operation {
    TRACE_NOTHING = 0,            /* never written */
    TRACE_ALLOCATE = 1,           /* malloc and kin */
    TRACE_ALLOCATE_OTHERWISE = 2, /* calloc, memalign and kin: with a byte of enum trace_manner */
    TRACE_FREE = 3,
    TRACE_RESIZE = 4,        /* realloc: it stayed where it was */
    TRACE_RESIZE_FROM = 5,   /* realloc that may move: the address is free from here on */
    TRACE_RESIZE_TO = 6,     /* its end, the next event of the thread: where it is, and its size */
    TRACE_RESIZE_FAILED = 7, /* or: nothing has happened to the block */
    TRACE_MARK = 8,
    TRACE_OPERATIONS = 9,
};

enum {
    TRACE_OPERATION_BITS = 4, /* of the tag; the lowest four */
    TRACE_OPERATION_MASK = 15,
    TRACE_MARK_SHIFT = 4, /* of a tag with TRACE_MARK: enum trace_mark in the upper four */
};

enum {
    TRACE_HAS_ORDER = 1 << 4,
    TRACE_HAS_STACK = 1 << 5,
    TRACE_HAS_SIZE = 1 << 6,
    TRACE_HAS_PLACE = 1 << 7,
};

/* Said between events; no event, it has no order. */
enum trace_mark {
    TRACE_MARK_THREAD = 1, /* varint number, varint kernel's number: whose events follow */
    TRACE_MARK_TIME = 2,   /* varint ns since the last time in the chunk: of what follows */
};

enum trace_manner {
    TRACE_MANNER_ALIGNMENT = 63, /* the logarithm of the alignment asked for; 0: none */
    TRACE_MANNER_ZEROED = 64,    /* calloc */
};

/* A record of a chunk of stacks: varint number, not 0; varint of the frames shared with the record
 * before it in the chunk, the outermost ones; varint 2 * (frames of its own) + (1 if outer frames
 * were left out); then these frames, from the outermost to the innermost, each a signed difference
 * to the one before it, the first to the last shared one or 0. Frames are return addresses.
 *
 * A chunk of text has lines, of which a reader ignores those that it does not know:
 *
 *   library VERSION
 *   program NAME
 *   maps STACK                            the lines that follow hold for stacks from this number
 *                                         on, in place of those before
 *   map START END OFFSET BUILD-ID FILE    an executable mapping, numbers hexadecimal
 */

#endif
