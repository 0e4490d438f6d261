/* First-class heaps: heaps beside the general one, each with its own memory, limit and statistics,
 * that end at once with all their blocks. A heap a tenant, a request, a plug-in, a test.
 *
 *     cairn_heap_options options = {.limit_bytes = (size_t)64 << 20};
 *     cairn_heap *heap = cairn_heap_new(&options);
 *     if (heap == NULL)
 *         return ENOMEM;
 *     struct session *session = cairn_heap_alloc_zero(heap, sizeof *session);
 *     …
 *     cairn_heap_delete(heap);             // whatever is still in use in it goes, too
 *
 * A block is a block like those of the general heap (cairn/heap.h): any thread frees it with
 * cairn_heap_free, cairn_free or, with libcairn-malloc, free; realloc and malloc_usable_size take
 * it too, and what realloc moves stays in its heap. Blocks of more than 8 bytes are aligned to 16.
 * Sizes are in bytes.
 *
 * Memory: a heap takes whole slabs (4 to 64 pages of blocks of one size) and whole pages for blocks
 * above 32 KiB, and gives them back when they are empty. So one that has a few blocks of many sizes
 * holds some hundred KiB; a heap itself takes about 6 KiB, which later heaps use again. The blocks
 * are counted in the process's statistics (cairn/stats.h), too. Option `sample` does not sample
 * them.
 *
 * Threads: all functions, any thread, several at once; only the end of a heap must have it alone:
 * no other thread may be within a call for it or within a free of one of its blocks. A signal
 * handler may call none of this. A function here takes the heap's lock, and a free takes none.
 * fork: the child has all heaps, whatever other threads were doing with them. A thread that
 * allocates from one while another thread forks waits, and so must not hold a lock that fork takes
 * (stdio's); nor does a handler of pthread_atfork allocate from one.
 *
 * Failure: NULL with errno ENOMEM, when memory is out or the limit is reached, and everything is as
 * it was. Success keeps errno, but for what an out-of-memory function does to it. Misuse ends the
 * process with one line on stderr (docs/MESSAGES.md): a heap that is used after its end, the block
 * of another heap, and whatever is misuse of a block of the general heap, so also a pointer into a
 * heap that has ended, unless its memory serves another block by then.
 *
 * Cost: an allocation up to 32 KiB two locked instructions and some tens of others, when no other
 * thread allocates from the heap just then; a free two locked instructions; the end in proportion
 * to the slabs and large blocks, not to the blocks. Threads that allocate much should not share a
 * heap: the general heap is faster.
 */
#ifndef CAIRN_HEAPS_H
#define CAIRN_HEAPS_H

#include <stdbool.h>
#include <stddef.h>

#include <cairn/allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Not "malloc": a block ends with its heap, too. */
#define CAIRN_HEAP_ALLOCATES(...) CAIRN_NOEXCEPT __attribute__((alloc_size(__VA_ARGS__)))

typedef struct cairn_heap cairn_heap;

/* All zero: no limit. */
typedef struct cairn_heap_options {
    /* The most that the heap may hold, in pages of slabs and large blocks; 0: no limit. */
    size_t limit_bytes;
    /* Called, with `context`, when an allocation of so many bytes fails: true to try again, after
     * it freed blocks, of this heap where its limit is the cause, or raised the limit. It is called
     * without a lock, may call everything, and must return (no longjmp, no exception). A request
     * asks at most CAIRN_HEAP_TRIES times, and one made within the function does not ask. It does
     * not free a block that is being reallocated. NULL: none. */
    bool (*out_of_memory)(void *context, size_t size);
    void *context;
} cairn_heap_options;
enum { CAIRN_HEAP_TRIES = 16 };

/* A heap; `options` may be NULL and is not needed afterwards. */
CAIRN_API CAIRN_NODISCARD cairn_heap *
cairn_heap_new(const cairn_heap_options *options) CAIRN_NOEXCEPT;

/* Ends the heap and all its blocks: 0. NULL gives 0. */
CAIRN_API int cairn_heap_delete(cairn_heap *heap) CAIRN_NOEXCEPT;

/* ---- blocks ------------------------------------------------------------------------------- */

