/* Cairn's general heap under its own names. libcairn-malloc has the same functions under libc's
 * names too.
 *
 * Sizes are in bytes. A block of more than 8 bytes is aligned to 16, a smaller one to 8. Failure is
 * NULL with errno ENOMEM, whatever the system said, and leaves everything as it was; success keeps
 * errno. Sizes above PTRDIFF_MAX fail.
 *
 * A block may be freed by any thread, once, by the pointer that was returned. Anything else (a
 * second free, a pointer into a block, a foreign pointer, a wrong size) ends the process with one
 * line on stderr; docs/MESSAGES.md lists them.
 *
 * Who may call what:
 */
/* clang-format off */
/*   any thread, several at once             all functions; a block is one thread's at a time
 *   before constructors, from an IFUNC      all functions, if the dynamic linker loads the library;
 *     resolver on                             in static programs from constructors on
 *   in destructors of threads and at exit   all functions
 *   in a child of fork, at once             all functions, whatever other threads were doing
 *   in a handler of pthread_atfork          all functions
 *   in a signal handler                     all functions, if the signal did not interrupt one of
 *                                             them in the same thread; cairn_version always
 *   in one that did interrupt one           cairn_version; and fork, if the program has one thread:
 *                                             the child, too, may return from the handler
 */
/* clang-format on */
/* A handler that calls malloc while its own thread is within malloc, free or another of these finds
 * the heap half changed: the same block may be given out twice, or the thread waits for a lock that
 * it holds itself, for ever. Nothing notices it. The same holds for a longjmp out of such a
 * handler. Block the signal, or let the handler only set a flag.
 *
 * None is a cancellation point but cairn_malloc_info, which writes to a stream.
 *
 * Cost: allocation up to 1 KiB and its free by the same thread take some tens of instructions, with
 * no lock and no atomic operation; a free by another thread one or two atomic operations; up to 32
 * KiB the same and a little more. Above, one locked instruction where this thread has just freed
 * such a block, else a lock, and a system call when memory must come from or go to the system.
 *
 *     int *numbers = cairn_reallocarray(NULL, count, sizeof *numbers);
 *     if (numbers == NULL)
 *         return -1;
 *     …
 *     cairn_free(numbers);
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

/* A block of at least `size` bytes, contents undefined. Size 0 gives a block of its own, too. */
CAIRN_API void *cairn_malloc(size_t size) CAIRN_NOEXCEPT CAIRN_ALLOCATES(1);

/* A block of `count` times `size` bytes, all zero. A product that overflows fails. */
CAIRN_API void *cairn_calloc(size_t count, size_t size) CAIRN_NOEXCEPT CAIRN_ALLOCATES(1, 2);

/* The block, with its first bytes, at a new size: in place where possible, else moved and the old
 * one freed. A block above 1 KiB that grows may hold up to a third more than asked for. NULL as
 * `pointer` allocates; size 0 frees and returns NULL, as glibc does. On failure the old block stays
 * as it was. */
CAIRN_API void *cairn_realloc(void *pointer, size_t size) CAIRN_NOEXCEPT CAIRN_RESIZES(2);

/* realloc to `count` times `size` bytes; a product that overflows fails and the block stays. */
CAIRN_API void *cairn_reallocarray(void *pointer, size_t count, size_t size) CAIRN_NOEXCEPT
    CAIRN_RESIZES(2, 3);

/* Gives the block back. NULL is ignored. Keeps errno. */
CAIRN_API void cairn_free(void *pointer) CAIRN_NOEXCEPT;

/* C23: free of a block from malloc, calloc or realloc whose size the caller knows. NULL is ignored.
 * A size that the block was not asked with is misuse, as far as its size class or its pages show
 * it; hardened builds know the size itself (docs/HARDENING.md). */
CAIRN_API void cairn_free_sized(void *pointer, size_t size) CAIRN_NOEXCEPT;

