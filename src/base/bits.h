/* Bit arithmetic on sizes and words. Pure functions, no state. Bitmaps and their locking belong
 * to the caller. */
#ifndef CAIRN_BASE_BITS_H
#define CAIRN_BASE_BITS_H

#include "base/compiler.h"

inline_always bool is_power_of_two(size_t value)
{
    return value != 0 && (value & (value - 1)) == 0;
}

/* The next multiple of `alignment`, a power of two, at or above the value. The caller excludes
 * an overflow. */
inline_always size_t align_up(size_t value, size_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

/* The next multiple of `alignment`, a power of two, at or below the value. */
inline_always size_t align_down(size_t value, size_t alignment) { return value & ~(alignment - 1); }

/* The number of the lowest set bit of a value that is not zero. */
inline_always unsigned lowest_bit(uint64_t value) { return (unsigned)__builtin_ctzll(value); }

/* The number of the highest set bit of a value that is not zero. */
inline_always unsigned highest_bit(uint64_t value)
{
    /* with XOR this is one instruction, with `63 -` three */
    return 63u ^ (unsigned)__builtin_clzll(value);
}

/* The number of set bits. */
inline_always unsigned count_bits(uint64_t value)
{
#if defined(__POPCNT__) || defined(__aarch64__)
    return (unsigned)__builtin_popcountll(value);
#else
    /* Adds groups of 2, 4 and 8 adjacent bits. The builtin would call the compiler's library. */
    const uint64_t pairs = 0x5555555555555555u, nibbles = 0x3333333333333333u,
                   bytes = 0x0f0f0f0f0f0f0f0fu, ones = 0x0101010101010101u;
    value -= (value >> 1) & pairs;
    value = (value & nibbles) + ((value >> 2) & nibbles);
    return (unsigned)((((value + (value >> 4)) & bytes) * ones) >> 56);
#endif
}

/* Rotates 64 bits, by 0 to 63. */
inline_always uint64_t rotate_right(uint64_t value, unsigned count)
{
    return (value >> count) | (value << (64 - count) % 64);
}

/* Rotates 32 bits. On x86 by an instruction of its own: gcc does not know that the rotation
 * clears the upper half, and would clear it again. */
inline_always uint64_t rotate_right_32(uint32_t value, unsigned count)
{
#ifdef __x86_64__
    uint64_t rotated = value;
    __asm__("ror %b1, %k0" : "+r"(rotated) : "ci"((uint8_t)count) : "cc");
    return rotated;
#else
    return (value >> count) | (value << (32 - count));
#endif
}

/* Whether an aligned word is zero. On x86 the word is accessed as by a write, because a new page
 * that is first read faults twice if it is written later. Not atomic. */
inline_always bool is_zero_to_write(void *word)
{
    typedef uint64_t any_word __attribute__((may_alias));
    any_word *at = (any_word *)word;
#ifdef __x86_64__
    bool zero;
    __asm__("orq $0, %0" : "+m"(*at), "=@ccz"(zero));
    return zero;
#else
    return *at == 0;
#endif
}

inline_always size_t smaller_of(size_t a, size_t b) { return a < b ? a : b; }
inline_always size_t larger_of(size_t a, size_t b) { return a > b ? a : b; }

/* Whether a bit of a bitmap of 64-bit words is set. */
inline_always bool bitmap_has(const uint64_t *words, size_t bit)
{
    return (words[bit / 64] >> bit % 64 & 1) != 0;
}

/* Sets the bits [first, first + count) of a bitmap of 64-bit words. */
void bitmap_set(uint64_t *words, size_t first, size_t count);

/* Clears the bits [first, first + count) of a bitmap of 64-bit words. */
void bitmap_clear(uint64_t *words, size_t first, size_t count);

/* The number of set bits in [first, first + count) of a bitmap of 64-bit words. */
size_t bitmap_count(const uint64_t *words, size_t first, size_t count);

#endif
