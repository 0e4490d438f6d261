/* TLSF's mapping from sizes to size classes: pure functions of numbers, no memory.
 *
 * The first level is the power of two, the second cuts it into 32 equal steps. Below 512 bytes a
 * step would be less than the grain of 16 bytes, so there one linear first level holds a class for
 * each size. The two levels are one number, class = first level * 32 + second level, in which
 * neighbouring classes are neighbours:
 *
 *     size < 512:  class = size / 16
 *     else:        class = (top - 9) * 32 + size / 2^(top - 5), top = highest bit of size
 *
 * Up to 1008 bytes a class holds one size only.
 */
#ifndef CAIRN_REGION_TLSF_MAP_H
#define CAIRN_REGION_TLSF_MAP_H

#include "base/bits.h"

enum {
    TLSF_GRAIN_BYTES = 16,
    TLSF_SECOND_BITS = 5,
    TLSF_SECOND_LEVELS = 1 << TLSF_SECOND_BITS,
    TLSF_LINEAR_BITS = 9, /* below 2^9 bytes classes are linear */
    TLSF_SIZE_BITS = 40,  /* sizes are below 2^40 */
    TLSF_FIRST_LEVELS_MOST = TLSF_SIZE_BITS - TLSF_LINEAR_BITS + 1,
    TLSF_CLASSES_MOST = TLSF_FIRST_LEVELS_MOST * TLSF_SECOND_LEVELS,
};

static_check(1 << TLSF_LINEAR_BITS == TLSF_GRAIN_BYTES * TLSF_SECOND_LEVELS,
             "the linear level ends where a step of the next is one grain");

/* The class that holds blocks of this size. */
inline_always unsigned tlsf_class_of(size_t size_bytes)
{
    unsigned top = highest_bit(size_bytes | (size_t)1 << TLSF_LINEAR_BITS);
    return ((top - TLSF_LINEAR_BITS) << TLSF_SECOND_BITS) +
           (unsigned)(size_bytes >> (top - TLSF_SECOND_BITS));
}

/* The smallest size in a class: every block of the class has at least it. */
inline_always size_t tlsf_class_floor(unsigned size_class)
{
    unsigned first = size_class >> TLSF_SECOND_BITS;
    size_t second = size_class & (TLSF_SECOND_LEVELS - 1);
    if (first == 0)
        return second * TLSF_GRAIN_BYTES;
    return (TLSF_SECOND_LEVELS + second) << (first + TLSF_LINEAR_BITS - 1 - TLSF_SECOND_BITS);
}

#endif
