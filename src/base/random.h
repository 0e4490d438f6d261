/* Random numbers for the choices of hardened builds, by one multiplication each, and a keyed hash.
 *
 * random_next is wyrand (Wang Yi, https://github.com/wangyi-fudan/wyhash): a Weyl sequence
 * through a folded 128-bit product; it passes BigCrush and PractRand. The generator is not
 * cryptographic: an attacker who learns a whole output learns the state. Outputs stay inside the
 * allocator; only a few bits of each are visible, in the places of blocks. The caller owns the
 * state, seeds it from os_random and lets only one thread use it at a time.
 */
#ifndef CAIRN_BASE_RANDOM_H
#define CAIRN_BASE_RANDOM_H

#include "base/compiler.h"

/* The next random number. */
inline_always uint64_t random_next(uint64_t *state)
{
    *state += 0x2d358dccaa6c78a5;
    unsigned __int128 product = (unsigned __int128)*state * (*state ^ 0x8bb84b93962eacc9);
    return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

/* A random number below `bound`: the upper half of a product, after Lemire, "Fast Random Integer
 * Generation in an Interval" (2019), without the rejection that would remove the remaining bias
 * of 2^-32. */
inline_always uint32_t random_below(uint64_t *state, uint32_t bound)
{
    return (uint32_t)((random_next(state) >> 32) * bound >> 32);
}

/* The key of random_keyed. */
struct random_key {
    uint64_t low, high;
};

/* Rotates to the left, by 1 to 63. */
inline_always uint64_t random_turn(uint64_t word, unsigned bits)
{
    return word << bits | word >> (64 - bits);
}

/* SipHash-2-4 of one word (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012): an
 * output reveals nothing about the key or other outputs. */
static inline uint64_t random_keyed(const struct random_key *key, uint64_t number)
{
    enum { LENGTH_BYTES = 8, WORDS = 2, ROUNDS_A_WORD = 2, ROUNDS = 8 };
    uint64_t a = key->low ^ 0x736f6d6570736575;
    uint64_t b = key->high ^ 0x646f72616e646f6d;
    uint64_t c = key->low ^ 0x6c7967656e657261;
    uint64_t d = key->high ^ 0x7465646279746573;
    const uint64_t words[WORDS] = {number, (uint64_t)LENGTH_BYTES << 56};
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned word = round / ROUNDS_A_WORD;
        if (word < WORDS && round % ROUNDS_A_WORD == 0)
            d ^= words[word];
        a += b;
        b = random_turn(b, 13) ^ a;
        a = random_turn(a, 32);
        c += d;
        d = random_turn(d, 16) ^ c;
        a += d;
        d = random_turn(d, 21) ^ a;
        c += b;
        b = random_turn(b, 17) ^ c;
        c = random_turn(c, 32);
        if (word < WORDS && round % ROUNDS_A_WORD == ROUNDS_A_WORD - 1)
            a ^= words[word];
        if (round == WORDS * ROUNDS_A_WORD - 1)
            c ^= 0xff;
    }
    return a ^ b ^ c ^ d;
}

#endif
