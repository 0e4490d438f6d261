// What the player writes to a block and reads of it: writes of the program are not in a trace. See
// enum player_touch.
#ifndef REPLAY_TOUCH_H
#define REPLAY_TOUCH_H

#include "player.h"

#include <string.h>

enum { PAGE = 4096, FIRST_WRITE = 8, ELEMENT = 4 };
_Static_assert((int)PAGE <= (int)SCRATCH_BYTES,
               "what is filled of a block is filled of the scratch page");

#define ALWAYS_INLINE inline __attribute__((always_inline))

// Writes to the block's bytes from `from` on. Each write is volatile, or the compiler would see
// that nobody reads it.
static ALWAYS_INLINE void touch_pages(char *block, uint64_t from, uint64_t size, bool pages)
{
    if (from == 0 && size >= FIRST_WRITE)
        *(volatile uint64_t *)(void *)block = size;
    else if (from < size)
        *(volatile char *)(block + from) = 1;
    if (!pages)
        return;
    uintptr_t end = (uintptr_t)block + size;
    uintptr_t at = ((uintptr_t)block + from) / PAGE * PAGE + PAGE;
    for (; at < end; at += PAGE)
        *(volatile char *)at = 1;
}

// A program fills most blocks that it asks for, and looks at them before it lets them go. Larger
// ones it may fill in part.
static ALWAYS_INLINE void fill(char *block, uint64_t from, uint64_t size)
{
    uint64_t end = size < PAGE ? size : PAGE;
    uint64_t count = from < end ? end - from : 0;
    // Where a compiler sees a bound it writes a loop of its own, which programs seldom have.
    __asm__("" : "+r"(count));
    if (count)
        memset(block + from, 1, count);
    __asm__ volatile("" : : "r"(block) : "memory");
}

static ALWAYS_INLINE bool touches_pages(enum player_touch how, bool zeroed)
{
    return how == TOUCH_PAGES || (how <= TOUCH_ZEROED && !zeroed);
}

static ALWAYS_INLINE void touch_block(enum player_touch how, char *block, uint64_t from,
                                      uint64_t size, bool zeroed)
{
    if (how == TOUCH_FILL && !zeroed && size <= PAGE) {
        fill(block, from, size);
        return;
    }
    if (how == TOUCH_NOTHING)
        return;
    touch_pages(block, from, size, touches_pages(how, zeroed));
    if (how == TOUCH_FILL && !zeroed)
        fill(block, from, size);
}

// What grows by realloc is mostly an array or a text that was full and goes on element by element.
// The end of that loop is one that a processor seldom foresees, and realloc copies what has just
// been written in small pieces. `mask`: of a place in the block.
static ALWAYS_INLINE void append(char *block, uint64_t mask, uint64_t from, uint64_t size)
{
    for (; from + ELEMENT <= size; from += ELEMENT) {
        memset(block + (from & mask), 1, ELEMENT);
        __asm__ volatile("" : : "r"(block) : "memory"); // not several at once
    }
}

// After a resize that made the block larger.
static ALWAYS_INLINE void touch_more(enum player_touch how, char *block, uint64_t from,
                                     uint64_t size)
{
    if (how != TOUCH_NOTHING)
        touch_pages(block, from, size, touches_pages(how, false));
    if (how == TOUCH_FILL)
        append(block, UINT64_MAX, from, size);
}

// A byte of the block, or 0.
static ALWAYS_INLINE uint64_t touch_last(enum player_touch how, const char *block, uint64_t size)
{
    return how == TOUCH_FILL && size ? *(const volatile unsigned char *)block : 0;
}

#endif
