// Numbers for objects, given again. A number that a thread gave back is that thread's to use again
// at once: its own records are in order. To others it goes two windows later, when by rule 3 of
// program.h the record that gave it back has been played. One thread.
#ifndef REPLAY_SLOTS_H
#define REPLAY_SLOTS_H

#include <stdint.h>

enum { SLOTS_OWN = 256 }; // numbers that a thread keeps over the end of a window

struct slot_list {
    uint32_t *numbers;
    uint64_t count, capacity;
};

struct slots {
    uint64_t made;         // numbers below were given
    struct slot_list *own; // by thread
    uint32_t threads;
    struct slot_list common;  // for every thread
    struct slot_list late[2]; // given back in the window before, and the one before that
};

uint32_t slots_take(struct slots *slots, uint32_t thread);
void slots_give(struct slots *slots, uint32_t thread, uint32_t number);
void slots_end_window(struct slots *slots);
void slots_end(struct slots *slots);

#endif
