/* FIFO allocator: for objects that end roughly in the order in which they were made.
 *
 * Use a FIFO for queued messages, requests in flight and other objects of many sizes with similar
 * lifetimes. An allocation moves a position and a free decrements a count: objects have no headers,
 * and a free does not touch the object. Any order of frees is correct; the closer it is to first
 * in, first out, the less memory the FIFO holds.
 *
 * Do not use a FIFO for objects of which many live much longer than the rest. If all objects have
 * one size, cairn/pool.h is better; if they end together with a frame that one thread makes, use
 * cairn/ring.h.
 *
 * Example:
 *
 *     #include <cairn/fifo.h>
 *
 *     struct message {
 *         unsigned number;
 *     };
 *
 *     int send(void (*deliver)(const struct message *message))
 *     {
 *         cairn_fifo *fifo = cairn_fifo_new(NULL);
 *         if (fifo == NULL)
 *             return -1;
 *         struct message *message =
 *             cairn_fifo_alloc(fifo, sizeof *message, _Alignof(struct message));
 *         if (message != NULL) {
 *             message->number = 1;
 *             deliver(message);
 *             cairn_fifo_free(fifo, message);
 *         }
 *         return cairn_fifo_delete(fifo);
 *     }
 *
 * Algorithm: segments of 64 KiB are filled from start to end. Each page of a segment has a count of
 * the live objects that begin in it. The counts are in a page at the start of the 2 MiB group of
 * the segment, where masking an address finds them. An emptied segment is the next one to be
 * filled, as long as it is in cache. This is region allocation with live counts; freeing linear
 * pages once all of their content has ended comes from Intersec's FIFO pools.
 *
 * Memory: an object takes its size rounded up to a multiple of 8. Above 16 KiB it takes whole
 * pages; above 1 MiB, or with an alignment above a page, a mapping of its own. A few survivors do
 * not hold a whole segment: its pages without live objects return to the system once the FIFO has
 * moved on. Empty segments that were not needed for half a second return to the system, too; the
 * clock is read when segments change.
 *
 * Threads: a FIFO belongs to the thread that made it or adopted it last. Only this thread may call
 * its functions. With `any_thread_free` other threads may free objects, too.
 *
 * Failure: functions that allocate return NULL with errno ENOMEM and change nothing, also for
 * alignments above 2 MiB; EINVAL if an alignment is no power of two.
 *
 * Cost: about a nanosecond for an allocation or a free, inline. A free by another thread takes one
 * atomic operation.
 *
 * Caveats:
 *  - No signal handler may call a function of this header.
 *  - Misuse ends the process with one line (docs/reference/MESSAGES.md) in all builds: use by a
 *    thread that is not the owner, allocation after the close, use after the end as long as no
 *    other FIFO has taken the place, a pointer into a group of another FIFO, more frees in a page
 *    than it has objects.
 *  - A double free is not reported while its page has other live objects; it then counts as the
 *    free of one of them. A double free of the only object of a page is reported when the page is
 *    full, or by trim, read_stats, delete or close.
 *  - A free reads the start of the 2 MiB group around the pointer. If the pointer belongs to no
 *    FIFO, this read may end in SIGSEGV.
 *  - Debug builds, and all builds under AddressSanitizer or Valgrind, find every double free, every
 *    write outside of an object and, on the owner's thread, every foreign pointer.
 *  - A child of fork owns the FIFOs of the forking thread. Frees that other threads were executing
 *    at that moment may be lost in the child: these objects stay, and so does their FIFO when it is
 *    closed.
 *  - An idle FIFO keeps its memory until cairn_fifo_trim.
 */
#ifndef CAIRN_FIFO_H
#define CAIRN_FIFO_H

#include <cairn/allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A FIFO. */
typedef struct cairn_fifo cairn_fifo;

/* Options of cairn_fifo_new. All zero: no limit, frees by the owner only. */
typedef struct cairn_fifo_options {
    size_t max_bytes; /* the most memory for live and dead objects, in whole segments of 64
                         KiB; 0: no limit; less than one segment: EINVAL */
    const char *name; /* for messages, at most 23 bytes are kept; NULL: "fifo" */
    bool any_thread_free; /* any thread may free */
    /* Called when there is no memory for an object of `size_bytes`, or `max_bytes` is reached;
     * NULL: none. The function returns true to try again after it has freed objects or other
     * memory. The function must not allocate in, close or delete this FIFO, and must return,
     * without longjmp or an exception.
     */
    bool (*out_of_memory)(void *context, size_t size_bytes);
    void *out_of_memory_context;
} cairn_fifo_options;

/* Statistics of one FIFO. */
typedef struct cairn_fifo_stats {
    size_t segment_bytes;  /* segments and mappings with live objects, and the one being filled */
    size_t spare_bytes;    /* empty segments that have memory */
    size_t reserved_bytes; /* address space */
    size_t returned_bytes; /* part of segment_bytes: pages without live objects, returned to the
                              system */
} cairn_fifo_stats;

