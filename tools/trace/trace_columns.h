// The second form of a trace, with events in columns. docs/dev/TRACE-FORMAT.md documents it.
#ifndef CAIRN_TOOLS_TRACE_COLUMNS_H
#define CAIRN_TOOLS_TRACE_COLUMNS_H

#include "trace_input.h"
#include "trace_model.h"
#include "trace_stacks.h"

enum {
    COLUMNS_VERSION = 3,        // in the file's header
    COLUMNS_VERSION_BEFORE = 2, // still readable
    BLOCK_EVENTS_MOST = 1 << 20,
    BLOCK_BYTES_MOST = 1 << 28,
};

enum block_kind { BLOCK_END = 1, BLOCK_OF_EVENTS = 2, BLOCK_OF_STACKS = 3, BLOCK_OF_TEXT = 4 };

enum column {
    COLUMN_CODE,  // one byte for each event
    COLUMN_PLACE, // one byte for each event that makes a block; version 2: that has an address
    COLUMN_EXTRA, // one byte for each event with an unexpected time, order or thread
    COLUMN_WHAT,  // one byte each
    COLUMN_STACK, // this column and those up to COLUMN_STEP: varints
    COLUMN_GAP,   // number of events between two with an EXTRA
    COLUMN_SIZE,
    COLUMN_ORDER,
    COLUMN_THREAD,
    COLUMN_ALIGNMENT,
    COLUMN_TIME,
    COLUMN_STEP,
    COLUMN_ADDRESS,
    COLUMN_WHICH, // one byte for each event that frees or resizes a block; not in version 2
    COLUMN_RANK,
    COLUMNS,
    COLUMN_ROOM = 16,
};

enum stack_column { STACK_NUMBER, STACK_SHARED, STACK_OWN, STACK_FRAME, STACK_ADDRESS };

// A code contains the guess of the kind, then that of the size. FULL: no guess is right, and the
// column contains the value.
enum { CODE_FULL = 3, CODE_SIZE_SHIFT = 2, CODE_MOST = 15 };
enum { EXTRA_TIME = 1, EXTRA_ORDER = 2, EXTRA_THREAD = 4, EXTRA_MOST = 7 };
enum { PLACE_NEW_FULL = NEW_GUESSES }; // the value after the guesses
// 0: the way that was right last; else 1 + enum old_way, or one of these.
enum { WHICH_RANK = OLD_WAYS + 1, WHICH_STEP, WHICH_FULL };
// The places of version 2.
enum { PLACE_STEP = OLD_WAYS_BEFORE, PLACE_FULL };

// The header of a block. The columns of a block follow each other without gaps.
struct block_head {
    uint32_t kind;      // enum block_kind
    uint32_t count;     // number of events or stacks
    uint64_t row_bytes; // BLOCK_OF_EVENTS: bytes in the first form; BLOCK_END: number of all events
    uint32_t bytes[COLUMN_ROOM]; // by column; 0 after the last
};
_Static_assert(sizeof(struct block_head) == 80 && COLUMNS <= COLUMN_ROOM, "no gaps");

static inline bool has_size(unsigned operation)
{
    return operation == TRACE_ALLOCATE || operation == TRACE_RESIZE || operation == TRACE_RESIZE_TO;
}

static inline bool takes_block(unsigned operation)
{
    return operation == TRACE_ALLOCATE || operation == TRACE_RESIZE_TO;
}

#endif
