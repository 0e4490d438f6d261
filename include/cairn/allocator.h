/* One interface to all allocators of Cairn: a cairn_allocator is a context and its operations.
 *
 * Use a cairn_allocator in code that should work with memory of any lifetime, such as containers:
 * the caller chooses a stack, a pool, a private heap or malloc. Code that always uses one allocator
 * calls the functions of that allocator instead, which saves an indirect call.
 *
 * Each allocator has a function `cairn_allocator cairn_<noun>_allocator(cairn_<noun> *)` that makes
 * the value; the heap of the process has cairn_heap_allocator() (cairn/heap.h). The value is two
 * words, may be copied, and is valid as long as the allocator exists. A program may also make its
 * own, by filling a struct cairn_allocator_operations.
 *
 * Example:
 *
 *     #include <cairn/allocator.h>
 *     #include <cairn/heap.h>
 *     #include <cairn/stack.h>
 *
 *     struct list {
 *         cairn_allocator from;
 *         size_t count;
 *     };
 *
 *     static struct list *list_new(cairn_allocator from)
 *     {
 *         struct list *list = cairn_allocator_alloc(from, sizeof *list, _Alignof(struct list));
 *         if (list != NULL)
 *             *list = (struct list){.from = from};
 *         return list;
 *     }
 *
 *     int make_two(cairn_stack *stack)
 *     {
 *         struct list *short_lived = list_new(cairn_stack_allocator(stack));
 *         struct list *long_lived = list_new(cairn_heap_allocator());
 *         return short_lived != NULL && long_lived != NULL ? 0 : -1;
 *     }
 *
 * Rules that hold for every allocator:
 *  - alloc gives a block of `size` bytes, a size of 0 counts as 1, at a multiple of `align`, a
 * power of two. The contents are undefined.
 *  - alloc fails with NULL and errno ENOMEM when memory is out or the allocator has no such blocks
 *    (too large, or an alignment that it does not offer), and with EINVAL if `align` is no power of
 *    two.
 *  - resize changes the size of a block in place. The function returns NULL if it cannot resize in
 *    place, never moves a block and never sets errno. Allocators without CAIRN_CAN_RESIZE always
 *    return NULL. A `new_size` of 0 counts as 1; `pointer` NULL gives NULL.
 *  - free ends a block, ignores NULL and keeps errno. Allocators without CAIRN_CAN_FREE accept the
 *    call and do nothing: their blocks end with their frame.
 *  - `size` and `old_size` are the size of the last alloc or resize of the block.
 *
 * Threads and signal handlers: as for the functions of the allocator; the bits CAIRN_ANY_THREAD and
 * CAIRN_ANY_THREAD_FREE say which calls any thread may make.
 *
 * Cost: one indirect call more than the allocator's own function.
 *
 * Caveats:
 *  - Misuse that the allocator's own functions report ends the process here, with the same message.
 */
#ifndef CAIRN_ALLOCATOR_H
#define CAIRN_ALLOCATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cairn/api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bits of `capabilities`: the abilities of an allocator. */
enum {
    CAIRN_CAN_FREE = 1 << 0,        /* the memory of a freed block serves other blocks */
    CAIRN_CAN_RESIZE = 1 << 1,      /* resize may succeed */
    CAIRN_FREES_TOGETHER = 1 << 2,  /* blocks may be left to end with a frame or the allocator */
    CAIRN_ANY_THREAD = 1 << 3,      /* alloc, resize and free: any thread at any time */
    CAIRN_ANY_THREAD_FREE = 1 << 4, /* free: any thread at any time */
    CAIRN_ONE_SIZE = 1 << 5,        /* a larger request than that size fails */
};

/* The operations of an allocator. The functions are constant after the allocator was made and exist
 * at least as long as it does. */
struct cairn_allocator_operations {
    void *(*alloc)(void *context, size_t size, size_t align);
    void *(*resize)(void *context, void *pointer, size_t old_size, size_t new_size);
    void (*free)(void *context, void *pointer, size_t size);
    unsigned capabilities;
    const char *name; /* the noun: "stack", "fifo", … */
};

/* An allocator, to be passed by value. */
typedef struct cairn_allocator {
    void *context; /* passed to each operation; may be NULL */
    const struct cairn_allocator_operations *operations;
} cairn_allocator;

/* Allocates a block of `size` bytes at a multiple of `align` bytes, a power of two.
 * Returns: the block, or NULL with errno ENOMEM or EINVAL. */
