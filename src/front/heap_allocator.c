/* The general heap as a cairn_allocator: see cairn/heap.h and cairn/allocator.h. No state. */
#include "cairn/heap.h"

#include "base/bits.h"
#include "front/entry.h"

#include <errno.h>

static void *allocator_alloc(void *context, size_t size, size_t align)
{
    (void)context;
    if (unlikely(!is_power_of_two(align))) {
        errno = EINVAL;
        return NULL;
    }
    /* A block of more than 8 bytes is aligned to 16, a smaller one to 8. */
    if (likely(align <= 8 || (align <= 16 && size > 8)))
        return entry_malloc(size);
    return entry_memalign(align, size);
}

/* Within what the block has anyway. One that would leave more than half of it unused says no, so
 * that a realloc moves it and the rest serves others. */
static void *allocator_resize(void *context, void *pointer, size_t old_size, size_t new_size)
{
    (void)context;
    (void)old_size;
    size_t usable = entry_usable_size(pointer);
    return new_size <= usable && new_size >= usable / 2 ? pointer : NULL;
}

static void allocator_free(void *context, void *pointer, size_t size)
{
    (void)context;
    (void)size;
    entry_free(pointer);
}

api cairn_allocator cairn_heap_allocator(void)
{
    static const struct cairn_allocator_operations operations = {
        .alloc = allocator_alloc,
        .resize = allocator_resize,
        .free = allocator_free,
        .capabilities =
            CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_ANY_THREAD | CAIRN_ANY_THREAD_FREE,
        .name = "heap",
    };
    return (cairn_allocator){NULL, &operations};
}