/* C23: the same for a block from aligned_alloc, with its alignment. */
CAIRN_API void cairn_free_aligned_sized(void *pointer, size_t alignment,
                                        size_t size) CAIRN_NOEXCEPT;

/* A block aligned to `alignment`, a power of two and multiple of sizeof(void *), in *result. 0,
 * EINVAL or ENOMEM; errno and, on failure, *result stay as they were. */
CAIRN_API CAIRN_NODISCARD int cairn_posix_memalign(void **result, size_t alignment,
                                                   size_t size) CAIRN_NOEXCEPT;

/* A block aligned to `alignment`. What is no power of two is refused with EINVAL, as in C17 and in
 * glibc from 2.38 on. The size need not be a multiple of the alignment. */
CAIRN_API void *cairn_aligned_alloc(size_t alignment, size_t size) CAIRN_NOEXCEPT
    CAIRN_ALLOCATES(2);

/* The same, but what is no power of two is rounded up to one, as in glibc; EINVAL above 2^63. */
CAIRN_API void *cairn_memalign(size_t alignment, size_t size) CAIRN_NOEXCEPT CAIRN_ALLOCATES(2);

/* A block aligned to the system's page; pvalloc also rounds the size up to whole pages. */
CAIRN_API void *cairn_valloc(size_t size) CAIRN_NOEXCEPT CAIRN_ALLOCATES(1);
CAIRN_API void *cairn_pvalloc(size_t size) CAIRN_NOEXCEPT CAIRN_ALLOCATES(1);

/* The bytes of the block that may be used, at least those asked for; in hardened builds just those,
 * up to 32 KiB. 0 for NULL. */
CAIRN_API CAIRN_NODISCARD size_t cairn_malloc_usable_size(void *pointer) CAIRN_NOEXCEPT;

/* ---- beyond libc ---------------------------------------------------------------------------- */

/* The size that a request of `size` bytes may ask for as well: more, but of no more memory. */
CAIRN_API CAIRN_NODISCARD size_t cairn_good_size(size_t size) CAIRN_NOEXCEPT;

/* A block of at least `size` bytes, and in *usable how many it has, which are all the caller's: it
 * is a block of that size, cairn_good_size(size), for cairn_free_sized, too. For vectors and
 * buffers that would grow into it anyway. On failure *usable is 0. */
CAIRN_API CAIRN_NODISCARD void *cairn_malloc_at_least(size_t size, size_t *usable) CAIRN_NOEXCEPT;

/* The block at a new size, in place: `pointer`, or NULL, and then it is as it was, and so is errno.
 * It never moves, and says no wherever cairn_realloc would: beyond the block's size class or the
 * free pages behind it, and also to a size that another class serves better. Size 0 counts as 1.
 * NULL as `pointer` gives NULL. */
CAIRN_API void *cairn_resize(void *pointer, size_t size) CAIRN_NOEXCEPT;

/* As OpenBSD's: the array of `old_count` elements of `size` bytes with `count` of them, in place or
 * moved. Elements that are new read zero, those given up are overwritten with zero, and so is the
 * old block if it moves: no secret stays behind. NULL as `pointer` is calloc. NULL with errno
 * ENOMEM when memory is out or the new product overflows, with EINVAL when the block cannot have
 * `old_count` of them; then the array is as it was. A new size of 0 is a block of its own. Cost:
 * that of a realloc and of clearing; it is never moved by page tables. */
CAIRN_API CAIRN_NODISCARD void *cairn_recallocarray(void *pointer, size_t old_count, size_t count,
                                                    size_t size) CAIRN_NOEXCEPT;

/* `count` blocks of `size` bytes each, as of cairn_malloc, into blocks[0] and up. Returns how many:
 * fewer than `count`, with errno ENOMEM, when memory is out; those are the caller's. And the free
 * of `count` blocks of any sizes and heaps; NULL is passed over. A hundred blocks of 64 bytes and
 * their frees take 36 instructions a block, where single calls in a loop take 60; so do other sizes
 * up to 1 KiB, frees where blocks of one slab stand together, as they do from cairn_malloc_batch.
 * Larger blocks and hardened builds cost as single ones. */
