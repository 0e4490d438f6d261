// The table of live blocks: see live.h.
#include "live.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_PLACES = 1 << 12 };

void *resize_array(void *pointer, uint64_t count, uint64_t size)
{
    void *larger = reallocarray(pointer, count, size);
    if (!larger) {
        fprintf(stderr, "cairn-replay-prepare: out of memory for %llu elements\n",
                (unsigned long long)count);
        exit(1);
    }
    return larger;
}

static uint64_t place_of(const struct live_table *table, uint64_t address)
{
    // Fibonacci hashing (Knuth 6.4): the product's upper half has all bits of the address in it.
    return (address * 0x9e3779b97f4a7c15u >> 32) & (table->places - 1);
}

static void make_places(struct live_table *table, uint64_t places)
{
    table->places = places;
    table->addresses = resize_array(NULL, places, sizeof *table->addresses);
    table->slots = resize_array(NULL, places, sizeof *table->slots);
    memset(table->addresses, 0, places * sizeof *table->addresses);
}

void live_start(struct live_table *table)
{
    *table = (struct live_table){0};
    make_places(table, FIRST_PLACES);
}

void live_end(struct live_table *table)
{
    free(table->addresses);
    free(table->slots);
    free(table->blocks);
}

// Returns: the place of the address, or the empty place where it would be inserted.
static uint64_t search(const struct live_table *table, uint64_t address)
{
    uint64_t place = place_of(table, address);
    while (table->addresses[place] && table->addresses[place] != address)
        place = (place + 1) & (table->places - 1);
    return place;
}

int live_find(const struct live_table *table, uint64_t address, uint32_t *slot)
{
    uint64_t place = search(table, address);
    *slot = table->slots[place];
    return table->addresses[place] != 0;
}

static void grow(struct live_table *table)
{
    struct live_table old = *table;
    make_places(table, old.places * 2);
    for (uint64_t at = 0; at < old.places; at++) {
        if (!old.addresses[at])
            continue;
        uint64_t place = search(table, old.addresses[at]);
        table->addresses[place] = old.addresses[at];
        table->slots[place] = old.slots[at];
    }
    free(old.addresses);
    free(old.slots);
}

void live_add(struct live_table *table, uint64_t address, uint32_t slot)
{
    if ((table->used + 1) * 3 > table->places * 2)
        grow(table);
    uint64_t place = search(table, address);
    table->addresses[place] = address;
    table->slots[place] = slot;
    table->used++;
}

int live_remove(struct live_table *table, uint64_t address, uint32_t *slot)
{
    uint64_t hole = search(table, address), mask = table->places - 1;
    if (!table->addresses[hole])
        return 0;
    *slot = table->slots[hole];
    table->used--;
    for (uint64_t at = (hole + 1) & mask; table->addresses[at]; at = (at + 1) & mask) {
        // An entry may move to the hole unless its hash is between the hole and its place.
        uint64_t home = place_of(table, table->addresses[at]);
        if (((at - home) & mask) < ((at - hole) & mask))
            continue;
        table->addresses[hole] = table->addresses[at];
        table->slots[hole] = table->slots[at];
        hole = at;
    }
    table->addresses[hole] = 0;
    return 1;
}

struct live_block *live_block_at(struct live_table *table, uint32_t slot)
{
    if (slot >= table->capacity) {
        uint64_t wanted = table->capacity ? table->capacity : 1024;
        while (wanted <= slot)
            wanted *= 2;
        table->blocks = resize_array(table->blocks, wanted, sizeof *table->blocks);
        memset(table->blocks + table->capacity, 0,
               (wanted - table->capacity) * sizeof *table->blocks);
        table->capacity = wanted;
    }
    return &table->blocks[slot];
}
