/* TLSF: an allocator for real-time use, over memory that the caller gives.
 *
 * Allocation and free take constant time in the worst case, whatever the heap looks like; free
 * blocks are split and merged at once. No system call, no lock, no libc: the same code runs without
 * an operating system (see "Without libc" below). Blocks of any size up to the region's, aligned to
 * 16 bytes or as asked; 8 bytes of header a block, sizes rounded up to 16 bytes with it, at least
 * 24 usable.
 *
 * Algorithm: M. Masmano, I. Ripoll, A. Crespo, J. Real, "TLSF: a New Dynamic Memory Allocator for
 * Real-Time Systems", ECRTS 2004; here with 32 second-level classes, a look at the first four
 * blocks of the request's own class before a larger block is cut, and offsets for pointers, so that
 * a heap can be mapped at another address as long as its regions keep their distances.
 *
 *     static _Alignas(64) char memory[1 << 20];
 *     cairn_tlsf *heap = cairn_tlsf_init(memory, sizeof memory);
 *     if (heap == NULL)
 *         return EINVAL;
 *     struct message *message = cairn_tlsf_alloc(heap, sizeof *message);
 *     if (message == NULL)
 *         return ENOMEM;
 *     …
 *     cairn_tlsf_free(heap, message);
 *
 * Threads: a heap is used by one thread at a time; it may go from thread to thread, if the program
 * orders the two. That two use it at once is not found. cairn_tlsf_shared_… is the same with a
 * lock. A signal handler may call everything but cairn_tlsf_new and _delete on a heap that no
 * interrupted code can be using; nothing on a shared one.
 *
 * Failure: NULL with errno ENOMEM (without libc: NULL), and everything is as it was. Success keeps
 * errno, but for what an out-of-memory function does to it.
 *
 * Misuse is found in constant time and ends the process with one line on stderr: a second free, a
 * pointer that is no block of the heap, a block that was overrun (told when it or its neighbour is
 * freed), a write into freed memory that met the heap's links, a shared heap that is not shared any
 * more. Detection rests on a tag of 24 bits in each header: an accident passes one time in 16
 * million. docs/MESSAGES-region.md lists the messages. Not found are uses of a heap after its end:
 * the memory of one of cairn_tlsf_new is gone then, and any use faults until something else is
 * mapped there. With several regions a link that was overwritten and leads between two of them
 * faults, too.
 *
 * Cost: at most CAIRN_TLSF_ALLOC_INSTRUCTIONS and CAIRN_TLSF_FREE_INSTRUCTIONS, whatever the heap's
 * state and size; the common cases take a third. What takes a block (free, realloc, resize, usable)
 * costs CAIRN_TLSF_REGION_INSTRUCTIONS more for each region when there are several. These are
 * measured: tlsf_cost_test steps through the worst cases an instruction at a time. alloc_aligned
 * costs as alloc and a few more. realloc in place costs as a free and an alloc; when it moves, the
 * copy comes to that, and to _zero the clearing. Walk, check, add and remove are not for real-time
 * use.
 *
 * fork: a heap in private memory is copied like all memory; the child's copy is as the parent's at
 * the moment of the fork, so the thread that forks must not be within a call (a signal handler),
 * nor may another thread be. The shared form takes care of the latter.
 *
 * Without libc: compile src/region/tlsf*.c and src/base/check.c with -ffreestanding and give them
 * the functions of src/base/host.h that write and abort, those of src/region/tlsf_host.h (errno, or
 * nothing), and memcpy, memmove and memset, which compilers require. dev/check_freestanding.sh does
 * just that. cairn_tlsf_new, the shared form and the cairn_allocator are not part of it.
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

/* Not "malloc": the memory is also the caller's under its own name. */
#define CAIRN_TLSF_ALLOCATES(...) CAIRN_NOEXCEPT __attribute__((alloc_size(__VA_ARGS__)))

typedef struct cairn_tlsf cairn_tlsf;

enum {
    /* Worst cases in machine instructions: x86-64, gcc 12, -O3. Counted: 496 and 237; of random
     * allocations of 16 to 4096 bytes at most 218. */
    CAIRN_TLSF_ALLOC_INSTRUCTIONS = 520,
    CAIRN_TLSF_FREE_INSTRUCTIONS = 250,
    CAIRN_TLSF_REGION_INSTRUCTIONS = 12,

    /* What a heap takes for itself: cairn_tlsf_control_bytes, in each region, in each block. */
    CAIRN_TLSF_REGION_OVERHEAD_BYTES = 32, /* and what alignment to 16 takes */
    CAIRN_TLSF_BLOCK_OVERHEAD_BYTES = 8,
    CAIRN_TLSF_BLOCK_LEAST_BYTES = 24, /* usable, of the smallest block; others: 16 n + 8 */
    CAIRN_TLSF_ALIGNMENT_BYTES = 16,   /* of every block */
};

