/* TLSF: an allocator for real-time use, over memory that the caller provides.
 *
 * An allocation or a free takes a bounded number of instructions, whatever the state of the heap.
 * There is no system call, no lock and no libc, so the code also runs without an operating system.
 *
 * Use TLSF where the worst case of a call matters more than its average, on memory of a fixed size,
 * or in shared or special memory. Do not use TLSF as a general heap: cairn_malloc (cairn/heap.h) is
 * faster on average and detects more misuse.
 *
 * Example:
 *
 *     #include <cairn/tlsf.h>
 *
 *     static _Alignas(64) char memory[1 << 20];
 *
 *     int run(void (*work)(void *message, size_t size))
 *     {
 *         cairn_tlsf *heap = cairn_tlsf_init(memory, sizeof memory);
 *         if (heap == NULL)
 *             return -1;
 *         void *message = cairn_tlsf_alloc(heap, 1000);
 *         if (message == NULL)
 *             return -1;
 *         work(message, cairn_tlsf_usable(heap, message));
 *         cairn_tlsf_free(heap, message);
 *         return 0;
 *     }
 *
 * Algorithm: Masmano, Ripoll, Crespo and Real, "TLSF: a New Dynamic Memory Allocator for Real-Time
 * Systems", ECRTS 2004. Free blocks are divided and merged at once. This implementation has 32
 * second-level classes and looks at the first four blocks of the request's own class before it
 * divides a larger block. A heap stores offsets instead of pointers, so it can be mapped at another
 * address if its regions keep their distances.
 *
 * Memory: blocks are aligned to 16 bytes or as requested. A block has a header of 8 bytes; header
 * and contents together are a multiple of 16 bytes, with at least 24 usable ones.
 *
 * Threads: a heap is used by one thread at a time; the program must order the calls of different
 * threads. The functions cairn_tlsf_shared_... take a lock, and any thread may call them at any
 * time.
 *
 * Failure: functions that allocate return NULL with errno ENOMEM and change nothing. Without libc
 * there is no errno. Success keeps errno, unless an out-of-memory function changes it.
 *
 * Cost: at most CAIRN_TLSF_ALLOC_INSTRUCTIONS for an allocation and CAIRN_TLSF_FREE_INSTRUCTIONS
 * for a free; the common cases take a third.
 *  - With several regions, functions that take a block (free, realloc, resize, usable) take
 *    CAIRN_TLSF_REGION_INSTRUCTIONS more for each region.
 *  - realloc in place costs as much as a free and an alloc. A realloc that moves the block also
 *    copies it, and functions with _zero also clear it.
 *  - tlsf_cost_test measures these bounds by single steps through the worst cases.
 *  - walk, check, add and remove are not for real-time use.
 *
 * Without libc: compile src/region/tlsf*.c and src/base/check.c with -ffreestanding. Provide
 * host_write_error, host_abort, host_note_no_memory and host_note_invalid (src/base/host.h), and
 * memcpy, memmove and memset, which compilers require. dev/check_freestanding.sh does this.
 * cairn_tlsf_new, the functions with a lock and the cairn_allocator are not available then.
 *
 * Caveats:
 *  - A signal handler may call all functions except cairn_tlsf_new and cairn_tlsf_delete on a heap
 *    that the interrupted code cannot be using, and none on a shared heap.
 *  - Misuse ends the process with one line on stderr (docs/reference/MESSAGES.md), found in
 *    constant time: a second free, a pointer that is no block of the heap, a block that was overrun
 *    (when it or its neighbour is freed), a write into freed memory that hit the links of the heap,
 *    use of a sharing that has ended. Detection uses a tag of 24 bits in each header, so one
 *    accident in 16 million passes.
 *  - Not detected: concurrent use of a heap that is not shared, and use of a heap after its end.
 *    The memory of a heap of cairn_tlsf_new is unmapped then, so a use faults until something else
 *    is mapped there.
 *  - With several regions, a damaged link that leads into the gap between two of them faults.
 *  - fork copies a heap in private memory like all memory. Neither the forking thread (in a signal
 *    handler) nor another thread may be inside a call at that moment. For shared heaps, fork takes
 *    the lock.
 */
#ifndef CAIRN_TLSF_H
#define CAIRN_TLSF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cairn/allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Not "malloc": the memory is also the caller's under its own name. This macro is not for direct
 * use. */
#define CAIRN_TLSF_ALLOCATES(...) CAIRN_NOEXCEPT __attribute__((alloc_size(__VA_ARGS__)))

/* A heap; the structure is at the start of its memory. */
typedef struct cairn_tlsf cairn_tlsf;

