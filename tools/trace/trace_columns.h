// The second form of a trace: events in columns. docs/TRACE-FORMAT.md describes it.
#ifndef CAIRN_TOOLS_TRACE_COLUMNS_H
#define CAIRN_TOOLS_TRACE_COLUMNS_H

#include "trace_input.h"
#include "trace_model.h"
#include "trace_stacks.h"

enum {
    COLUMNS_VERSION = 3,        // in the file's header
    COLUMNS_VERSION_BEFORE = 2, // is read still
    BLOCK_EVENTS_MOST = 1 << 20,
    BLOCK_BYTES_MOST = 1 << 28,
};

enum block_kind { BLOCK_END = 1, BLOCK_OF_EVENTS = 2, BLOCK_OF_STACKS = 3, BLOCK_OF_TEXT = 4 };

enum column {
    COLUMN_CODE,  // a byte an event
    COLUMN_PLACE, // a byte an event that makes a block; version 2: that has an address
    COLUMN_EXTRA, // a byte for each event whose time, order or thread is not the expected one
    COLUMN_WHAT,  // a byte
    COLUMN_STACK, // this one and those that follow: varints
    COLUMN_GAP,   // events before each that has an EXTRA, from the one before that has
    COLUMN_SIZE,
    COLUMN_ORDER,
    COLUMN_THREAD,
    COLUMN_ALIGNMENT,
    COLUMN_TIME,
    COLUMN_STEP,
    COLUMN_ADDRESS,
    COLUMN_WHICH, // a byte an event that frees or resizes a block; these two: not in version 2
    COLUMN_RANK,
    COLUMNS,
    COLUMN_ROOM = 16,
};

enum stack_column { STACK_NUMBER, STACK_SHARED, STACK_OWN, STACK_FRAME, STACK_ADDRESS };

// A code has the guess of the kind, then that of the size; FULL: none, it is in its column.
enum { CODE_FULL = 3, CODE_SIZE_SHIFT = 2, CODE_MOST = 15 };
enum { EXTRA_TIME = 1, EXTRA_ORDER = 2, EXTRA_THREAD = 4, EXTRA_MOST = 7 };
enum { PLACE_NEW_FULL = NEW_GUESSES }; // behind the guesses
// 0: the way that was right last. Else 1 + enum old_way, or none of them.
enum { WHICH_RANK = OLD_WAYS + 1, WHICH_STEP, WHICH_FULL };
// The same in version 2.
enum { PLACE_STEP = OLD_WAYS_BEFORE, PLACE_FULL };

// Before each block's columns, which follow each other without gaps.
struct block_head {
    uint32_t kind;      // enum block_kind
    uint32_t count;     // of events or stacks
    uint64_t row_bytes; // of events: what they took in the first form; BLOCK_END: events in all
    uint32_t bytes[COLUMN_ROOM]; // by column; 0 behind the last
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