/* A block of at least `size` bytes, contents undefined. Size 0 gives a block of its own, too. */
CAIRN_API CAIRN_NODISCARD void *cairn_heap_alloc(cairn_heap *heap, size_t size)
    CAIRN_HEAP_ALLOCATES(2);

/* The same, its first `size` bytes 0. */
CAIRN_API CAIRN_NODISCARD void *cairn_heap_alloc_zero(cairn_heap *heap, size_t size)
    CAIRN_HEAP_ALLOCATES(2);

/* The same for `count` times `size` bytes; a product that overflows fails. */
CAIRN_API CAIRN_NODISCARD void *cairn_heap_alloc_array(cairn_heap *heap, size_t count, size_t size)
    CAIRN_HEAP_ALLOCATES(2, 3);
CAIRN_API CAIRN_NODISCARD void *cairn_heap_alloc_array_zero(cairn_heap *heap, size_t count,
                                                            size_t size) CAIRN_HEAP_ALLOCATES(2, 3);

/* A block at a multiple of `align`, a power of two, else NULL with errno EINVAL. */
CAIRN_API CAIRN_NODISCARD void *cairn_heap_alloc_aligned(cairn_heap *heap, size_t size,
                                                         size_t align) CAIRN_HEAP_ALLOCATES(2);

/* The block, which must be the heap's, at a new size: in place where possible, else moved within
 * the heap. NULL as `pointer` allocates; size 0 counts as 1. On failure it stays as it was. */
CAIRN_API CAIRN_NODISCARD void *cairn_heap_realloc(cairn_heap *heap, void *pointer, size_t size)
    CAIRN_HEAP_ALLOCATES(3);

/* In place only: `pointer`, or NULL, and then the block is as it was, and so is errno. NULL as
 * `pointer` gives NULL; size 0 counts as 1. */
CAIRN_API void *cairn_heap_resize(cairn_heap *heap, void *pointer, size_t size) CAIRN_NOEXCEPT;

/* Gives the block back, which must be the heap's: that of another heap is misuse. cairn_free and
 * free take it as well, and ask for no heap. NULL is ignored. Keeps errno. */
CAIRN_API void cairn_heap_free(cairn_heap *heap, void *pointer) CAIRN_NOEXCEPT;

/* The heap that the block in use belongs to; NULL: the general heap, or `pointer` is NULL. What is
 * no block at all is misuse. */
CAIRN_API CAIRN_NODISCARD cairn_heap *cairn_heap_of(const void *pointer) CAIRN_NOEXCEPT;

/* ---- limit and statistics ----------------------------------------------------------------- */

/* A new limit; 0: none. Below what the heap holds, nothing happens but that it gets no more. */
CAIRN_API void cairn_heap_set_limit(cairn_heap *heap, size_t limit_bytes) CAIRN_NOEXCEPT;

/* Gives back what the heap keeps without need: slabs that are empty. */
CAIRN_API void cairn_heap_trim(cairn_heap *heap) CAIRN_NOEXCEPT;

/* One heap's; those of the whole process are cairn_heap_stats, in cairn/stats.h. Sizes of blocks
 * are those handed out, rounded up to their class or to pages. */
typedef struct cairn_heap_own_stats {
    size_t live_bytes;  /* in blocks in use */
    size_t live_blocks; /* so many */
    size_t large_bytes; /* of those, in blocks of pages: above 32 KiB */
    size_t large_blocks;
    size_t held_bytes;  /* pages of slabs and large blocks: what the limit counts */
    size_t peak_bytes;  /* the most that it held */
    size_t limit_bytes; /* 0: none */
    size_t refusals;    /* requests that the limit refused, those asked again among them */
} cairn_heap_own_stats;

/* Other threads may go on: then the numbers need not be of one instant. Cost: as that of
 * cairn_heap_read_stats, of this heap's blocks, with its lock. */
CAIRN_API void cairn_heap_read_own_stats(cairn_heap *heap,
                                         cairn_heap_own_stats *stats) CAIRN_NOEXCEPT;

/* See cairn/allocator.h. As long-lived as the heap. */
CAIRN_API CAIRN_NODISCARD cairn_allocator cairn_heap_own_allocator(cairn_heap *heap) CAIRN_NOEXCEPT;

#undef CAIRN_HEAP_ALLOCATES

#ifdef __cplusplus
}
#endif
#endif
