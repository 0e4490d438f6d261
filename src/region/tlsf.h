/* What TLSF's allocating functions have in common: one request, met or not, and what happens when
 * it is not. Threading: as the heap.
 */
#ifndef CAIRN_REGION_TLSF_H
#define CAIRN_REGION_TLSF_H

#include "region/tlsf_block.h"

struct tlsf_request {
    void *pointer; /* the block to reallocate; NULL: a new one */
    size_t size_bytes;
    size_t align_bytes; /* a power of two; of new blocks only */
};

/* Once: NULL when there is no memory, and then everything is as it was. */
void *tlsf_request_meet(struct cairn_tlsf *heap, const struct tlsf_request *request);

/* After it was not met: again as often as the heap's out-of-memory function says so; at last NULL,
 * and the host is told. */
void *tlsf_request_again(struct cairn_tlsf *heap, void *pointer, size_t size, size_t align);

/* Whether that function says so now. It is not asked for what no region of the heap could hold. */
bool tlsf_may_try_again(const struct cairn_tlsf *heap, size_t size_bytes);

/* A product that overflows is more than any heap has. */
inline_always size_t tlsf_total_of(size_t count, size_t size)
{
    size_t total;
    return __builtin_mul_overflow(count, size, &total) ? SIZE_MAX : total;
}

#endif
