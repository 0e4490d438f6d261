// Helpers of the planted programs. Each program has a site whose name begins with `planted`, for
// which one verdict of `cairn advise` is right, and sites called `decoy` that look like it. The
// program's first argument selects another input, with another seed and other sizes. Some programs
// take a second one, the number of repetitions, for measurements.
#ifndef CAIRN_TEST_PLANTED_H
#define CAIRN_TEST_PLANTED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __clang__
#define SITE __attribute__((noinline)) /* clang makes no clones of functions under other names */
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

// Writes to the new block and returns it. The asm keeps the site: the call is neither a tail call
// nor elided. It also hides a bound of the size, for which compilers write `rep stos` instead of a
// call: that is microcode, which hides the latency of the allocator's last instructions. Programs
// rarely have that.
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

// The work of the program on a block.
static inline void use(const void *block, size_t size)
{
    const unsigned char *byte = block;
    for (size_t i = 0; i < size; i++)
        checksum = checksum * 31 + byte[i];
}

// Makes the program's stores to the block happen before its end, with every allocator.
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
