/* Private heaps: heaps that a program creates next to the heap of the process.
 *
 * Each private heap has its own memory, limit and statistics, and one call ends it with all its
 * blocks. The term is that of Windows' HeapCreate. Give one to each tenant, request, plug-in or
 * test.
 *
 * Use a private heap
 *  - to limit or measure the memory of one part of a program;
 *  - to release many blocks at once without freeing each one;
 *  - to keep long-lived blocks off the pages of short-lived ones.
 *
 * Do not use one
 *  - that many threads allocate from at a high rate: each allocation takes the heap's lock, and
 *    cairn_malloc (cairn/heap.h) takes none;
 *  - for a handful of blocks of many sizes: a heap holds at least one slab (4 to 256 KiB) for each
 *    size class in use, which adds up to some hundred KiB. The heap itself takes about 6 KiB;
 *  - where the blocks end in the reverse order of their allocation: cairn/stack.h is faster.
 *
 * Example:
 *
 *     #include <cairn/private_heap.h>
 *     #include <stdio.h>
 *
 *     struct session {
 *         unsigned requests;
 *         char name[24];
 *     };
 *
 *     int serve(const char *name)
 *     {
 *         cairn_private_heap_options options = {.limit_bytes = (size_t)64 << 20};
 *         cairn_private_heap *heap = cairn_private_heap_new(&options);
 *         if (heap == NULL)
 *             return -1;
 *         struct session *session = cairn_private_heap_alloc_zero(heap, sizeof *session);
 *         if (session != NULL)
 *             snprintf(session->name, sizeof session->name, "%s", name);
 *         return cairn_private_heap_delete(heap); // releases the session, too
 *     }
 *
 * Blocks: any thread may free a block, with cairn_private_heap_free, cairn_free or, in a program
 * that runs on libcairn-malloc, free. realloc and malloc_usable_size accept these blocks; realloc
 * keeps a block in its heap. Blocks of more than 8 bytes are aligned to 16, smaller ones to 8.
 * Sizes are in bytes.
 *
 * Memory: a heap takes whole slabs, each of 4 to 256 KiB for blocks of one size, and whole pages
 * for blocks above 32 KiB. The heap returns them to the process when they are empty. The statistics
 * of the process (cairn/stats.h) include the blocks of all private heaps.
 *
 * Threads: unless a function says otherwise, any thread may call any function at any time, and
 * several threads may call at once. Calls take the heap's lock; frees take none.
 *
 * Failure: functions that allocate return NULL with errno ENOMEM when memory is out or the limit is
 * reached, and change nothing. Success keeps errno, unless an out-of-memory function changes it.
 *
 * Cost: an allocation of up to 32 KiB takes two locked instructions and some tens of others if no
 * other thread allocates from the heap at that moment. A free takes two locked instructions.
 *
 * Caveats:
 *  - No signal handler may call a function of this header.
 *  - Misuse ends the process with one line on stderr (docs/reference/MESSAGES.md): use of a heap
 *    after its deletion, a block of another heap, and every invalid free that cairn_free reports.
 *    A pointer into a deleted heap is reported unless its memory already serves another block.
 *  - A child of fork has all heaps with their blocks. A thread that allocates while another thread
 *    forks waits for the fork, so it must not hold a lock that fork takes (stdio's). A handler of
 *    pthread_atfork must not allocate from a private heap.
 *  - The option `guard` does not guard blocks of private heaps, and the profiler does not see them.
 */
#ifndef CAIRN_PRIVATE_HEAP_H
#define CAIRN_PRIVATE_HEAP_H

#include <stdbool.h>
#include <stddef.h>

#include <cairn/allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Not "malloc": a block ends with its heap, too. This macro is not for direct use. */
#define CAIRN_PRIVATE_HEAP_ALLOCATES(...) CAIRN_NOEXCEPT __attribute__((alloc_size(__VA_ARGS__)))

/* A private heap. The pointer is a handle: it does not point to memory that can be read. */
typedef struct cairn_private_heap cairn_private_heap;

/* Options of cairn_private_heap_new. All zero: no limit, no function. */
typedef struct cairn_private_heap_options {
    /* The most bytes that the heap may hold in pages of slabs and large blocks. 0: no limit. */
    size_t limit_bytes;
    /* Called with `context` when an allocation of `size` bytes fails; NULL: none. Return true to
     * try again after freeing blocks (of this heap if its limit is the cause) or raising the limit.
     * The function runs without a lock and may call every function of Cairn. The function must
     * return, without longjmp or an exception, and must not free a block that is being reallocated.
     * One request calls it at most CAIRN_PRIVATE_HEAP_TRIES times; requests made within it never
     * call it. */
    bool (*out_of_memory)(void *context, size_t size);
    void *context;
} cairn_private_heap_options;
enum { CAIRN_PRIVATE_HEAP_TRIES = 16 };

/* Creates a heap without blocks. `options` may be NULL and is not used after the call.
 * Returns: the heap, or NULL with errno ENOMEM. */
CAIRN_API CAIRN_NODISCARD cairn_private_heap *
cairn_private_heap_new(const cairn_private_heap_options *options) CAIRN_NOEXCEPT;

/* Ends the heap and releases all its blocks, those in use as well. NULL is ignored.
 * Returns: 0.
 * Threads: no other thread may use the heap or free one of its blocks during the call or later.
 * Cost: proportional to the number of slabs and large blocks, not to the number of blocks. */
CAIRN_API int cairn_private_heap_delete(cairn_private_heap *heap) CAIRN_NOEXCEPT;

/* ---- blocks ------------------------------------------------------------------------------- */

