/* Tagged heads of lock-free lists.
 *
 * A tagged head is one word: the address of the first element, a multiple of 64 below 2^48, and in
 * the other 22 bits a tag. Each change of the head takes the next tag. So the head differs from an
 * earlier one even if the same element was taken and returned in between (the ABA problem).
 * Elements stay mapped for ever, so a late thread may still read the link of an element that
 * another thread took.
 *
 * Threads: any; the functions only compute.
 */
#ifndef CAIRN_BASE_TAGGED_H
#define CAIRN_BASE_TAGGED_H

#include "base/compiler.h"

#include <stdint.h>

#define TAG_MASK ((uintptr_t)0xffff00000000003f)

/* The address in a tagged head. */
inline_always uintptr_t tagged_address(uintptr_t head) { return head & ~TAG_MASK; }

/* The tag that follows the tag of `head`, in its place in the word. */
inline_always uintptr_t tagged_next_tag(uintptr_t head)
{
    uintptr_t low = (head + 1) & 63;
    uintptr_t high = low == 0 ? ((head >> 48) + 1) & 0xffff : head >> 48;
    return high << 48 | low;
}

#endif