/* ---- the heap and its memory -------------------------------------------------------------- */

/* A heap over `size` bytes at `memory`, any alignment, which stay the caller's and have to outlive
 * the heap; there is nothing to end but a sharing. The heap's own structure is taken from them.
 * NULL with errno EINVAL when it does not fit. Cost: constant; the memory beyond the structure is
 * not touched but at its ends. */
CAIRN_API CAIRN_NODISCARD cairn_tlsf *cairn_tlsf_init(void *memory, size_t size) CAIRN_NOEXCEPT;

/* The same, prepared for regions of up to `largest_region` bytes to be added later. */
CAIRN_API CAIRN_NODISCARD cairn_tlsf *cairn_tlsf_init_for(void *memory, size_t size,
                                                          size_t largest_region) CAIRN_NOEXCEPT;

/* The bytes that the structure of such a heap takes of its memory (0 for `largest_region`: none):
 * 256, and 256 for each power of two from 512 to the largest block; 3.25 KiB for 1 MiB. */
CAIRN_API size_t cairn_tlsf_control_bytes(size_t size, size_t largest_region) CAIRN_NOEXCEPT;

/* The memory, at a multiple of 64, over which a heap has room for one block of `capacity` bytes, or
 * for several that come to it with 16 bytes for each of them. 0 when no heap is so large. */
CAIRN_API size_t cairn_tlsf_bytes_for(size_t capacity) CAIRN_NOEXCEPT;

/* A heap of a fixed size over one mapping of its own, which has room for one block of at least
 * `capacity` bytes, CAIRN_TLSF_NEW_BYTES when that is 0: cairn_tlsf_bytes_for(capacity), in whole
 * pages. From 2 MiB on transparent huge pages are asked for. NULL with errno ENOMEM. */
CAIRN_API CAIRN_NODISCARD cairn_tlsf *cairn_tlsf_new(size_t capacity) CAIRN_NOEXCEPT;
enum { CAIRN_TLSF_NEW_BYTES = 1 << 20 };

/* Ends a heap of cairn_tlsf_new and all its blocks: 0; or EBUSY while it is shared, and then
 * nothing happened. NULL gives 0. */
CAIRN_API int cairn_tlsf_delete(cairn_tlsf *heap) CAIRN_NOEXCEPT;

/* Adds a region of memory, at any address. 0; EINVAL when it is too small or overlaps what the heap
 * has; EFBIG when it is larger than the heap is prepared for. */
CAIRN_API CAIRN_NODISCARD int cairn_tlsf_add(cairn_tlsf *heap, void *memory,
                                             size_t size) CAIRN_NOEXCEPT;

/* Takes back a region by the address that it was added with. 0; EBUSY when blocks of it are in use;
 * EINVAL when there is no such region, or it is the one that the heap was made over. */
CAIRN_API CAIRN_NODISCARD int cairn_tlsf_remove(cairn_tlsf *heap, void *memory) CAIRN_NOEXCEPT;

/* From now on `out_of_memory` is called when an allocation of so many bytes finds no memory, with
 * `context`: true to try again, after it freed blocks or added a region. It must return (no
 * longjmp, no exception), and not free a block that is being reallocated. It is not called for what
 * no region could hold. NULL: none. A heap that is mapped at another address, or in another
 * process, has to have it set anew. A shared heap's is set before it is shared, and called without
 * the lock. */
CAIRN_API void cairn_tlsf_set_out_of_memory(cairn_tlsf *heap,
                                            bool (*out_of_memory)(void *context, size_t size_bytes),
                                            void *context) CAIRN_NOEXCEPT;

/* ---- blocks ------------------------------------------------------------------------------- */

/* A block of at least `size` bytes at a multiple of 16, contents undefined. Size 0 counts as 1. */
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_alloc(cairn_tlsf *heap, size_t size)
    CAIRN_TLSF_ALLOCATES(2);

/* The same, its first `size` bytes 0. */
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_alloc_zero(cairn_tlsf *heap, size_t size)
    CAIRN_TLSF_ALLOCATES(2);

/* The same for `count` times `size` bytes; a product that overflows fails. */
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_alloc_array(cairn_tlsf *heap, size_t count, size_t size)
    CAIRN_TLSF_ALLOCATES(2, 3);
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_alloc_array_zero(cairn_tlsf *heap, size_t count,
                                                            size_t size) CAIRN_TLSF_ALLOCATES(2, 3);

/* A block at a multiple of `align`, a power of two, else NULL with errno EINVAL. Above 16 it is cut
 * from a free block of at least size + align + 24 bytes: what is left on both sides stays free. */
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_alloc_aligned(cairn_tlsf *heap, size_t size,
                                                         size_t align) CAIRN_TLSF_ALLOCATES(2);

