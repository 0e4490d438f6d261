// Makes a replay program from events in their recorded order, in one pass. Memory grows with the
// number of simultaneously live blocks.
//
// Threads: one.
#ifndef REPLAY_PREPARE_H
#define REPLAY_PREPARE_H

#include "live.h"
#include "site_policy.h"
#include "slots.h"
#include "streams.h"

#include <stdbool.h>

enum replay_operation {
    REPLAY_ALLOC,
    REPLAY_FREE,
    REPLAY_RESIZE,      // the block stayed at its address
    REPLAY_RESIZE_FROM, // the old address is free from this event on
    REPLAY_RESIZE_TO,   // the new address: the thread's next event
    REPLAY_RESIZE_FAILED
};

struct replay_event {
    enum replay_operation operation;
    uint32_t thread; // any number
    uint32_t stack;
    unsigned align_log2; // 0: malloc's alignment
    bool zeroed;
    uint64_t address; // not 0
    uint64_t size;
    uint64_t time_ns;
};

enum { WAITS_KNOWN = 8 };

// State of a thread of the trace.
struct prepare_thread {
    uint32_t number;           // 1 + its number in the program; 0: it had no event yet
    bool resizing;             // between a RESIZE_FROM and its end
    uint32_t resizing_slot;    // slot of the block
    uint64_t resizing_address; // address of the block, which is not in the table meanwhile
    struct {                   // records that it has waited for
        uint32_t thread;
        uint64_t ordinal;
    } waited[WAITS_KNOWN];
};

struct prepare {
    struct streams streams;
    struct slots slots;
    struct live_table live;
    struct site_policies *policies; // NULL: none
    struct prepare_thread *threads; // by the trace's number
    uint32_t thread_capacity;
    uint32_t last_thread;  // program's number of the thread of the previous event
    uint64_t window_bytes; // bytes allocated in the window
    uint64_t live_bytes, live_blocks;
    uint64_t time_ns; // time of the last event
};

void prepare_start(struct prepare *prepare, const char *path, struct site_policies *policies);
void prepare_event(struct prepare *prepare, const struct replay_event *event);
void prepare_finish(struct prepare *prepare);

#endif
