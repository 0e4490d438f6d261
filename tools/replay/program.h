// The format of a replay program: cairn-replay-prepare makes it from a trace once, and cairn-replay
// plays it many times.
//
// One file: a header, chunks of records, and three tables at the end. A chunk contains records of
// one thread within one window, and points to the thread's next chunk. Numbers have the machine's
// byte order: the file is a cache and not portable.
//
// Objects are slot numbers: indices of the player's array of pointers. A slot is reused for another
// object only if, for every thread that uses the slot, the recorded order has the end of the first
// object before the start of the second.
//
// Order. Records have a total order, that of the trace. The player keeps:
//   1. the order of each thread's records;
//   2. the order of each object's records: if another thread used the object last, a RECORD_WAIT
//      precedes the record;
//   3. between windows: no thread begins window n before all have finished window n - 2.
// A window has at most WINDOW_EVENTS events. In a trace with several threads it has few more bytes
// than 1/WINDOW_SHARE of the peak. So live memory differs from the recorded one by less than two
// such windows.
//
// A thread waits only for records with smaller numbers, and the smallest record not yet played can
// always be played. So the player never deadlocks.
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
    uint32_t threads;  // all threads of the trace; number 0 is the player's first
    uint64_t slots;    // slot numbers are below this
    uint64_t events;   // allocations, resizes and frees
    uint64_t records;  // including starts and waits
    uint64_t windows;  // at least 1
    uint64_t policies; // of sites that another allocator serves
    uint64_t thread_table, window_table, policy_table; // places in the file
    uint64_t peak_live_bytes, end_live_bytes;          // requested bytes
    uint64_t waits, unknown_frees, lost_events;
    uint64_t file_bytes; // of the whole file: a truncated file is refused
};

struct program_thread {
    uint64_t first_chunk; // 0: none
};

struct program_window {
    uint32_t threads; // threads with records in it
    uint32_t unused;
    uint64_t events;      // in it
    uint64_t live_bytes;  // requested bytes after it
    uint64_t live_blocks; // number of live blocks after it
    uint64_t time_ns;     // time in the trace at its end
};

struct program_chunk {
    uint64_t next; // the thread's next chunk; 0: none
    uint32_t window;
    uint32_t words; // number of words that follow
    uint32_t thread;
    uint32_t unused;
};

// The allocator that serves the blocks of a site.
enum policy_kind {
    POLICY_HEAP,      // a cairn_private_heap for the site
    POLICY_STACK,     // a cairn_stack for each thread; each block is a frame
    POLICY_SCOPE,     // a cairn_stack for each thread; a frame ends with its last block
    POLICY_FIFO,      // a cairn_fifo for each thread
    POLICY_RING,      // a cairn_ring for each thread, with frames of `argument` blocks
    POLICY_POOL,      // a cairn_pool of objects of `argument` bytes
    POLICY_RESERVE,   // malloc of at least `argument` bytes, with no resize below
    POLICY_TEMPORARY, // one buffer for each thread, used repeatedly
    POLICY_KINDS
};

struct program_policy {
    uint64_t kind;
    uint64_t argument;
    char name[48];
};

// The first word of a record: its kind (4 bits), flags (1), a size (27) and a slot or thread number
// (32). A size of RECORD_SIZE_FOLLOWS and above is in the next word instead. The size of a free is
// 1 if the block has at least one byte, else 0. Further words:
//   RECORD_ALIGNED    alignment
//   RECORD_RESIZE     previous size
//   RECORD_WAIT       number of the thread's records to wait for
//   RECORD_SITE_…     see `site_word`; RECORD_SITE_RESIZE then the previous size
enum record_kind {
    RECORD_ALLOC = 1,
    RECORD_ZERO,
    RECORD_ALIGNED,
    RECORD_FREE,
    RECORD_RESIZE,
    RECORD_START, // starts the thread
    RECORD_WAIT,  // waits for the thread
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

// Packs the policy, the thread that allocated the block, log2 of the alignment (0: malloc's), and
// whether the block must be zero.
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
