/* One interface over all of Cairn's allocators: a context and what can be done with it.
 *
 * Every allocator gives one, by its constructor `cairn_allocator
 * cairn_<noun>_allocator(cairn_<noun> *)`; the general heap has cairn_heap_allocator()
 * (cairn/heap.h). The value is two words, copied freely, and valid as long as the allocator that it
 * was made of. Code that takes one works with whatever lifetime its caller chose:
 *
 *     struct list *list_new(cairn_allocator from)
 *     {
 *         struct list *list = cairn_allocator_alloc(from, sizeof *list, _Alignof(struct list));
 *         …
 *     }
 *     list_new(cairn_stack_allocator(stack));
 *     list_new(cairn_heap_allocator());
 *
 * All allocators answer alike.
 *
 * alloc: a block of `size` bytes, contents undefined, at a multiple of `align`, a power of two, not
 * shared with any other live block; size 0 counts as 1. NULL with errno ENOMEM when memory is out
 * or when the allocator has no such blocks (too large for it, or aligned beyond what it offers);
 * NULL with errno EINVAL when `align` is no power of two.
 *
 * resize: the block at a new size, in place, or NULL, and then it is as it was: resize never moves,
 * never sets errno, and an allocator without CAIRN_CAN_RESIZE always says NULL. `new_size` 0 counts
 * as 1. NULL as `pointer` gives NULL.
 *
 * free: ends the block. An allocator without CAIRN_CAN_FREE takes the call and does nothing: its
 * blocks end with their frame. NULL is ignored. Keeps errno.
 *
 * `size` and `old_size` are what the block was asked or last resized with; the alignment is not
 * needed again. Misuse that the allocator's own functions die of ends here, too, with the same
 * message.
 *
 * Threads: as the allocator says; CAIRN_ANY_THREAD tells. Signal handlers: as the
 * allocator says. Cost: an indirect call more than the allocator's own function.
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

/* What an allocator can do; bits of `capabilities`. */
enum {
    CAIRN_CAN_FREE = 1 << 0,        /* a freed block's memory serves other blocks */
    CAIRN_CAN_RESIZE = 1 << 1,      /* resize may succeed */
    CAIRN_FREES_TOGETHER = 1 << 2,  /* blocks may be left to end with a frame or the allocator */
    CAIRN_ANY_THREAD = 1 << 3,      /* alloc, resize and free: any thread at any time */
    CAIRN_ANY_THREAD_FREE = 1 << 4, /* free: any thread at any time */
    CAIRN_ONE_SIZE = 1 << 5,        /* a larger request than that size fails */
};

/* Const after the allocator was made, and at least as long-lived as it. */
struct cairn_allocator_operations {
    void *(*alloc)(void *context, size_t size, size_t align);
    void *(*resize)(void *context, void *pointer, size_t old_size, size_t new_size);
    void (*free)(void *context, void *pointer, size_t size);
    unsigned capabilities;
    const char *name; /* the noun: "stack", "fifo", … */
};

typedef struct cairn_allocator {
    void *context; /* the allocator's own; may be NULL */
    const struct cairn_allocator_operations *operations;
} cairn_allocator;

CAIRN_NODISCARD static inline void *cairn_allocator_alloc(cairn_allocator allocator, size_t size,
                                                          size_t align) CAIRN_NOEXCEPT
{
    return allocator.operations->alloc(allocator.context, size, align);
}

static inline void *cairn_allocator_resize(cairn_allocator allocator, void *pointer,
                                           size_t old_size, size_t new_size) CAIRN_NOEXCEPT
{
    return allocator.operations->resize(allocator.context, pointer, old_size, new_size);
}

static inline void cairn_allocator_free(cairn_allocator allocator, void *pointer,
                                        size_t size) CAIRN_NOEXCEPT
{
    allocator.operations->free(allocator.context, pointer, size);
}

static inline bool cairn_allocator_can(cairn_allocator allocator,
                                       unsigned capabilities) CAIRN_NOEXCEPT
{
    return (allocator.operations->capabilities & capabilities) == capabilities;
}

/* `count` times `size`; SIZE_MAX when that overflows: no allocator has so much, so the answer and
 * errno are the allocator's. */
static inline size_t cairn_array_bytes(size_t count, size_t size) CAIRN_NOEXCEPT
{
    size_t total;
    return __builtin_mul_overflow(count, size, &total) ? SIZE_MAX : total;
}

/* The same, all zero. */
CAIRN_NODISCARD static inline void *
cairn_allocator_alloc_zero(cairn_allocator allocator, size_t size, size_t align) CAIRN_NOEXCEPT
{
    void *block = cairn_allocator_alloc(allocator, size, align);
    return block ? __builtin_memset(block, 0, size) : block;
}

/* `count` elements of `size` bytes, contents undefined; NULL with ENOMEM also when the product
 * overflows. */
CAIRN_NODISCARD static inline void *cairn_allocator_alloc_array(cairn_allocator allocator,
                                                                size_t count, size_t size,
                                                                size_t align) CAIRN_NOEXCEPT
{
    return cairn_allocator_alloc(allocator, cairn_array_bytes(count, size), align);
}

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

/* The block at a new size, moved where it has to be: the first bytes are kept, `align` is that of
 * the block. NULL with ENOMEM, and the block stays as it was. NULL as `pointer` allocates. */
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