/* Allocates a block of at least `size` bytes with undefined contents. A size of 0 gives a
 * distinct block, too.
 * Returns: the block, or NULL with errno ENOMEM. */
CAIRN_API CAIRN_NODISCARD void *cairn_private_heap_alloc(cairn_private_heap *heap, size_t size)
    CAIRN_PRIVATE_HEAP_ALLOCATES(2);

/* Allocates a block of at least `size` bytes and sets the first `size` bytes to 0.
 * Returns: the block, or NULL with errno ENOMEM. */
CAIRN_API CAIRN_NODISCARD void *cairn_private_heap_alloc_zero(cairn_private_heap *heap, size_t size)
    CAIRN_PRIVATE_HEAP_ALLOCATES(2);

/* Allocates an array of `count` elements of `size` bytes each with undefined contents.
 * Returns: the array, or NULL with errno ENOMEM, also when the product overflows. */
CAIRN_API CAIRN_NODISCARD void *cairn_private_heap_alloc_array(cairn_private_heap *heap,
                                                               size_t count, size_t size)
    CAIRN_PRIVATE_HEAP_ALLOCATES(2, 3);

/* Allocates an array of `count` elements of `size` bytes each and sets all of them to 0.
 * Returns: the array, or NULL with errno ENOMEM, also when the product overflows. */
CAIRN_API CAIRN_NODISCARD void *cairn_private_heap_alloc_array_zero(cairn_private_heap *heap,
                                                                    size_t count, size_t size)
    CAIRN_PRIVATE_HEAP_ALLOCATES(2, 3);

/* Allocates a block of at least `size` bytes at a multiple of `align` bytes, a power of two.
 * Returns: the block, or NULL with errno ENOMEM; NULL with EINVAL if `align` is no power of two. */
CAIRN_API CAIRN_NODISCARD void *cairn_private_heap_alloc_aligned(cairn_private_heap *heap,
                                                                 size_t size, size_t align)
    CAIRN_PRIVATE_HEAP_ALLOCATES(2);

/* Changes the size of a block of this heap to `size` bytes, in place if possible, else by moving it
 * within the heap. Size 0 counts as 1. With `pointer` NULL it allocates.
 * Returns: the block, or NULL with errno ENOMEM; then the old block is unchanged. */
CAIRN_API CAIRN_NODISCARD void *cairn_private_heap_realloc(cairn_private_heap *heap, void *pointer,
                                                           size_t size)
    CAIRN_PRIVATE_HEAP_ALLOCATES(3);

/* Changes the size of a block of this heap to `size` bytes without moving it. Size 0 counts as 1.
 * Returns: `pointer`, or NULL if the block has to move or `pointer` is NULL; then the block and
 * errno are unchanged. */
CAIRN_API void *cairn_private_heap_resize(cairn_private_heap *heap, void *pointer,
                                          size_t size) CAIRN_NOEXCEPT;

/* Frees a block of this heap. A block of another heap is misuse; cairn_free frees blocks of every
 * heap. NULL is ignored. Keeps errno. */
CAIRN_API void cairn_private_heap_free(cairn_private_heap *heap, void *pointer) CAIRN_NOEXCEPT;

/* Finds the private heap of a block in use. A pointer that is no block is misuse.
 * Returns: the heap, or NULL if the block belongs to the heap of the process or `pointer` is NULL.
 */
CAIRN_API CAIRN_NODISCARD cairn_private_heap *
cairn_private_heap_of(const void *pointer) CAIRN_NOEXCEPT;

/* ---- limit and statistics ----------------------------------------------------------------- */

/* Sets the limit of the heap to `limit_bytes`; 0: no limit. If the heap already holds more, its
 * blocks stay valid and requests that need more pages fail. */
CAIRN_API void cairn_private_heap_set_limit(cairn_private_heap *heap,
                                            size_t limit_bytes) CAIRN_NOEXCEPT;

/* Returns the empty slabs of the heap to the process, whose heap decides when the system gets the
 * memory (docs/reference/OPTIONS.md, decay_ms). */
CAIRN_API void cairn_private_heap_trim(cairn_private_heap *heap) CAIRN_NOEXCEPT;

/* Statistics of one private heap. Block sizes are those handed out: rounded up to a size class or
 * to whole pages. */
typedef struct cairn_private_heap_stats {
    size_t live_bytes;   /* in blocks in use */
    size_t live_blocks;  /* blocks in use */
    size_t large_bytes;  /* part of live_bytes in blocks above 32 KiB */
    size_t large_blocks; /* part of live_blocks above 32 KiB */
    size_t held_bytes;   /* pages of slabs and large blocks: the limit bounds this number */
    size_t peak_bytes;   /* the largest held_bytes so far */
    size_t limit_bytes;  /* 0: none */
    size_t refusals;     /* requests that the limit refused; each further try counts again */
} cairn_private_heap_stats;

/* Fills *stats. If other threads use the heap meanwhile, the numbers may be of different instants.
 * Cost: visits each slab and each large block of the heap with the heap's lock held: about 5 ms for
 * a million small blocks. */
CAIRN_API void cairn_private_heap_read_stats(cairn_private_heap *heap,
                                             cairn_private_heap_stats *stats) CAIRN_NOEXCEPT;

/* Makes a cairn_allocator (cairn/allocator.h) that allocates from this heap. The cairn_allocator is
 * valid until the heap is deleted. */
CAIRN_API CAIRN_NODISCARD cairn_allocator cairn_private_heap_allocator(cairn_private_heap *heap)
    CAIRN_NOEXCEPT;

#undef CAIRN_PRIVATE_HEAP_ALLOCATES

#ifdef __cplusplus
}
#endif
#endif
