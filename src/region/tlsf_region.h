/* What adding and removing regions shares with the heap's other ends; see tlsf_region.c. */
#ifndef CAIRN_REGION_TLSF_REGION_H
#define CAIRN_REGION_TLSF_REGION_H

#include "region/tlsf_block.h"

/* Error numbers, as Linux has them: the core includes no header of libc. */
enum { TLSF_EBUSY = 16, TLSF_EINVAL = 22, TLSF_EFBIG = 27 };

inline_always place smaller_place(place a, place b) { return a < b ? a : b; }
inline_always place larger_place(place a, place b) { return a > b ? a : b; }

/* Grows a heap of one region by `size_bytes` of memory right behind it, a multiple of 16 and at
 * least BLOCK_LEAST_BYTES, that no other region has; the region stays within largest_bytes. */
void tlsf_extend(struct cairn_tlsf *heap, size_t size_bytes);

/* The size of the free block at the end of a heap of one region, 0 when there is none. */
size_t tlsf_free_at_end(const struct cairn_tlsf *heap);

/* Takes `size_bytes` of memory, a multiple of 16, from the end of that block, of which at least
 * BLOCK_LEAST_BYTES stay. */
void tlsf_cut(struct cairn_tlsf *heap, size_t size_bytes);

#endif
