// Live blocks by address: entries in one array, and an index of their numbers.
//
// The index is open addressing with linear probing; a removal shifts the entries behind it back, so
// that there are no graves (Knuth, The Art of Computer Programming 3, 6.4, algorithm R). Both are
// reserved at their largest at the start, and cost memory as they are touched.
#include <sys/mman.h>

#include "advise.h"

enum { INDEX_BITS = 24, INDEX_SIZE = 1 << INDEX_BITS };

static struct block *blocks; // number 0 is not used
static uint32_t *slots;      // number of a block, or 0
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
    slots = reserve(INDEX_SIZE * sizeof *slots);
    next_fresh = 1;
    free_list = 0;
    live_count = 0;
    return blocks != NULL && slots != NULL;
}

static uint32_t home(uint64_t address)
{
    return (uint32_t)((address >> 3) * 0x9E3779B97F4A7C15U >> (64 - INDEX_BITS));
}

static uint32_t slot_of(uint64_t address)
{
    uint32_t slot = home(address);
    while (slots[slot] != 0 && blocks[slots[slot]].address != address)
        slot = (slot + 1) % INDEX_SIZE;
    return slot;
}

struct block *block_find(uint64_t address)
{
    uint32_t number = slots[slot_of(address)];
    return number != 0 ? &blocks[number] : NULL;
}

struct block *block_add(uint64_t address)
{
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
        slot = (slot + 1) % INDEX_SIZE;
        if (slots[slot] == 0)
            break;
        uint32_t wanted = home(blocks[slots[slot]].address);
        if ((slot - wanted) % INDEX_SIZE >= (slot - hole) % INDEX_SIZE) {
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