/* Bounds in instructions and overheads in bytes. */
enum {
    /* Worst cases in machine instructions on x86-64 with gcc 12 and -O3. Counted were 496 and
     * 237; random allocations of 16 to 4096 bytes took at most 218. */
    CAIRN_TLSF_ALLOC_INSTRUCTIONS = 520,
    CAIRN_TLSF_FREE_INSTRUCTIONS = 250,
    CAIRN_TLSF_REGION_INSTRUCTIONS = 12,

    /* The overhead of each region and of each block. The heap itself takes
     * cairn_tlsf_control_bytes. */
    CAIRN_TLSF_REGION_OVERHEAD_BYTES = 32, /* plus the alignment to 16 */
    CAIRN_TLSF_BLOCK_OVERHEAD_BYTES = 8,
    CAIRN_TLSF_BLOCK_MIN_BYTES = 24, /* usable, of the smallest block; others: 16 n + 8 */
    CAIRN_TLSF_ALIGNMENT_BYTES = 16, /* of every block */
};

/* ---- the heap and its memory -------------------------------------------------------------- */

/* Creates a heap over `size` bytes at `memory`, of any alignment. The heap takes its own structure
 * from them. The memory must exist as long as the heap; there is nothing to end except a sharing.
 * Returns: the heap; NULL with errno EINVAL if the structure does not fit.
 * Cost: constant. The call touches the structure and the ends of the memory only. */
CAIRN_API CAIRN_NODISCARD cairn_tlsf *cairn_tlsf_init(void *memory, size_t size) CAIRN_NOEXCEPT;

/* Creates a heap as cairn_tlsf_init does, prepared for regions of up to `largest_region` bytes that
 * are added later.
 * Returns: the heap; NULL with errno EINVAL if the structure does not fit. */
CAIRN_API CAIRN_NODISCARD cairn_tlsf *cairn_tlsf_init_for(void *memory, size_t size,
                                                          size_t largest_region) CAIRN_NOEXCEPT;

/* Returns: the bytes of the structure of a heap over `size` bytes with regions of up to
 * `largest_region` bytes (0: none): 256, and 256 for each power of two from 512 to the largest
 * block; 3.25 KiB for 1 MiB. */
CAIRN_API size_t cairn_tlsf_control_bytes(size_t size, size_t largest_region) CAIRN_NOEXCEPT;

/* Returns: the bytes of memory, at a multiple of 64, for a heap with room for one block of
 * `capacity` bytes, or for several blocks if each counts 16 bytes more. 0 if no heap is that
 * large. */
CAIRN_API size_t cairn_tlsf_bytes_for(size_t capacity) CAIRN_NOEXCEPT;

/* Creates a heap of a fixed size over a mapping of its own, with room for one block of at least
 * `capacity` bytes; 0 stands for CAIRN_TLSF_NEW_BYTES. From 2 MiB on it requests transparent huge
 * pages.
 * Returns: the heap, or NULL with errno ENOMEM. */
CAIRN_API CAIRN_NODISCARD cairn_tlsf *cairn_tlsf_new(size_t capacity) CAIRN_NOEXCEPT;
enum { CAIRN_TLSF_NEW_BYTES = 1 << 20 };

/* Ends a heap of cairn_tlsf_new and all its blocks. NULL is ignored.
 * Returns: 0; EBUSY while it is shared, then nothing has changed. */
CAIRN_API int cairn_tlsf_delete(cairn_tlsf *heap) CAIRN_NOEXCEPT;

/* Adds a region of `size` bytes at `memory`, at any address, to the heap.
 * Returns: 0; EINVAL if the region is too small or overlaps memory of the heap; EFBIG if it is
 * larger than the heap is prepared for. */
CAIRN_API CAIRN_NODISCARD int cairn_tlsf_add(cairn_tlsf *heap, void *memory,
                                             size_t size) CAIRN_NOEXCEPT;

/* Removes the region that was added at the address `memory`.
 * Returns: 0; EBUSY if it has blocks in use; EINVAL if there is no such region, or it is the one
 * over which the heap was made. */
CAIRN_API CAIRN_NODISCARD int cairn_tlsf_remove(cairn_tlsf *heap, void *memory) CAIRN_NOEXCEPT;

/* Sets the function that is called with `context` when an allocation of `size_bytes` finds no
 * memory; NULL: none. The function returns true to try again after it has freed blocks or added a
 * region.
 *  - The function must return, without longjmp or an exception, and must not free a block that is
 *    being reallocated.
 *  - The function is not called for requests that no region could hold.
 *  - After a heap was mapped at another address or in another process, set it again.
 *  - Set it before the heap is shared. Shared heaps call it without the lock. */
CAIRN_API void cairn_tlsf_set_out_of_memory(cairn_tlsf *heap,
                                            bool (*out_of_memory)(void *context, size_t size_bytes),
                                            void *context) CAIRN_NOEXCEPT;

