/* The heap of the process under Cairn's own names: cairn_malloc, cairn_free and their family.
 *
 * libcairn-malloc exports the same functions under the names of libc as well, so a program that
 * runs on it calls malloc and free. Include this header
 *  - to use Cairn next to the malloc of libc, in a program that links libcairn;
 *  - for functions that libc does not have: cairn_malloc_at_least, cairn_resize,
 *    cairn_recallocarray, cairn_malloc_batch, cairn_thread_idle;
 *  - to give a program its options with the symbol cairn_options.
 *
 * If the lifetime of the blocks is known, other headers are faster: cairn/stack.h and cairn/scope.h
 * for blocks that end in reverse order, cairn/pool.h for blocks of one size, cairn/private_heap.h
 * for many blocks that end at once. docs/TUTORIAL.md compares them.
 *
 * Example:
 *
 *     #include <cairn/heap.h>
 *
 *     long sum_of_squares(size_t count)
 *     {
 *         long *squares = cairn_reallocarray(NULL, count, sizeof *squares);
 *         if (squares == NULL)
 *             return -1;
 *         long sum = 0;
 *         for (size_t i = 0; i < count; i++)
 *             sum += squares[i] = (long)(i * i);
 *         cairn_free(squares);
 *         return sum;
 *     }
 *
 * Blocks: sizes are in bytes. A block of more than 8 bytes is aligned to 16, a smaller one to 8.
 *
 * Threads: any thread may call any function at any time; one block is used by one thread at a time.
 * Any thread may free a block. Functions of this header may be called in these places:
 *  - before constructors, from an IFUNC resolver on: all functions, if the dynamic linker loads the
 *    library; in static programs from the first constructor on;
 *  - in destructors of threads and at exit: all functions;
 *  - in a child of fork, at once, whatever other threads of the parent were doing: all functions;
 *  - in a handler of pthread_atfork: all functions;
 *  - in a signal handler that did not interrupt one of the functions in its own thread: all
 *    functions;
 *  - in a signal handler that did interrupt one: cairn_version; and fork, if the program has one
 *    thread. The child, too, may return from the handler.
 *
 * No function is a cancellation point except cairn_malloc_info, which writes to a stream.
 *
 * Failure: functions that allocate return NULL with errno ENOMEM, whatever error the system
 * reported, and change nothing. Sizes above PTRDIFF_MAX fail. Success keeps errno.
 *
 * Cost: an allocation of up to 1 KiB and its free by the same thread take some tens of
 * instructions, without a lock or an atomic operation; blocks of up to 32 KiB take a little more. A
 * free by another thread takes one or two atomic operations. Larger blocks take one locked
 * instruction if the thread has just freed such a block, else a lock, and a system call when memory
 * must come from the system or return to it.
 *
 * Caveats:
 *  - Each block is freed once, by the pointer that the allocation returned. A second free, a
 *    pointer into a block, a foreign pointer or a wrong size ends the process with one line on
 *    stderr (docs/reference/MESSAGES.md). docs/HARDENING.md lists the invalid frees that are not
 *    detected; one is the second free, in a child of fork, of a block that another thread of the
 *    parent had freed before the fork.
 *  - A signal handler that calls malloc while its own thread is inside malloc, free or a related
 *    function finds the heap half changed: a block may be handed out twice, or the thread waits
 *    forever for a lock that it holds. Nothing detects this. A longjmp out of such a handler has
 *    the same effects. Block the signal, or let the handler only set a flag.
 */
#ifndef CAIRN_HEAP_H
#define CAIRN_HEAP_H

#include <stddef.h>
#include <stdio.h>

#include <cairn/allocator.h>

