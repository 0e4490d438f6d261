// The live blocks of a trace: their slots by address, and the block of each slot.
//
// A hash table with open addressing, linear probing and deletion that moves later entries back
// (Knuth, The Art of Computer Programming 3, 6.4, algorithm R), at most two thirds full.
//
// Threads: one.
#ifndef REPLAY_LIVE_H
#define REPLAY_LIVE_H

#include <stdint.h>

// The block of a slot in use.
struct live_block {
    uint64_t size;    // requested bytes
    uint64_t ordinal; // ordinal of the record that used it last, among those of `thread`
    uint32_t thread;  // the thread that used it last
    uint32_t window;  // window of the last use
    uint32_t owner;   // thread that allocated it; valid with a policy
    uint32_t policy;  // 1 + number of its policy; 0: none
};

struct live_table {
    uint64_t *addresses; // 0: an empty place
    uint32_t *slots;     // slot of the address at the same place
    uint64_t places;     // a power of two
    uint64_t used;
    struct live_block *blocks; // by slot
    uint64_t capacity;         // of `blocks`
};

void live_start(struct live_table *table);
void live_end(struct live_table *table);

// Returns: 1 when the address has a block, with its slot; otherwise 0.
int live_find(const struct live_table *table, uint64_t address, uint32_t *slot);

// Adds an address that is not in the table.
void live_add(struct live_table *table, uint64_t address, uint32_t slot);

// Removes an address. Returns: 1, with its slot, or 0 when it was not in the table.
int live_remove(struct live_table *table, uint64_t address, uint32_t *slot);

struct live_block *live_block_at(struct live_table *table, uint32_t slot);

// Returns: memory for `count` elements at `pointer`, which may move. Ends the program when out of
// memory.
void *resize_array(void *pointer, uint64_t count, uint64_t size);

#endif
