/* The inline half of cairn/ring.h: structures, and bodies of functions that it declares.
 *
 * Programs include cairn/ring.h and use no name that only this file declares. The compiler copies
 * the code and the layouts into programs, so they are part of the binary interface.
 */
#ifndef CAIRN_DETAIL_RING_H
#define CAIRN_DETAIL_RING_H

#include <cairn/ring.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The part of a ring on which the inline functions work. Only the owner thread writes to it. */
struct cairn_ring {
    uintptr_t position; /* next free byte, a multiple of 8; 0 while every allocation takes the slow
                           path */
    uintptr_t limit;    /* end of inline allocation, a multiple of 4096, or 0 */
    void *owner;        /* atomic: its thread pointer; NULL after the end */
};

/* The slow half of cairn_ring_alloc. */
CAIRN_API CAIRN_NODISCARD void *cairn_ring_alloc_slow(cairn_ring *ring, size_t size,
                                                      size_t align) CAIRN_NOEXCEPT;

/* The largest constant alignment for which an allocation is inline. */
#define CAIRN_RING_INLINE_ALIGN 4096

static inline void *cairn_ring_alloc(cairn_ring *ring, size_t size, size_t align) CAIRN_NOEXCEPT
{
    if (__builtin_constant_p(align) && align <= CAIRN_RING_INLINE_ALIGN && align != 0 &&
        (align & (align - 1)) == 0) {
        uintptr_t start = ring->position; /* a multiple of 8 */
        if (align > 8)
            start = (start + align - 1) & ~(uintptr_t)(align - 1);
        size_t rounded = (size + 7) & ~(size_t)7;
        /* Position and limit are both 0, or the limit is a multiple of `align` and not below
         * `start`. */
        if (__builtin_expect(rounded - 1 < ring->limit - start &&
                                 __atomic_load_n(&ring->owner, __ATOMIC_RELAXED) ==
                                     __builtin_thread_pointer(),
                             1)) {
            ring->position = start + rounded;
            return (void *)start;
        }
    }
    return cairn_ring_alloc_slow(ring, size, align);
}

static inline void *cairn_ring_alloc_zero(cairn_ring *ring, size_t size,
                                          size_t align) CAIRN_NOEXCEPT
{
    void *block = cairn_ring_alloc(ring, size, align);
    return block ? __builtin_memset(block, 0, size) : block;
}

static inline void *cairn_ring_alloc_array(cairn_ring *ring, size_t count, size_t size,
                                           size_t align) CAIRN_NOEXCEPT
{
    return cairn_ring_alloc(ring, cairn_array_bytes(count, size), align);
}

static inline void *cairn_ring_alloc_array_zero(cairn_ring *ring, size_t count, size_t size,
                                                size_t align) CAIRN_NOEXCEPT
{
    void *block = cairn_ring_alloc_array(ring, count, size, align);
    return block ? __builtin_memset(block, 0, count * size) : block;
}

#ifdef __cplusplus
}
#endif
#endif
