/* Random numbers for the hardened build's choices: one multiplication each.
 *
 * wyrand (Wang Yi, https://github.com/wangyi-fudan/wyhash): a Weyl sequence through a folded
 * 128-bit product; passes BigCrush and PractRand. Not cryptographic: whoever learns a whole output
 * learns the state. Outputs stay inside; what shows of them is a few bits of each, as places of
 * blocks. The state belongs to the caller, who seeds it from os_entropy and keeps threads off it.
 */
#ifndef CAIRN_BASE_RANDOM_H
#define CAIRN_BASE_RANDOM_H

#include "base/compiler.h"

inline_always uint64_t random_next(uint64_t *state)
{
    *state += 0x2d358dccaa6c78a5;
    unsigned __int128 product = (unsigned __int128)*state * (*state ^ 0x8bb84b93962eacc9);
    return (uint64_t)(product >> 64) ^ (uint64_t)product;
}

/* Below `bound`, which is below 2^32: the upper half of a product, after Lemire, "Fast Random
 * Integer Generation in an Interval" (2019), without the rejection of its last 2^-32 of bias. */
inline_always uint32_t random_below(uint64_t *state, uint32_t bound)
{
    return (uint32_t)((random_next(state) >> 32) * bound >> 32);
}

#endif
