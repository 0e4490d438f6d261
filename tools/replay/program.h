// A replay program: what cairn-replay-prepare makes of a trace once and cairn-replay plays often.
//
// One file: a header, chunks of records, and three tables at its end. A chunk holds records of one
// thread within one window, and leads to the thread's next chunk. Numbers are of the machine's own
// byte order: the file is a cache, not for another machine.
//
// Objects are slot numbers: places in an array of pointers that the player has. Prepare gives a
// slot to another object only where the recorded order has the first one's end before the other's
// start for every thread that uses it.
//
// Order. Records have a total order, that of the trace. The player keeps:
//   1. of one thread: all of it;
//   2. of one object: all of it. Where another thread used it last, a RECORD_WAIT stands before;
//   3. of all else: no thread begins window n before all have finished window n - 2.
// A window has at most WINDOW_EVENTS events and, once a trace has a second thread, not much more
// bytes than 1/WINDOW_SHARE of the peak, so live memory differs from the recorded by less than two
// of those.
//
// A thread that waits, waits for records with smaller numbers only; the smallest record not played
// yet can always be played. So the player never waits for ever.
#ifndef REPLAY_PROGRAM_H
#define REPLAY_PROGRAM_H

#include <stdint.h>

enum {
    PROGRAM_VERSION = 1,
    WINDOW_EVENTS = 2048,
    WINDOW_SHARE = 128,
    WINDOW_LEAST_BYTES = 64 << 10,
    CHUNK_WORDS = 8192, // at most
    RECORD_WORDS = 4,   // at most
};

static const char program_magic[8] = {'C', 'R', 'N', 'P', 'L', 'A', 'Y', '1'};

struct program_header {
    char magic[8];
    uint32_t version;
    uint32_t threads;  // all that there ever are; number 0 is the player's first
    uint64_t slots;    // numbers in use are below
    uint64_t events;   // allocations, resizes and frees
    uint64_t records;  // with starts and waits
    uint64_t windows;  // at least 1
    uint64_t policies; // of sites that another allocator serves
    uint64_t thread_table, window_table, policy_table; // their places in the file
    uint64_t peak_live_bytes, end_live_bytes;          // requested
    uint64_t waits, unknown_frees, lost_events;
    uint64_t file_bytes; // of the whole file: one that was cut is refused
};

struct program_thread {
    uint64_t first_chunk; // 0: none
};

struct program_window {
    uint32_t threads; // that have records in it
    uint32_t unused;
    uint64_t events;      // in it
    uint64_t live_bytes;  // requested, after it
    uint64_t live_blocks; // likewise
    uint64_t time_ns;     // of the trace, at its end
};

struct program_chunk {
    uint64_t next; // the thread's next chunk; 0: it ends
    uint32_t window;
    uint32_t words; // that follow
    uint32_t thread;
    uint32_t unused;
};

// What serves the blocks of a site.
enum policy_kind {
    POLICY_HEAP,      // a cairn_heap of its own
    POLICY_STACK,     // a cairn_stack a thread: a frame a block, ends as those above have ended
    POLICY_SCOPE,     // a cairn_stack a thread: a frame ends with the last block in it
    POLICY_FIFO,      // a cairn_fifo a thread
    POLICY_RING,      // a cairn_ring a thread: frames of `argument` blocks
    POLICY_POOL,      // a cairn_pool for objects of `argument` bytes
    POLICY_RESERVE,   // malloc of at least `argument` bytes, and no resize below
    POLICY_TEMPORARY, // one buffer a thread, used again
    POLICY_KINDS
};

struct program_policy {
    uint64_t kind;
    uint64_t argument;
    char name[48];
};

// The first word of a record: what it is (4 bits), flags (1), a size (27) and a slot or thread
// number (32). A size of RECORD_SIZE_FOLLOWS and above is the next word instead; that of a free is
// 1 where the block has a byte at all, else 0. Further words:
//   RECORD_ALIGNED    alignment
//   RECORD_RESIZE     size before
//   RECORD_WAIT       so many records of the thread have to be played
//   RECORD_SITE_…     see `site_word`; RECORD_SITE_RESIZE then the size before
enum record_kind {
    RECORD_ALLOC = 1,
    RECORD_ZERO,
    RECORD_ALIGNED,
    RECORD_FREE,
    RECORD_RESIZE,
    RECORD_START, // of the thread
    RECORD_WAIT,  // for the thread
    RECORD_SITE_ALLOC,
    RECORD_SITE_FREE,
    RECORD_SITE_RESIZE,
    RECORD_KINDS
};

enum { RECORD_SIZE_FOLLOWS = (1 << 27) - 1 };

static inline uint64_t record_word(enum record_kind kind, uint64_t size, uint32_t number)
{
    uint64_t field = size < RECORD_SIZE_FOLLOWS ? size : RECORD_SIZE_FOLLOWS;
    return (uint64_t)kind | field << 5 | (uint64_t)number << 32;
}

static inline enum record_kind record_kind(uint64_t word) { return (enum record_kind)(word & 15); }
static inline uint32_t record_size(uint64_t word)
{
    return (uint32_t)(word >> 5) & RECORD_SIZE_FOLLOWS;
}
static inline uint32_t record_number(uint64_t word) { return (uint32_t)(word >> 32); }

// The policy, the thread that allocated, log2 of the alignment (0: as malloc), and whether the
// block is to be all zero.
static inline uint64_t site_word(uint32_t policy, uint32_t thread, unsigned align_log2, int zero)
{
    uint64_t manner = (uint64_t)(align_log2 & 63) << 17 | (uint64_t)(zero != 0) << 16;
    return (uint64_t)thread << 32 | manner | (policy & 0xffff);
}

static inline uint32_t site_policy(uint64_t word) { return (uint32_t)word & 0xffff; }
static inline uint32_t site_thread(uint64_t word) { return (uint32_t)(word >> 32); }
static inline unsigned site_align_log2(uint64_t word) { return (unsigned)(word >> 17) & 63; }
static inline int site_zero(uint64_t word) { return (int)(word >> 16) & 1; }

_Static_assert(RECORD_KINDS <= 16, "4 bits");
_Static_assert(sizeof(struct program_header) == 128, "no padding");

#endif
