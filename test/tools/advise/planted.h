// What the planted programs share. Each has a site whose name begins with `planted`, which one
// verdict of `cairn advise` is right for, and sites that look like one and are not: `decoy`. The
// program's argument is another input: another seed and other sizes. Some take a second one: how
// often they do it all, for who measures them.
#ifndef CAIRN_TEST_PLANTED_H
#define CAIRN_TEST_PLANTED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __clang__
#define SITE __attribute__((noinline)) /* it makes no clones of functions under other names */
#else
#define SITE __attribute__((noinline, noclone))
#endif

static uint64_t random_state = 88172645463325252U;
static unsigned input = 1;
static unsigned times = 1;
static uint64_t checksum;

static inline uint32_t random_below(uint32_t limit) // xorshift64, G. Marsaglia 2003
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 20) % limit);
}

// The new block, written to. Its site stays: neither a tail call nor elided. Where a compiler knows
// a bound of the size it writes `rep stos` instead of a call: microcode, in whose shadow the
// processor ends what the allocator had begun. Programs seldom have that.
static inline __attribute__((always_inline)) void *filled(void *block, size_t size)
{
    if (block == NULL)
        abort();
    __asm__ volatile("" : "+r"(block), "+r"(size) : : "memory");
    return memset(block, (int)(size & 127), size);
}

static inline __attribute__((always_inline)) void *xmalloc(size_t size)
{
    return filled(malloc(size), size);
}

// The program's own work on a block.
static inline void use(const void *block, size_t size)
{
    const unsigned char *byte = block;
    for (size_t i = 0; i < size; i++)
        checksum = checksum * 31 + byte[i];
}

// What the program wrote to the block is there when it ends, whichever allocator ends it.
static inline void *finished(void *block)
{
    __asm__ volatile("" : "+r"(block) : : "memory");
    return block;
}

static inline void give(void *block) { free(finished(block)); }

static inline void begin(int count, char **words)
{
    if (count > 1)
        input = (unsigned)atoi(words[1]);
    if (count > 2)
        times = (unsigned)atoi(words[2]);
    random_state += input * 7919U;
}

static inline int finish(void)
{
    __asm__ volatile("" : : "r"(checksum) : "memory");
    return 0;
}

#endif