CAIRN_NODISCARD static inline void *cairn_allocator_alloc(cairn_allocator allocator, size_t size,
                                                          size_t align) CAIRN_NOEXCEPT
{
    return allocator.operations->alloc(allocator.context, size, align);
}

/* Changes the size of a block from `old_size` to `new_size` bytes without moving it.
 * Returns: `pointer`, or NULL; then the block and errno are unchanged. */
static inline void *cairn_allocator_resize(cairn_allocator allocator, void *pointer,
                                           size_t old_size, size_t new_size) CAIRN_NOEXCEPT
{
    return allocator.operations->resize(allocator.context, pointer, old_size, new_size);
}

/* Frees a block of `size` bytes. NULL is ignored. Keeps errno. */
static inline void cairn_allocator_free(cairn_allocator allocator, void *pointer,
                                        size_t size) CAIRN_NOEXCEPT
{
    allocator.operations->free(allocator.context, pointer, size);
}

/* Returns: true if the allocator has all abilities in `capabilities`, bits such as
 * CAIRN_CAN_RESIZE | CAIRN_ANY_THREAD. */
static inline bool cairn_allocator_can(cairn_allocator allocator,
                                       unsigned capabilities) CAIRN_NOEXCEPT
{
    return (allocator.operations->capabilities & capabilities) == capabilities;
}

/* Multiplies `count` and `size`.
 * Returns: the product, or SIZE_MAX if it overflows. No allocator has a block of that size, so an
 * allocation of it fails with ENOMEM. */
static inline size_t cairn_array_bytes(size_t count, size_t size) CAIRN_NOEXCEPT
{
    size_t total;
    return __builtin_mul_overflow(count, size, &total) ? SIZE_MAX : total;
}

/* Allocates a block of `size` bytes at a multiple of `align` bytes and sets it to 0.
 * Returns: the block, or NULL with errno ENOMEM or EINVAL. */
CAIRN_NODISCARD static inline void *
cairn_allocator_alloc_zero(cairn_allocator allocator, size_t size, size_t align) CAIRN_NOEXCEPT
{
    void *block = cairn_allocator_alloc(allocator, size, align);
    return block ? __builtin_memset(block, 0, size) : block;
}

/* Allocates an array of `count` elements of `size` bytes each, at a multiple of `align` bytes, with
 * undefined contents.
 * Returns: the array, or NULL with errno ENOMEM or EINVAL; ENOMEM also if the product overflows. */
CAIRN_NODISCARD static inline void *cairn_allocator_alloc_array(cairn_allocator allocator,
                                                                size_t count, size_t size,
                                                                size_t align) CAIRN_NOEXCEPT
{
    return cairn_allocator_alloc(allocator, cairn_array_bytes(count, size), align);
}

/* Allocates an array of `count` elements of `size` bytes each, at a multiple of `align` bytes, and
 * sets it to 0.
 * Returns: the array, or NULL with errno ENOMEM or EINVAL; ENOMEM also if the product overflows. */
CAIRN_NODISCARD static inline void *cairn_allocator_alloc_array_zero(cairn_allocator allocator,
                                                                     size_t count, size_t size,
                                                                     size_t align) CAIRN_NOEXCEPT
{
    size_t total;
    if (__builtin_mul_overflow(count, size, &total))
        return cairn_allocator_alloc_array(allocator, count, size, align); /* fails */
    void *block = cairn_allocator_alloc(allocator, total, align);
    return block ? __builtin_memset(block, 0, total) : block;
}

/* Changes the size of a block from `old_size` to `new_size` bytes and moves it if necessary, with
 * its contents. `align` is the alignment of the block. With `pointer` NULL it allocates.
 * Returns: the block, or NULL with errno ENOMEM; then the old block is unchanged. */
CAIRN_NODISCARD static inline void *cairn_allocator_realloc(cairn_allocator allocator,
                                                            void *pointer, size_t old_size,
                                                            size_t new_size,
                                                            size_t align) CAIRN_NOEXCEPT
{
    if (pointer != NULL) {
        void *resized = cairn_allocator_resize(allocator, pointer, old_size, new_size);
        if (resized != NULL)
            return resized;
    }
    void *moved = cairn_allocator_alloc(allocator, new_size, align);
    if (moved != NULL && pointer != NULL) {
        __builtin_memcpy(moved, pointer, old_size < new_size ? old_size : new_size);
        cairn_allocator_free(allocator, pointer, old_size);
    }
    return moved;
}

#ifdef __cplusplus
}
#endif
#endif