CAIRN_API CAIRN_NODISCARD size_t cairn_malloc_batch(size_t count, size_t size,
                                                    void **blocks) CAIRN_NOEXCEPT;
CAIRN_API void cairn_free_batch(size_t count, void *const *blocks) CAIRN_NOEXCEPT;

/* The calling thread is going to wait for long: what its heap keeps for its next need is for others
 * now, and what decays goes back to the system in time. Not needed for correctness, nor at a
 * thread's end. Cost: a look at every size class, and some hundred instructions for each slab that
 * goes. */
CAIRN_API void cairn_thread_idle(void) CAIRN_NOEXCEPT;

/* Gives free memory back to the system, but for `keep` bytes: that of the arenas, of this thread's
 * heap, and large blocks that any thread keeps. 1 when something went back, else 0. */
CAIRN_API int cairn_malloc_trim(size_t keep) CAIRN_NOEXCEPT;

/* The numbers of glibc's mallinfo2, in bytes where they are sizes. Other threads go on while they
 * are counted: uordblks + fordblks = arena always, but the numbers need not be of one instant. */
struct cairn_mallinfo2 {
    size_t arena;    /* committed in arenas: slabs, large blocks and free runs */
    size_t ordblks;  /* always 0: free runs are not counted one by one */
    size_t smblks;   /* always 0: no fastbins here */
    size_t hblks;    /* blocks outside of arenas: with a mapping of their own, and sampled ones */
    size_t hblkhd;   /* bytes in those */
    size_t usmblks;  /* always 0 */
    size_t fsmblks;  /* always 0 */
    size_t uordblks; /* bytes in blocks in use in arenas */
    size_t fordblks; /* the rest of `arena` */
    size_t keepcost; /* free and not given back; cairn_malloc_trim also gives what threads keep */
};
CAIRN_API CAIRN_NODISCARD struct cairn_mallinfo2 cairn_mallinfo2(void) CAIRN_NOEXCEPT;

/* The same in the int fields of glibc's mallinfo; what does not fit is INT_MAX. */
struct cairn_mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
CAIRN_API CAIRN_NODISCARD struct cairn_mallinfo cairn_mallinfo(void) CAIRN_NOEXCEPT;

/* glibc's tuning parameters are accepted and have no effect here: 1 for a known one, else 0. See
 * docs/OPTIONS.md. */
CAIRN_API int cairn_mallopt(int parameter, int value) CAIRN_NOEXCEPT;

/* The heap's state on stderr, in a few lines. */
CAIRN_API void cairn_malloc_stats(void) CAIRN_NOEXCEPT;

/* The heap's state as XML on `stream`, in glibc's elements. `options` must be 0, else EINVAL is
 * returned; 0 on success, -1 with errno when writing failed. A stream may call functions of the
 * program's, so this one is not noexcept. */
CAIRN_API int cairn_malloc_info(int options, FILE *stream);

/* The heap behind cairn/allocator.h: any thread, any alignment that is a power of two. resize works
 * within what the block has anyway, down to half of it; a pointer that is no block dies as it would
 * in cairn_malloc_usable_size or cairn_free. */
CAIRN_API CAIRN_NODISCARD cairn_allocator cairn_heap_allocator(void) CAIRN_NOEXCEPT;

/* Options, "key:value,…", that a program gives itself by defining this symbol; the variable
 * CAIRN_OPTIONS in the environment comes after it and wins. docs/OPTIONS.md lists the keys. */
extern const char *cairn_options __attribute__((weak));

#undef CAIRN_ALLOCATES
#undef CAIRN_RESIZES

#ifdef __cplusplus
#pragma GCC diagnostic pop
}
#endif
#endif