/* ---- blocks ------------------------------------------------------------------------------- */

/* Allocates a block of at least `size` bytes at a multiple of 16 with undefined contents. A size of
 * 0 counts as 1.
 * Returns: the block, or NULL with errno ENOMEM. */
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_alloc(cairn_tlsf *heap, size_t size)
    CAIRN_TLSF_ALLOCATES(2);

/* Allocates a block of at least `size` bytes at a multiple of 16 and sets the first `size` bytes to
 * 0.
 * Returns: the block, or NULL with errno ENOMEM. */
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_alloc_zero(cairn_tlsf *heap, size_t size)
    CAIRN_TLSF_ALLOCATES(2);

/* Allocates an array of `count` elements of `size` bytes each with undefined contents.
 * Returns: the array, or NULL with errno ENOMEM, also if the product overflows. */
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_alloc_array(cairn_tlsf *heap, size_t count, size_t size)
    CAIRN_TLSF_ALLOCATES(2, 3);

/* Allocates an array of `count` elements of `size` bytes each and sets it to 0.
 * Returns: the array, or NULL with errno ENOMEM, also if the product overflows. */
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_alloc_array_zero(cairn_tlsf *heap, size_t count,
                                                            size_t size) CAIRN_TLSF_ALLOCATES(2, 3);

/* Allocates a block of at least `size` bytes at a multiple of `align` bytes, a power of two. If
 * `align` is above 16, a free block of at least size + align + 24 bytes is divided; its ends stay
 * free.
 * Returns: the block; NULL with errno ENOMEM; NULL with EINVAL if `align` is no power of two.
 * Cost: that of an allocation and a few instructions more. */
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_alloc_aligned(cairn_tlsf *heap, size_t size,
                                                         size_t align) CAIRN_TLSF_ALLOCATES(2);

/* Changes the size of a block to `size` bytes: in place if it shrinks or the memory behind it is
 * free, else by moving it. If no other block is large enough, it moves down into free memory in
 * front of it. A size of 0 counts as 1. A moved block is aligned to 16. With `pointer` NULL it
 * allocates.
 * Returns: the block, or NULL with errno ENOMEM; then the old block is unchanged. */
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_realloc(cairn_tlsf *heap, void *pointer, size_t size)
    CAIRN_TLSF_ALLOCATES(3);

/* Changes the size of a block to `size` bytes without moving it.
 * Returns: `pointer`, or NULL; then the block and errno are unchanged. */
CAIRN_API void *cairn_tlsf_resize(cairn_tlsf *heap, void *pointer, size_t size) CAIRN_NOEXCEPT;

/* Frees a block. NULL is ignored. Keeps errno. */
CAIRN_API void cairn_tlsf_free(cairn_tlsf *heap, void *pointer) CAIRN_NOEXCEPT;

/* Returns: the number of bytes of the block that may be used, at least the number requested; 0 for
 * NULL. */
CAIRN_API size_t cairn_tlsf_usable(const cairn_tlsf *heap, const void *pointer) CAIRN_NOEXCEPT;

/* ---- inspection --------------------------------------------------------------------------- */

/* A function that cairn_tlsf_walk calls for one block; `used` is false for a free one. The function
 * returns false to end the walk. */
typedef bool cairn_tlsf_visit(void *pointer, size_t size, bool used, void *context);

/* Calls `visit` with `context` for all blocks, in use and free, region by region in the order of
 * addresses, until it returns false. `visit` may free the block that it is called for, and must not
 * change the heap otherwise. */
CAIRN_API void cairn_tlsf_walk(const cairn_tlsf *heap, cairn_tlsf_visit *visit, void *context);

/* Verifies every invariant of the heap, for tests and diagnosis. The check follows no link that it
 * has not checked, so it is safe on a damaged heap. The exception is a heap of several regions with
 * a gap between them whose list of regions was damaged.
 * Returns: NULL if all invariants hold, else a sentence that names one that does not.
 * Cost: proportional to the number of blocks. */
CAIRN_API const char *cairn_tlsf_check(const cairn_tlsf *heap) CAIRN_NOEXCEPT;

/* Statistics of one heap. */
typedef struct cairn_tlsf_stats {
    size_t total_bytes;           /* blocks with their headers, in all regions */
    size_t used_bytes;            /* part of total_bytes in blocks in use */
    size_t free_bytes;            /* part of total_bytes in free blocks */
    size_t least_free_bytes;      /* the smallest free_bytes since the start */
    size_t largest_request_bytes; /* largest size with which cairn_tlsf_alloc succeeds; 0: none */
    size_t used_blocks;
    size_t regions;
} cairn_tlsf_stats;