/* The block at a new size: in place when it shrinks or the memory behind it is free, else moved.
 * When no other block is large enough, it moves down into free memory in front of it. NULL as
 * `pointer` allocates; size 0 counts as 1. A moved block is aligned to 16. On failure the block
 * stays as it was. */
CAIRN_API CAIRN_NODISCARD void *cairn_tlsf_realloc(cairn_tlsf *heap, void *pointer, size_t size)
    CAIRN_TLSF_ALLOCATES(3);

/* In place only: `pointer`, or NULL, and then the block is as it was, and so is errno. */
CAIRN_API void *cairn_tlsf_resize(cairn_tlsf *heap, void *pointer, size_t size) CAIRN_NOEXCEPT;

/* Gives the block back. NULL is ignored. Keeps errno. */
CAIRN_API void cairn_tlsf_free(cairn_tlsf *heap, void *pointer) CAIRN_NOEXCEPT;

/* The bytes of the block that may be used, at least those asked for; 0 for NULL. */
CAIRN_API size_t cairn_tlsf_usable(const cairn_tlsf *heap, const void *pointer) CAIRN_NOEXCEPT;

/* ---- looking at it ------------------------------------------------------------------------ */

/* Calls `visit` for all blocks, in use and free, by region and in order of address, until it says
 * false. The visitor may free the block that it is shown, but change nothing else. */
typedef bool cairn_tlsf_visit(void *pointer, size_t size, bool used, void *context);
CAIRN_API void cairn_tlsf_walk(const cairn_tlsf *heap, cairn_tlsf_visit *visit, void *context);

/* Verifies every invariant of the heap: NULL when all hold, else which one does not. Never follows
 * what it has not checked, so a damaged heap is safe to look at, unless it has several regions with
 * a gap between them, and the list of regions is what was damaged. Time: in proportion to blocks.
 */
CAIRN_API const char *cairn_tlsf_check(const cairn_tlsf *heap) CAIRN_NOEXCEPT;

typedef struct cairn_tlsf_stats {
    size_t total_bytes;           /* of blocks, headers included, in all regions */
    size_t used_bytes;            /* of those, in blocks in use */
    size_t free_bytes;            /* the rest */
    size_t least_free_bytes;      /* the least there has been since the start */
    size_t largest_request_bytes; /* the largest cairn_tlsf_alloc that succeeds now; 0: none */
    size_t used_blocks;
    size_t regions;
} cairn_tlsf_stats;
CAIRN_API void cairn_tlsf_read_stats(const cairn_tlsf *heap,
                                     cairn_tlsf_stats *stats) CAIRN_NOEXCEPT;

/* ---- with a lock, and as an allocator ----------------------------------------------------- */

/* A heap that any thread may use at any time, through these functions only. The lock lies in a
 * block of the heap itself, which counts among the blocks in use. The time of a call is bounded by
 * those of the calls of other threads; a thread that waits sleeps.
 *
 * fork: the forking thread holds the lock over the fork, so the heap is sound in the child. A
 * thread that calls meanwhile waits, and so must not hold a lock that fork takes (stdio's). */
typedef struct cairn_tlsf_shared cairn_tlsf_shared;

/* NULL with errno ENOMEM; EBUSY when it is shared already. A heap over the caller's memory is
 * unshared before that memory goes: fork holds the lock that lies in it. */
CAIRN_API CAIRN_NODISCARD cairn_tlsf_shared *cairn_tlsf_share(cairn_tlsf *heap) CAIRN_NOEXCEPT;

/* Ends the sharing, when no thread uses it any more: the plain heap, with its blocks. NULL gives
 * NULL. Any use of `shared` afterwards dies while its memory is no block of the program's. */
CAIRN_API cairn_tlsf *cairn_tlsf_unshare(cairn_tlsf_shared *shared) CAIRN_NOEXCEPT;

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

/* All other threads wait until a walk or check is over. The visitor calls nothing of this heap. */
CAIRN_API void cairn_tlsf_shared_walk(cairn_tlsf_shared *shared, cairn_tlsf_visit *visit,
                                      void *context);
CAIRN_API const char *cairn_tlsf_shared_check(cairn_tlsf_shared *shared) CAIRN_NOEXCEPT;
CAIRN_API void cairn_tlsf_shared_read_stats(cairn_tlsf_shared *shared,
                                            cairn_tlsf_stats *stats) CAIRN_NOEXCEPT;

/* See cairn/allocator.h. As long-lived as the heap, or the sharing. */
CAIRN_API cairn_allocator cairn_tlsf_allocator(cairn_tlsf *heap) CAIRN_NOEXCEPT;
CAIRN_API struct cairn_allocator
cairn_tlsf_shared_allocator(cairn_tlsf_shared *shared) CAIRN_NOEXCEPT;

#undef CAIRN_TLSF_ALLOCATES

#ifdef __cplusplus
}
#endif
#endif
