// Slot numbers for objects, which are reused. The thread that gave a number back may reuse it at
// once, since its own records are in order. Other threads may reuse it two windows later, when by
// rule 3 of program.h the record that gave it back has been played.
//
// Threads: one.
#ifndef REPLAY_SLOTS_H
#define REPLAY_SLOTS_H

#include <stdint.h>

enum { SLOTS_OWN = 256 }; // numbers that a thread keeps beyond the end of a window

struct slot_list {
    uint32_t *numbers;
    uint64_t count, capacity;
};

struct slots {
    uint64_t made;         // numbers below were issued
    struct slot_list *own; // by thread
    uint32_t threads;
    struct slot_list common;  // usable by every thread
    struct slot_list late[2]; // given back in the previous window, and in the one before it
};

uint32_t slots_take(struct slots *slots, uint32_t thread);
void slots_give(struct slots *slots, uint32_t thread, uint32_t number);
void slots_end_window(struct slots *slots);
void slots_end(struct slots *slots);

#endif
