// Finds live blocks by address: entries in one array, and an index of their numbers.
//
// The index has open addressing with linear probing. A removal moves later entries back, so that
// there are no tombstones (Knuth, The Art of Computer Programming 3, 6.4, algorithm R). The arrays
// are reserved with their largest size at the start, and take memory as they are touched. The index
// uses only as much of its array as keeps it at most half full, so a short trace touches few pages.
#include <string.h>
#include <sys/mman.h>

#include "advise.h"

enum { INDEX_BITS_FIRST = 10, INDEX_BITS_MOST = 24 };
_Static_assert(2 * BLOCKS_MOST <= 1 << INDEX_BITS_MOST, "the index is at most half full");

static struct block *blocks; // number 0 is unused
static uint32_t *slots;      // number of a block, or 0
static unsigned index_bits;
static uint32_t index_mask;
static uint32_t next_fresh = 1, free_list;
static uint64_t live_count;

static void *reserve(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

bool blocks_start(void)
{
    blocks = reserve((BLOCKS_MOST + 1) * sizeof *blocks);
    slots = reserve(((size_t)1 << INDEX_BITS_MOST) * sizeof *slots);
    index_bits = INDEX_BITS_FIRST;
    index_mask = (1U << index_bits) - 1;
    next_fresh = 1;
    free_list = 0;
    live_count = 0;
    return blocks != NULL && slots != NULL;
}

static uint32_t home(uint64_t address)
{
    return (uint32_t)((address >> 3) * 0x9E3779B97F4A7C15U >> (64 - index_bits));
}

static uint32_t slot_of(uint64_t address)
{
    uint32_t slot = home(address);
    while (slots[slot] != 0 && blocks[slots[slot]].address != address)
        slot = (slot + 1) & index_mask;
    return slot;
}

static void grow_index(void)
{
    memset(slots, 0, ((size_t)index_mask + 1) * sizeof *slots);
    index_bits++;
    index_mask = index_mask * 2 + 1;
    for (uint32_t number = 1; number < next_fresh; number++)
        if (blocks[number].address != 0)
            slots[slot_of(blocks[number].address)] = number;
}

struct block *block_find(uint64_t address)
{
    uint32_t number = slots[slot_of(address)];
    return number != 0 ? &blocks[number] : NULL;
}

struct block *block_add(uint64_t address)
{
    if (live_count > index_mask / 2 && index_bits < INDEX_BITS_MOST)
        grow_index();
    uint32_t slot = slot_of(address), number = slots[slot];
    if (number != 0)
        return &blocks[number];
    if (free_list != 0) {
        number = free_list;
        free_list = blocks[number].serial;
    } else if (next_fresh <= BLOCKS_MOST) {
        number = next_fresh++;
    } else {
        return NULL;
    }
    slots[slot] = number;
    blocks[number] = (struct block){.address = address};
    live_count++;
    return &blocks[number];
}

void block_remove(struct block *block)
{
    uint32_t hole = slot_of(block->address);
    for (uint32_t slot = hole;;) {
        slot = (slot + 1) & index_mask;
        if (slots[slot] == 0)
            break;
        uint32_t wanted = home(blocks[slots[slot]].address);
        if (((slot - wanted) & index_mask) >= ((slot - hole) & index_mask)) {
            slots[hole] = slots[slot];
            hole = slot;
        }
    }
    slots[hole] = 0;
    block->address = 0;
    block->serial = free_list;
    free_list = (uint32_t)(block - blocks);
    live_count--;
}

void blocks_visit(block_visitor *visit, void *context)
{
    for (uint32_t number = 1; number < next_fresh; number++)
        if (blocks[number].address != 0)
            visit(&blocks[number], context);
}

uint64_t blocks_live(void) { return live_count; }