#ifdef __cplusplus
extern "C" {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored                                                                     \
    "-Wshadow" /* a struct and a function of one name, as libc has them */
#endif

#define CAIRN_ALLOCATES(...) __attribute__((malloc, warn_unused_result, alloc_size(__VA_ARGS__)))
#define CAIRN_RESIZES(...)   __attribute__((warn_unused_result, alloc_size(__VA_ARGS__)))

/* Allocates a block of at least `size` bytes with undefined contents. A size of 0 gives a distinct
 * block, too.
 * Returns: the block, or NULL with errno ENOMEM. */
CAIRN_API void *cairn_malloc(size_t size) CAIRN_NOEXCEPT CAIRN_ALLOCATES(1);

/* Allocates an array of `count` elements of `size` bytes each and sets it to 0.
 * Returns: the array, or NULL with errno ENOMEM, also if the product overflows. */
CAIRN_API void *cairn_calloc(size_t count, size_t size) CAIRN_NOEXCEPT CAIRN_ALLOCATES(1, 2);

/* Changes the size of a block to `size` bytes, in place if possible, else by moving it with its
 * contents. A block above 1 KiB that grows may hold up to a third more than requested. With
 * `pointer` NULL it allocates; with size 0 it frees the block and returns NULL, as glibc does.
 * Returns: the block, or NULL with errno ENOMEM; then the old block is unchanged. */
CAIRN_API void *cairn_realloc(void *pointer, size_t size) CAIRN_NOEXCEPT CAIRN_RESIZES(2);

/* Changes the size of an array to `count` elements of `size` bytes each, as cairn_realloc does.
 * Returns: the array, or NULL with errno ENOMEM, also if the product overflows; then the old array
 * is unchanged. */
CAIRN_API void *cairn_reallocarray(void *pointer, size_t count, size_t size) CAIRN_NOEXCEPT
    CAIRN_RESIZES(2, 3);

/* Frees a block. NULL is ignored. Keeps errno. */
CAIRN_API void cairn_free(void *pointer) CAIRN_NOEXCEPT;

/* Frees a block from malloc, calloc or realloc whose size the caller knows (C23). NULL is ignored.
 * `size` is the size in bytes that the block was requested with. A wrong size is misuse,
 * and is reported if it belongs to another size class or another number of pages; hardened builds
 * compare the exact size (docs/HARDENING.md). */
CAIRN_API void cairn_free_sized(void *pointer, size_t size) CAIRN_NOEXCEPT;

/* Frees a block from aligned_alloc whose alignment and size the caller knows (C23). NULL is
 * ignored. A wrong size is misuse, reported as by cairn_free_sized. */
CAIRN_API void cairn_free_aligned_sized(void *pointer, size_t alignment,
                                        size_t size) CAIRN_NOEXCEPT;

/* Allocates a block of at least `size` bytes at a multiple of `alignment` bytes, a power of two and
 * a multiple of sizeof(void *), and stores it in *result.
 * Returns: 0, EINVAL or ENOMEM; errno never changes. After an error *result is unchanged. */
CAIRN_API CAIRN_NODISCARD int cairn_posix_memalign(void **result, size_t alignment,
                                                   size_t size) CAIRN_NOEXCEPT;

/* Allocates a block of at least `size` bytes at a multiple of `alignment` bytes, a power of two.
 * The size need not be a multiple of the alignment.
 * Returns: the block; NULL with errno ENOMEM; NULL with EINVAL if `alignment` is no power of two,
 * as in C17 and in glibc from 2.38 on. */
CAIRN_API void *cairn_aligned_alloc(size_t alignment, size_t size) CAIRN_NOEXCEPT
    CAIRN_ALLOCATES(2);

/* Allocates a block of at least `size` bytes at a multiple of `alignment` bytes. An alignment that
 * is no power of two is rounded up to one, as glibc does.
 * Returns: the block; NULL with errno ENOMEM; NULL with EINVAL if `alignment` is above 2^63. */
CAIRN_API void *cairn_memalign(size_t alignment, size_t size) CAIRN_NOEXCEPT CAIRN_ALLOCATES(2);

/* Allocates a block of at least `size` bytes at the start of a page of the system.
 * Returns: the block, or NULL with errno ENOMEM. */
CAIRN_API void *cairn_valloc(size_t size) CAIRN_NOEXCEPT CAIRN_ALLOCATES(1);

/* Allocates a block at the start of a page of the system and rounds `size` up to whole pages.
 * Returns: the block, or NULL with errno ENOMEM. */
CAIRN_API void *cairn_pvalloc(size_t size) CAIRN_NOEXCEPT CAIRN_ALLOCATES(1);

/* Returns: the number of bytes of the block that may be used, at least the number requested; 0 for
 * NULL. Hardened builds return exactly the number requested for blocks of up to 32 KiB. */
CAIRN_API CAIRN_NODISCARD size_t cairn_malloc_usable_size(void *pointer) CAIRN_NOEXCEPT;

/* ---- beyond libc ---------------------------------------------------------------------------- */

/* Returns: the largest size that takes no more memory than a request of `size` bytes. */
CAIRN_API CAIRN_NODISCARD size_t cairn_good_size(size_t size) CAIRN_NOEXCEPT;

/* Allocates a block of at least `size` bytes and stores its real size in *usable. The caller may
 * use all of it: it is a block of that size, cairn_good_size(size), for cairn_free_sized as well.
 * For vectors and buffers, which would grow into it anyway.
 * Returns: the block, or NULL with errno ENOMEM; then *usable is 0. */
CAIRN_API CAIRN_NODISCARD void *cairn_malloc_at_least(size_t size, size_t *usable) CAIRN_NOEXCEPT;

/* Changes the size of a block to `size` bytes without moving it. A size of 0 counts as 1. The call
 * succeeds where cairn_realloc would keep the block in place: within the size class of the block or
 * into free pages behind it, but not if another size class serves the new size better.
 * Returns: `pointer`, or NULL; then the block and errno are unchanged. NULL for NULL. */
CAIRN_API void *cairn_resize(void *pointer, size_t size) CAIRN_NOEXCEPT;

/* Changes an array of `old_count` elements of `size` bytes each to `count` elements, in place or by
 * moving it, and leaves no secrets behind: new elements are set to 0, and removed elements and the
 * old block of a moved array are overwritten with 0. From OpenBSD. With `pointer` NULL it works as
 * cairn_calloc. A new size of 0 gives a distinct block.
 * Returns: the array; NULL with errno ENOMEM when memory is out or the product overflows; NULL with
 * EINVAL if the block cannot have `old_count` elements. On failure the array is unchanged.
 * Cost: a realloc and the clearing. The function copies large blocks where cairn_realloc would
 * remap pages. */
CAIRN_API CAIRN_NODISCARD void *cairn_recallocarray(void *pointer, size_t old_count, size_t count,
                                                    size_t size) CAIRN_NOEXCEPT;

/* Allocates `count` blocks of `size` bytes each, as cairn_malloc does, and stores them in blocks[0]
 * to blocks[count - 1].
 * Returns: the number of blocks allocated; if it is less than `count`, errno is ENOMEM and the
 * caller owns the blocks so far.
 * Cost: 100 blocks of 64 bytes and their cairn_free_batch take 36 instructions a block; single
 * calls take 60. The saving holds for sizes of up to 1 KiB. Larger blocks and hardened builds cost
 * the same as single calls. */
CAIRN_API CAIRN_NODISCARD size_t cairn_malloc_batch(size_t count, size_t size,
                                                    void **blocks) CAIRN_NOEXCEPT;

/* Frees the `count` blocks in `blocks`, of any sizes and heaps. NULL entries are ignored.
 * Cost: less than single calls if blocks of one slab are adjacent in `blocks`, as
 * cairn_malloc_batch returns them. */
CAIRN_API void cairn_free_batch(size_t count, void *const *blocks) CAIRN_NOEXCEPT;

/* Announces that the calling thread will wait for a long time: its heap hands its cached memory to
 * other threads and lets it return to the system in time. The call is never required, and useless
 * at the end of a thread.
 * Cost: a look at every size class, and some hundred instructions for each slab handed over. */
CAIRN_API void cairn_thread_idle(void) CAIRN_NOEXCEPT;

/* Returns free memory to the system except `keep` bytes: free runs, kept large blocks, empty slabs
 * of the caller, of private heaps and of ended threads, and free pages inside the slabs of all
 * threads.
 * Returns: 1 if any memory was returned, else 0. */
CAIRN_API int cairn_malloc_trim(size_t keep) CAIRN_NOEXCEPT;

/* The numbers of glibc's mallinfo2; sizes are in bytes. uordblks + fordblks = arena always holds.
 * Other threads continue while the numbers are counted, so they may be of different instants. */
struct cairn_mallinfo2 {
    size_t arena;    /* committed in arenas: slabs, large blocks and free runs */
    size_t ordblks;  /* always 0: free runs are not counted one by one */
    size_t smblks;   /* always 0: no fastbins here */
    size_t hblks;    /* blocks outside of arenas: those with their own mapping, guarded blocks */
    size_t hblkhd;   /* bytes in those */
    size_t usmblks;  /* always 0 */
    size_t fsmblks;  /* always 0 */
    size_t uordblks; /* bytes in blocks in use in arenas */
    size_t fordblks; /* the rest of `arena` */
    size_t keepcost; /* free, not yet returned to the system; threads may keep more */
};
/* Returns: the numbers of the heap in the form of glibc's mallinfo2. */
CAIRN_API CAIRN_NODISCARD struct cairn_mallinfo2 cairn_mallinfo2(void) CAIRN_NOEXCEPT;

/* The numbers of glibc's mallinfo: those of cairn_mallinfo2 as int, INT_MAX where one does not
 * fit. */
struct cairn_mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
/* Returns: the numbers of the heap in the form of glibc's mallinfo. */
CAIRN_API CAIRN_NODISCARD struct cairn_mallinfo cairn_mallinfo(void) CAIRN_NOEXCEPT;

/* Accepts the tuning parameters of glibc, which have no effect: docs/reference/OPTIONS.md lists
 * Cairn's options.
 * Returns: 1 for a parameter that glibc has, else 0. */
CAIRN_API int cairn_mallopt(int parameter, int value) CAIRN_NOEXCEPT;

/* Writes the state of the heap to stderr, in a few lines. */
CAIRN_API void cairn_malloc_stats(void) CAIRN_NOEXCEPT;

/* Writes the state of the heap to `stream` as XML, with the elements of glibc. `options` must be 0.
 * The function is not noexcept, because a stream may call functions of the program.
 * Returns: 0; EINVAL if `options` is not 0; -1 with errno if writing failed. */
CAIRN_API int cairn_malloc_info(int options, FILE *stream);

/* Makes a cairn_allocator (cairn/allocator.h) of the heap of the process. The cairn_allocator is
 * valid until the process ends and offers every alignment that is a power of two. Its resize
 * succeeds between half and all of the usable size of a block. A pointer that is no block is
 * reported as by cairn_malloc_usable_size or cairn_free. */
CAIRN_API CAIRN_NODISCARD cairn_allocator cairn_heap_allocator(void) CAIRN_NOEXCEPT;

/* Options of the program, "key:value,…". A program defines this symbol to set options for itself;
 * the environment variable CAIRN_OPTIONS is read afterwards and overrides it.
 * docs/reference/OPTIONS.md lists the keys. */
extern const char *cairn_options __attribute__((weak));

#undef CAIRN_ALLOCATES
#undef CAIRN_RESIZES

#ifdef __cplusplus
#pragma GCC diagnostic pop
}
#endif
#endif
