// Assigns sites to stacks: a hash of the innermost frames leads to the site's number. Two places
// with one hash of 64 bits would be one site; among 65536 sites this happens once in some billion
// programs.
#include <stdlib.h>
#include <string.h>

#include "advise.h"

enum { FRAMES_OF_SITE = 8, TABLE_SIZE = 4 * SITES_MOST };

static uint64_t keys[TABLE_SIZE]; // 0: none
static uint32_t numbers[TABLE_SIZE];
static uint32_t sites = 1; // 0 is the site without a stack

static uint64_t key_of(const uint64_t *frames, unsigned count)
{
    uint64_t key = 0x9E3779B97F4A7C15U;
    for (unsigned i = 0, kept = 0; i < count && kept < FRAMES_OF_SITE; i++) {
        bool is_new = true;
        for (unsigned j = 0; j < i && is_new; j++)
            is_new = frames[j] != frames[i];
        if (!is_new)
            continue;
        key = (key ^ frames[i]) * 0xBF58476D1CE4E5B9U;
        key ^= key >> 29;
        kept++;
    }
    return key ? key : 1;
}

static uint32_t number_of(uint64_t key)
{
    uint32_t slot = (uint32_t)(key >> 32) % TABLE_SIZE;
    while (keys[slot] != 0 && keys[slot] != key)
        slot = (slot + 1) % TABLE_SIZE;
    if (keys[slot] == key)
        return numbers[slot];
    if (sites == SITES_MOST - 1)
        return SITES_MOST - 1;
    keys[slot] = key;
    return numbers[slot] = sites++;
}

bool place_add(struct advice *advice, uint32_t stack, const uint64_t *frames, unsigned count)
{
    if (stack >= advice->stack_count) {
        uint32_t room = advice->stack_count ? advice->stack_count : 1024;
        while (room <= stack)
            room *= 2;
        uint32_t *larger = realloc(advice->site_of_stack, room * sizeof *larger);
        if (larger == NULL)
            return false;
        memset(larger + advice->stack_count, 0, (room - advice->stack_count) * sizeof *larger);
        advice->site_of_stack = larger;
        advice->stack_count = room;
    }
    advice->site_of_stack[stack] = count ? number_of(key_of(frames, count)) : 0;
    return true;
}
