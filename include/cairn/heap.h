/* Cairn's general heap under its own names. libcairn-malloc has the same functions under libc's
 * names too.
 *
 * All functions are thread-safe and may be called at any time: before constructors, in TLS
 * destructors, in a child after fork. They keep no state between calls but the heap. None is a
 * cancellation point; none is async-signal-safe.
 *
 * Sizes are in bytes. A block of more than 8 bytes is aligned to 16. Failure is NULL with errno
 * ENOMEM, whatever the system said, and leaves everything as it was; success keeps errno. Sizes
 * above PTRDIFF_MAX fail.
 *
 * A block may be freed by any thread, once, by the pointer that was returned. Anything else (a
 * second free, a pointer into a block, a foreign pointer, a wrong size) ends the process with one
 * line on stderr; docs/MESSAGES.md lists them.
 *
 * Cost: allocation up to 1 KiB and its free by the same thread take some tens of instructions, with
 * no lock and no atomic operation; a free by another thread one or two atomic operations; up to 32
 * KiB the same and a little more; above, a lock, and a system call when memory must come from or go
 * to the system.
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

/* A block of at least `size` bytes, contents undefined. Size 0 gives a block of its own, too. */
CAIRN_API void *cairn_malloc(size_t size) CAIRN_ALLOCATES(1);

/* A block of `count` times `size` bytes, all zero. A product that overflows fails. */
CAIRN_API void *cairn_calloc(size_t count, size_t size) CAIRN_ALLOCATES(1, 2);

/* The block, with its first bytes, at a new size: in place where possible, else moved and the old
 * one freed. A block above 1 KiB that grows may hold up to a quarter more than asked for. NULL as
 * `pointer` allocates; size 0 frees and returns NULL, as glibc does. On failure the old block stays
 * as it was. */
CAIRN_API void *cairn_realloc(void *pointer, size_t size)
    __attribute__((warn_unused_result, alloc_size(2)));

/* realloc to `count` times `size` bytes; a product that overflows fails and the block stays. */
CAIRN_API void *cairn_reallocarray(void *pointer, size_t count, size_t size)
    __attribute__((warn_unused_result, alloc_size(2, 3)));

/* Gives the block back. NULL is ignored. Keeps errno. */
CAIRN_API void cairn_free(void *pointer);

/* C23: free of a block from malloc, calloc or realloc whose size the caller knows; a size that the
 * block was not asked with, as far as its class tells, is misuse. */
CAIRN_API void cairn_free_sized(void *pointer, size_t size);

/* C23: the same for a block from aligned_alloc, with its alignment. */
CAIRN_API void cairn_free_aligned_sized(void *pointer, size_t alignment, size_t size);

/* A block aligned to `alignment`, a power of two and multiple of sizeof(void *), in *result. 0,
 * EINVAL or ENOMEM; errno and, on failure, *result stay as they were. */
CAIRN_API int cairn_posix_memalign(void **result, size_t alignment, size_t size)
    __attribute__((warn_unused_result));

/* A block aligned to `alignment`; what is no power of two is rounded up to one, as in glibc. */
CAIRN_API void *cairn_aligned_alloc(size_t alignment, size_t size) CAIRN_ALLOCATES(2);
CAIRN_API void *cairn_memalign(size_t alignment, size_t size) CAIRN_ALLOCATES(2);

/* A block aligned to the system's page; pvalloc also rounds the size up to whole pages. */
CAIRN_API void *cairn_valloc(size_t size) CAIRN_ALLOCATES(1);
CAIRN_API void *cairn_pvalloc(size_t size) CAIRN_ALLOCATES(1);

/* The bytes of the block that may be used, at least those asked for; 0 for NULL. */
CAIRN_API size_t cairn_malloc_usable_size(void *pointer);

/* Gives free memory back to the system, but for `keep` bytes. 1 when something went back, else 0.
 */
CAIRN_API int cairn_malloc_trim(size_t keep);

/* The numbers of glibc's mallinfo2, in bytes where they are sizes. */
struct cairn_mallinfo2 {
    size_t arena;    /* committed in arenas: slabs, large blocks and free runs */
    size_t ordblks;  /* always 0: free runs are not counted one by one */
    size_t smblks;   /* always 0: no fastbins here */
    size_t hblks;    /* blocks with a mapping of their own */
    size_t hblkhd;   /* bytes in those */
    size_t usmblks;  /* always 0 */
    size_t fsmblks;  /* always 0 */
    size_t uordblks; /* bytes in blocks in use, those with their own mapping not counted */
    size_t fordblks; /* the rest of `arena` */
    size_t keepcost; /* what cairn_malloc_trim could give back now */
};
CAIRN_API struct cairn_mallinfo2 cairn_mallinfo2(void);

/* The same in the int fields of glibc's mallinfo; what does not fit is INT_MAX. */
struct cairn_mallinfo {
    int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
};
CAIRN_API struct cairn_mallinfo cairn_mallinfo(void);

/* glibc's tuning parameters are accepted and have no effect here: 1 for a known one, else 0. See
 * docs/OPTIONS.md. */
CAIRN_API int cairn_mallopt(int parameter, int value);

/* A table of the heap's state on stderr. */
CAIRN_API void cairn_malloc_stats(void);

/* The heap's state as XML on `stream`, in glibc's elements. `options` must be 0, else EINVAL is
 * returned; 0 on success, -1 with errno when writing failed. */
CAIRN_API int cairn_malloc_info(int options, FILE *stream);

/* The heap behind cairn/allocator.h: any thread, any alignment that is a power of two. resize works
 * within what the block has anyway, down to half of it; a pointer that is no block dies as it would
 * in cairn_malloc_usable_size or cairn_free. */
CAIRN_API struct cairn_allocator cairn_heap_allocator(void);

/* Options, "key:value,…", that a program gives itself by defining this symbol; the variable
 * CAIRN_OPTIONS in the environment comes after it and wins. docs/OPTIONS.md lists the keys. */
extern const char *cairn_options __attribute__((weak));

#undef CAIRN_ALLOCATES

#ifdef __cplusplus
#pragma GCC diagnostic pop
}
#endif
#endif
