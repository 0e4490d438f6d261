// The live blocks of a trace: their slots by address, and what is known of each slot's block.
//
// A table with open addresses, linear probing and deletion that moves back what follows (Knuth,
// The Art of Computer Programming 3, 6.4, algorithm R), at most two thirds full. One thread.
#ifndef REPLAY_LIVE_H
#define REPLAY_LIVE_H

#include <stdint.h>

// Of a slot in use.
struct live_block {
    uint64_t size;    // requested
    uint64_t ordinal; // of the record that used it last, among those of `thread`
    uint32_t thread;  // that used it last
    uint32_t window;  // in which
    uint32_t owner;   // the thread that allocated it, of a block with a policy
    uint32_t policy;  // 1 + its number; 0: none
};

struct live_table {
    uint64_t *addresses; // 0: an empty place
    uint32_t *slots;     // of the addresses
    uint64_t places;     // a power of two
    uint64_t used;
    struct live_block *blocks; // by slot
    uint64_t capacity;         // of `blocks`
};

void live_start(struct live_table *table);
void live_end(struct live_table *table);

// Whether the address has a block, and its slot.
int live_find(const struct live_table *table, uint64_t address, uint32_t *slot);

// Adds an address that is not there.
void live_add(struct live_table *table, uint64_t address, uint32_t slot);

// Removes one that is there, and gives its slot, or else says that it is not.
int live_remove(struct live_table *table, uint64_t address, uint32_t *slot);

struct live_block *live_block_at(struct live_table *table, uint32_t slot);

// Memory for `count` elements at `pointer`; ends the program when there is none.
void *resize_array(void *pointer, uint64_t count, uint64_t size);

#endif
