/* FIFO allocator: for objects that die about in the order in which they were made, such as queued
 * messages.
 *
 * Allocation moves a position, free decrements a count: no header an object, no list, nothing of
 * the object is touched. Any order of frees is right; the nearer to first in, first out, the less
 * memory is held.
 *
 *     cairn_fifo *fifo = cairn_fifo_new(NULL);
 *     if (fifo == NULL)
 *         return false;
 *     struct message *message = cairn_fifo_alloc(fifo, sizeof *message, _Alignof(struct message));
 *     if (message != NULL)
 *         message->number = 1;
 *     …
 *     cairn_fifo_free(fifo, message);
 *     cairn_fifo_close(fifo);
 *
 * Algorithm: segments of 64 KiB are filled from start to end; each page of one has a count of live
 * objects that began in it, kept in a page at the start of the 2 MiB group in which the segment
 * lies, where a mask of the address finds it. An emptied segment is the next to be filled, while it
 * is in cache. Region allocation with live counts; the idea of linear pages freed when all their
 * content is comes from Intersec's FIFO pools.
 *
 * Memory: an object costs its size rounded up to a multiple of 8; above 16 KiB whole pages, one
 * object behind the other; above 1 MiB, or aligned to more than a page, a mapping of its own. A few
 * survivors do not hold their segment: once the others have moved on, its wholly dead pages go back
 * to the system. Empty segments that were not needed for half a second go back, too; the clock is
 * looked at when segments change. cairn_fifo_trim gives back at once. An idle FIFO keeps what it
 * has.
 *
 * Threads: a FIFO belongs to the thread that made it, or adopted it last; with `any_thread_free`
 * other threads may free, which costs them one atomic operation, and the owner collects as it
 * allocates. A signal handler may call none of this. Fork: the child's thread owns the FIFOs that
 * it owned in the parent. Frees that other threads were doing at the time of the fork may be lost
 * in the child: their objects stay, and so does, when it is closed, their FIFO.
 *
 * Failure: NULL with errno ENOMEM, and everything stays as it was; also for alignments above 2 MiB.
 * EINVAL for an alignment that is no power of two. Misuse dies with one line
 * (docs/MESSAGES-frame.md), always: a thread that does not own it, allocation after the close, any
 * use after its end while its memory does not serve another FIFO, a pointer that is not the FIFO's
 * as far as its group tells, a free more than a page has objects. Debug builds, and every build
 * under AddressSanitizer or Valgrind, find every double free and every write outside of an object.
 */
#ifndef CAIRN_FIFO_H
#define CAIRN_FIFO_H

#include <cairn/allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CAIRN_FIFO_GROUP_BYTES  ((uintptr_t)1 << 21)
#define CAIRN_FIFO_PAGE_SHIFT   12
#define CAIRN_FIFO_PAGES        512
#define CAIRN_FIFO_INLINE_ALIGN 4096

/* The part of a FIFO that the inline functions work on; not for other use. Owner thread writes all
 * of it. */
typedef struct cairn_fifo {
    uintptr_t position; /* next free byte, a multiple of 8; 0 while every allocation takes the slow
                           path */
    uintptr_t limit;    /* end of the current page; 0 likewise */
    void *owner;        /* atomic: its thread pointer; NULL while every free takes the slow path */
    uint64_t made;      /* objects begun in the current page */
} cairn_fifo;

/* The start of a group. */
struct cairn_fifo_group {
    uintptr_t tag; /* const while in use: address of the FIFO, exclusive or that of the group */
    int32_t live[CAIRN_FIFO_PAGES]; /* owner: live objects that began in each page; the current page
                                       has a bias */
};

typedef struct cairn_fifo_options {
    size_t max_bytes; /* most that live and dead objects may hold, in whole segments of 64 KiB; 0:
                         no limit; less than one segment: EINVAL */
    const char *name; /* for messages, at most 23 bytes are kept; NULL: "fifo" */
    bool any_thread_free; /* any thread may free */
    /* Called when there is no memory for an object of so many bytes, or `max_bytes` is reached:
     * true to try again, after it freed objects or made memory free elsewhere. It must not allocate
     * in, close or delete this FIFO, and must return. NULL: none. */
    bool (*out_of_memory)(void *context, size_t size_bytes);
    void *out_of_memory_context;
} cairn_fifo_options;

