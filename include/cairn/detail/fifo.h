/* The inline half of cairn/fifo.h: structures, and bodies of functions that it declares.
 *
 * Programs include cairn/fifo.h and use no name that only this file declares. The compiler copies
 * the code and the layouts into programs, so they are part of the binary interface.
 */
#ifndef CAIRN_DETAIL_FIFO_H
#define CAIRN_DETAIL_FIFO_H

#include <cairn/fifo.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Constants of the inline functions. */
#define CAIRN_FIFO_GROUP_BYTES  ((uintptr_t)1 << 21)
#define CAIRN_FIFO_PAGE_SHIFT   12
#define CAIRN_FIFO_PAGES        512
#define CAIRN_FIFO_INLINE_ALIGN 4096

/* The part of a FIFO on which the inline functions work. Only the owner thread writes to it. */
struct cairn_fifo {
    uintptr_t position; /* next free byte, a multiple of 8; 0 while every allocation takes the slow
                           path */
    uintptr_t limit;    /* end of the current page, or 0 */
    void *owner;        /* atomic: its thread pointer; NULL while every free takes the slow path */
    uint64_t made;      /* objects begun in the current page */
};

/* The start of a group. */
struct cairn_fifo_group {
    uintptr_t tag; /* const while in use: exclusive or of the addresses of FIFO and group */
    int32_t live[CAIRN_FIFO_PAGES]; /* owner: live objects that began in each page; the current page
                                       has a bias */
};

/* The slow halves of the inline functions. */
CAIRN_API CAIRN_NODISCARD void *cairn_fifo_alloc_slow(cairn_fifo *fifo, size_t size,
                                                      size_t align) CAIRN_NOEXCEPT;
CAIRN_API void cairn_fifo_free_slow(cairn_fifo *fifo, void *pointer) CAIRN_NOEXCEPT;
CAIRN_API void cairn_fifo_end_page(cairn_fifo *fifo, void *pointer) CAIRN_NOEXCEPT;

static inline void *cairn_fifo_alloc(cairn_fifo *fifo, size_t size, size_t align) CAIRN_NOEXCEPT
{
    if (__builtin_constant_p(align) && align <= CAIRN_FIFO_INLINE_ALIGN && align != 0 &&
        (align & (align - 1)) == 0) {
        uintptr_t start = fifo->position; /* a multiple of 8 */
        if (align > 8)
            start = (start + align - 1) & ~(uintptr_t)(align - 1);
        size_t rounded = (size + 7) & ~(size_t)7;
        /* Position and limit are both 0, or the limit is a multiple of `align` and not below
         * `start`. */
        if (__builtin_expect(rounded - 1 < fifo->limit - start &&
                                 __atomic_load_n(&fifo->owner, __ATOMIC_RELAXED) ==
                                     __builtin_thread_pointer(),
                             1)) {
            fifo->position = start + rounded;
            fifo->made++;
            return (void *)start;
        }
    }
    return cairn_fifo_alloc_slow(fifo, size, align);
}

static inline void cairn_fifo_free(cairn_fifo *fifo, void *pointer) CAIRN_NOEXCEPT
{
    if (pointer == NULL)
        return;
    uintptr_t address = (uintptr_t)pointer;
    struct cairn_fifo_group *group =
        (struct cairn_fifo_group *)(address & ~(CAIRN_FIFO_GROUP_BYTES - 1));
    if (__builtin_expect(__atomic_load_n(&fifo->owner, __ATOMIC_RELAXED) !=
                                 __builtin_thread_pointer() ||
                             group->tag != ((uintptr_t)fifo ^ (uintptr_t)group),
                         0)) {
        cairn_fifo_free_slow(fifo, pointer);
        return;
    }
    if (__builtin_expect(
            --group->live[address >> CAIRN_FIFO_PAGE_SHIFT & (CAIRN_FIFO_PAGES - 1)] <= 0, 0))
        cairn_fifo_end_page(fifo, pointer);
}

static inline void *cairn_fifo_alloc_zero(cairn_fifo *fifo, size_t size,
                                          size_t align) CAIRN_NOEXCEPT
{
    void *object = cairn_fifo_alloc(fifo, size, align);
    return object ? __builtin_memset(object, 0, size) : object;
}

static inline void *cairn_fifo_alloc_array(cairn_fifo *fifo, size_t count, size_t size,
                                           size_t align) CAIRN_NOEXCEPT
{
    return cairn_fifo_alloc(fifo, cairn_array_bytes(count, size), align);
}

static inline void *cairn_fifo_alloc_array_zero(cairn_fifo *fifo, size_t count, size_t size,
                                                size_t align) CAIRN_NOEXCEPT
{
    void *object = cairn_fifo_alloc_array(fifo, count, size, align);
    return object ? __builtin_memset(object, 0, count * size) : object;
}

#ifdef __cplusplus
}
#endif
#endif
