// The player's writes to blocks, and its read before a free: a trace does not contain the program's
// accesses. See enum player_touch.
#ifndef REPLAY_TOUCH_H
#define REPLAY_TOUCH_H

#include "player.h"

#include <string.h>

enum { PAGE = 4096, FIRST_WRITE = 8, ELEMENT = 4 };
_Static_assert((int)PAGE <= (int)SCRATCH_BYTES,
               "what is filled of a block is filled of the scratch page");

#define ALWAYS_INLINE inline __attribute__((always_inline))

// Writes to the block's bytes from `from` on. Each write is volatile, so that the compiler keeps
// it.
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

// Fills at most the first page: a program fills most blocks that it requests, but larger ones
// perhaps only in part.
static ALWAYS_INLINE void fill(char *block, uint64_t from, uint64_t size)
{
    uint64_t end = size < PAGE ? size : PAGE;
    uint64_t count = from < end ? end - from : 0;
    // If the compiler knew a bound it would emit its own loop, which programs rarely have.
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

// Writes a grown block element by element. A block that grows by realloc is usually an array or a
// text that was full. The processor rarely predicts the end of such a loop, and realloc copies
// bytes that were just written in small pieces. `mask` limits the place in the block.
static ALWAYS_INLINE void append(char *block, uint64_t mask, uint64_t from, uint64_t size)
{
    for (; from + ELEMENT <= size; from += ELEMENT) {
        memset(block + (from & mask), 1, ELEMENT);
        __asm__ volatile("" : : "r"(block) : "memory"); // prevents merged writes
    }
}

// Touches the new bytes after a resize that made the block larger.
static ALWAYS_INLINE void touch_more(enum player_touch how, char *block, uint64_t from,
                                     uint64_t size)
{
    if (how != TOUCH_NOTHING)
        touch_pages(block, from, size, touches_pages(how, false));
    if (how == TOUCH_FILL)
        append(block, UINT64_MAX, from, size);
}

// Returns: a byte of the block, or 0 when blocks are not filled.
static ALWAYS_INLINE uint64_t touch_last(enum player_touch how, const char *block, uint64_t size)
{
    return how == TOUCH_FILL && size ? *(const volatile unsigned char *)block : 0;
}

#endif