typedef struct cairn_fifo_stats {
    size_t segment_bytes;  /* in segments and mappings that hold live objects or are being filled */
    size_t spare_bytes;    /* in empty segments that have memory */
    size_t reserved_bytes; /* of address space */
    size_t returned_bytes; /* of segment_bytes: dead pages that went back from under survivors */
} cairn_fifo_stats;

/* A new FIFO, owned by the calling thread. NULL as `options` is all zero. NULL with ENOMEM or
 * EINVAL. */
CAIRN_API CAIRN_NODISCARD cairn_fifo *
cairn_fifo_new(const cairn_fifo_options *options) CAIRN_NOEXCEPT;

/* Ends the FIFO: 0; or EBUSY when it has live objects, and then nothing happened. NULL gives 0. */
CAIRN_API int cairn_fifo_delete(cairn_fifo *fifo) CAIRN_NOEXCEPT;

/* Ends the FIFO with its last free, at once if there is no object. From now on it takes frees and
 * nothing else, but for an adoption without `any_thread_free`. NULL is ignored. */
CAIRN_API void cairn_fifo_close(cairn_fifo *fifo) CAIRN_NOEXCEPT;

/* The object at a new size: in place when it is the newest, else moved. `align` is that of the
 * object. NULL as `pointer` allocates. On failure the object stays as it was. */
CAIRN_API CAIRN_NODISCARD void *cairn_fifo_realloc(cairn_fifo *fifo, void *pointer, size_t old_size,
                                                   size_t new_size, size_t align) CAIRN_NOEXCEPT;

/* Gives all empty segments but `keep_bytes` back, and the dead pages of all others; returns how
 * many bytes went. */
CAIRN_API size_t cairn_fifo_trim(cairn_fifo *fifo, size_t keep_bytes) CAIRN_NOEXCEPT;

/* The calling thread owns the FIFO from now on. The last owner must have stopped using it before.
 */
CAIRN_API void cairn_fifo_adopt(cairn_fifo *fifo) CAIRN_NOEXCEPT;

CAIRN_API void cairn_fifo_read_stats(const cairn_fifo *fifo,
                                     cairn_fifo_stats *stats) CAIRN_NOEXCEPT;

/* Any thread may make it. */
CAIRN_API CAIRN_NODISCARD cairn_allocator
cairn_fifo_allocator(cairn_fifo *fifo) CAIRN_NOEXCEPT;

/* The slow halves of the inline functions; the first two are complete in themselves. */
CAIRN_API CAIRN_NODISCARD void *cairn_fifo_alloc_slow(cairn_fifo *fifo, size_t size,
                                                      size_t align) CAIRN_NOEXCEPT;
CAIRN_API void cairn_fifo_free_slow(cairn_fifo *fifo, void *pointer) CAIRN_NOEXCEPT;
CAIRN_API void cairn_fifo_end_page(cairn_fifo *fifo, void *pointer) CAIRN_NOEXCEPT;

/* An object; size 0 counts as 1. Contents are undefined. Alignment: a power of two to 2 MiB. About
 * a nanosecond; inline when `align` is a constant. */
CAIRN_NODISCARD static inline void *cairn_fifo_alloc(cairn_fifo *fifo, size_t size,
                                                     size_t align) CAIRN_NOEXCEPT
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

/* Ends an object of this FIFO. NULL is ignored. About a nanosecond; more when a page or segment
 * ends with it. */
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

/* The same, all zero. */
CAIRN_NODISCARD static inline void *cairn_fifo_alloc_zero(cairn_fifo *fifo, size_t size,
                                                          size_t align) CAIRN_NOEXCEPT
{
    void *object = cairn_fifo_alloc(fifo, size, align);
    return object ? __builtin_memset(object, 0, size) : object;
}

/* The same for `count` elements of `size` bytes; a product that overflows fails with ENOMEM. */
CAIRN_NODISCARD static inline void *cairn_fifo_alloc_array(cairn_fifo *fifo, size_t count,
                                                           size_t size, size_t align) CAIRN_NOEXCEPT
{
    return cairn_fifo_alloc(fifo, cairn_array_bytes(count, size), align);
}

CAIRN_NODISCARD static inline void *cairn_fifo_alloc_array_zero(cairn_fifo *fifo, size_t count,
                                                                size_t size,
                                                                size_t align) CAIRN_NOEXCEPT
{
    void *object = cairn_fifo_alloc_array(fifo, count, size, align);
    return object ? __builtin_memset(object, 0, count * size) : object;
}

#ifdef __cplusplus
}
#endif
#endif
