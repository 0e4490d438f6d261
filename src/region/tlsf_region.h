/* TLSF's regions as the walker sees them; see tlsf_region.c. */
#ifndef CAIRN_REGION_TLSF_REGION_H
#define CAIRN_REGION_TLSF_REGION_H

#include "region/tlsf_block.h"

/* Error numbers, as Linux has them: the core includes no header of libc. */
enum { TLSF_EBUSY = 16, TLSF_EINVAL = 22, TLSF_EFBIG = 27 };

inline_always place smaller_place(place a, place b) { return a < b ? a : b; }
inline_always place larger_place(place a, place b) { return a > b ? a : b; }

inline_always struct region *region_at(const struct cairn_tlsf *heap, place at)
{
    return (struct region *)((uintptr_t)heap + (uintptr_t)at);
}

/* The word of a region's first block. */
inline_always place region_first(place at) { return at + (place)sizeof(struct region); }

#endif