/* Fills *stats. */
CAIRN_API void cairn_tlsf_read_stats(const cairn_tlsf *heap,
                                     cairn_tlsf_stats *stats) CAIRN_NOEXCEPT;

/* ---- with a lock, and as an allocator ----------------------------------------------------- */

/* A heap with a lock, which any thread may use at any time, through the functions with _shared_
 * only. Each does what the function without _shared_ does. The lock is in a block of the heap,
 * which counts as in use. A waiting thread sleeps; the time of a call is bounded by the calls of
 * the other threads. fork takes the lock, so the heap is sound in the child. A thread that calls
 * meanwhile waits, so it must not hold a lock that fork takes (stdio's). */
typedef struct cairn_tlsf_shared cairn_tlsf_shared;

/* Adds a lock to the heap. A heap over memory of the caller must be unshared before this memory
 * ends, because fork takes the lock in it.
 * Returns: the shared heap; NULL with errno ENOMEM; NULL with EBUSY if it is already shared. */
CAIRN_API CAIRN_NODISCARD cairn_tlsf_shared *cairn_tlsf_share(cairn_tlsf *heap) CAIRN_NOEXCEPT;

/* Removes the lock. No thread may use the shared heap any more; a later use is reported as long as
 * its memory is no block of the program. The blocks of the heap stay in use.
 * Returns: the heap without a lock; NULL for NULL. */
CAIRN_API cairn_tlsf *cairn_tlsf_unshare(cairn_tlsf_shared *shared) CAIRN_NOEXCEPT;

/* These functions work as those without _shared_ in their names, with the lock held. */
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_shared_alloc(cairn_tlsf_shared *shared, size_t size)
    CAIRN_TLSF_ALLOCATES(2);
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_shared_alloc_zero(cairn_tlsf_shared *shared, size_t size)
    CAIRN_TLSF_ALLOCATES(2);
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_shared_alloc_array(cairn_tlsf_shared *shared,
                                                              size_t count, size_t size)
    CAIRN_TLSF_ALLOCATES(2, 3);
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_shared_alloc_array_zero(cairn_tlsf_shared *shared,
                                                                   size_t count, size_t size)
    CAIRN_TLSF_ALLOCATES(2, 3);
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_shared_alloc_aligned(cairn_tlsf_shared *shared,
                                                                size_t size, size_t align)
    CAIRN_TLSF_ALLOCATES(2);
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_shared_realloc(cairn_tlsf_shared *shared, void *pointer,
                                                          size_t size) CAIRN_TLSF_ALLOCATES(3);
CAIRN_API void *cairn_tlsf_shared_resize(cairn_tlsf_shared *shared, void *pointer,
                                         size_t size) CAIRN_NOEXCEPT;
CAIRN_API void cairn_tlsf_shared_free(cairn_tlsf_shared *shared, void *pointer) CAIRN_NOEXCEPT;
CAIRN_API size_t cairn_tlsf_shared_usable(cairn_tlsf_shared *shared,
                                          const void *pointer) CAIRN_NOEXCEPT;
CAIRN_API CAIRN_NODISCARD int cairn_tlsf_shared_add(cairn_tlsf_shared *shared, void *memory,
                                                    size_t size) CAIRN_NOEXCEPT;
CAIRN_API CAIRN_NODISCARD int cairn_tlsf_shared_remove(cairn_tlsf_shared *shared,
                                                       void *memory) CAIRN_NOEXCEPT;

/* These functions work as those without _shared_ in their names. All other threads wait until a
 * walk or check is over. The visitor must not call a function of this heap. */
CAIRN_API void cairn_tlsf_shared_walk(cairn_tlsf_shared *shared, cairn_tlsf_visit *visit,
                                      void *context);
CAIRN_API const char *cairn_tlsf_shared_check(cairn_tlsf_shared *shared) CAIRN_NOEXCEPT;
CAIRN_API void cairn_tlsf_shared_read_stats(cairn_tlsf_shared *shared,
                                            cairn_tlsf_stats *stats) CAIRN_NOEXCEPT;

/* Makes a cairn_allocator (cairn/allocator.h) that allocates from this heap. The cairn_allocator is
 * valid until the heap ends. */
CAIRN_API cairn_allocator cairn_tlsf_allocator(cairn_tlsf *heap) CAIRN_NOEXCEPT;

/* Makes a cairn_allocator (cairn/allocator.h) that allocates from this shared heap. The
 * cairn_allocator is valid until the sharing ends. */
CAIRN_API struct cairn_allocator
cairn_tlsf_shared_allocator(cairn_tlsf_shared *shared) CAIRN_NOEXCEPT;

#undef CAIRN_TLSF_ALLOCATES

#ifdef __cplusplus
}
#endif
#endif