/* Creates a FIFO that the calling thread owns. `options` may be NULL.
 * Returns: the FIFO, or NULL with errno ENOMEM or EINVAL. */
CAIRN_API CAIRN_NODISCARD cairn_fifo *
cairn_fifo_new(const cairn_fifo_options *options) CAIRN_NOEXCEPT;

/* Ends a FIFO without live objects. NULL is ignored. Live objects may be on their way to another
 * thread, so the FIFO keeps them; after cairn_fifo_close it ends with the last free.
 * Returns: 0; EBUSY if it has live objects, then nothing has changed. */
CAIRN_API int cairn_fifo_delete(cairn_fifo *fifo) CAIRN_NOEXCEPT;

/* Ends the FIFO with its last free, at once if it has no objects. From now on it accepts frees and
 * nothing else; without `any_thread_free` it may also be adopted. NULL is ignored. */
CAIRN_API void cairn_fifo_close(cairn_fifo *fifo) CAIRN_NOEXCEPT;

/* Changes the size of an object from `old_size` to `new_size` bytes: in place if it is the newest
 * object, else by moving it. `align` is the alignment of the object. With `pointer` NULL it
 * allocates.
 * Returns: the object, or NULL with errno ENOMEM; then the old object is unchanged. */
CAIRN_API CAIRN_NODISCARD void *cairn_fifo_realloc(cairn_fifo *fifo, void *pointer, size_t old_size,
                                                   size_t new_size, size_t align) CAIRN_NOEXCEPT;

/* Returns to the system all empty segments except `keep_bytes` of them, and all pages without live
 * objects of the other segments.
 * Returns: the number of bytes returned to the system. */
CAIRN_API size_t cairn_fifo_trim(cairn_fifo *fifo, size_t keep_bytes) CAIRN_NOEXCEPT;

/* Makes the calling thread the owner of the FIFO. The previous owner must have stopped using it,
 * and the program must order the two, as a queue or a mutex does. */
CAIRN_API void cairn_fifo_adopt(cairn_fifo *fifo) CAIRN_NOEXCEPT;

/* Fills *stats. */
CAIRN_API void cairn_fifo_read_stats(const cairn_fifo *fifo,
                                     cairn_fifo_stats *stats) CAIRN_NOEXCEPT;

/* Makes a cairn_allocator (cairn/allocator.h) that allocates in this FIFO. The cairn_allocator is
 * valid until the FIFO ends.
 * Threads: any thread. */
CAIRN_API CAIRN_NODISCARD cairn_allocator
cairn_fifo_allocator(cairn_fifo *fifo) CAIRN_NOEXCEPT;

/* Allocates an object of `size` bytes at a multiple of `align` bytes, a power of two up to 2 MiB,
 * with undefined contents. A size of 0 counts as 1.
 * Returns: the object, or NULL with errno ENOMEM or EINVAL.
 * Cost: about a nanosecond; inline if `align` is a constant. */
CAIRN_NODISCARD static inline void *cairn_fifo_alloc(cairn_fifo *fifo, size_t size,
                                                     size_t align) CAIRN_NOEXCEPT;

/* Ends an object of this FIFO. NULL is ignored. Keeps errno.
 * Threads: the owner; with `any_thread_free` any thread.
 * Cost: about a nanosecond; more if a page or segment ends with it. */
static inline void cairn_fifo_free(cairn_fifo *fifo, void *pointer) CAIRN_NOEXCEPT;

/* Allocates an object of `size` bytes at a multiple of `align` bytes and sets it to 0.
 * Returns: the object, or NULL with errno ENOMEM or EINVAL. */
CAIRN_NODISCARD static inline void *cairn_fifo_alloc_zero(cairn_fifo *fifo, size_t size,
                                                          size_t align) CAIRN_NOEXCEPT;

/* Allocates an array of `count` elements of `size` bytes each, at a multiple of `align` bytes, with
 * undefined contents.
 * Returns: the array, or NULL with errno ENOMEM or EINVAL; ENOMEM also if the product overflows. */
CAIRN_NODISCARD static inline void *cairn_fifo_alloc_array(cairn_fifo *fifo, size_t count,
                                                           size_t size,
                                                           size_t align) CAIRN_NOEXCEPT;

/* Allocates an array of `count` elements of `size` bytes each, at a multiple of `align` bytes, and
 * sets it to 0.
 * Returns: the array, or NULL with errno ENOMEM or EINVAL; ENOMEM also if the product overflows. */
CAIRN_NODISCARD static inline void *cairn_fifo_alloc_array_zero(cairn_fifo *fifo, size_t count,
                                                                size_t size,
                                                                size_t align) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#include <cairn/detail/fifo.h> /* the bodies of the inline functions */
#endif
