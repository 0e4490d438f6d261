/* The functions of include/cairn/private_heap.h, which documents them: they convert handles, check
 * arguments, set errno, and call the program's function when memory is out. No state.
 *
 * Threads: any. */
#include "cairn/private_heap.h"

#include "base/bits.h"
#include "front/entry.h"
#include "front/out_of_memory.h"

#include <errno.h>
#include <string.h>

struct cairn_private_heap; /* a handle that is never dereferenced: see heap/private_heap.h */

static cairn_private_heap *private_heap_api_handle_of(const struct private_heap *private_heap)
{
    return private_heap ? private_heap_handle(private_heap) : NULL;
}

api cairn_private_heap *cairn_private_heap_new(const cairn_private_heap_options *options)
{
    static const cairn_private_heap_options none;
    if (options == NULL)
        options = &none;
    struct private_heap *private_heap = private_heap_new(options);
    if (private_heap == NULL)
        errno = ENOMEM;
    return private_heap_api_handle_of(private_heap);
}

api int cairn_private_heap_delete(cairn_private_heap *heap)
{
    if (heap != NULL)
        private_heap_end(private_heap_of_handle(heap));
    return 0;
}

/* Calls the function of a private heap when memory is out.
 *
 * Returns: whether to try the request again. */
static bool private_heap_api_may_try_again(const struct private_heap *private_heap, size_t size,
                                           int *tries)
{
    const struct memory_asker asker = {private_heap->options.out_of_memory,
                                       private_heap->options.context};
    return memory_asked(&asker, size, tries);
}

/* Allocates a block, and calls the heap's function when memory is out.
 *
 * Returns: NULL with errno. */
static void *private_heap_api_get(cairn_private_heap *heap, size_t size, size_t align, bool zero)
{
    struct private_heap *private_heap = private_heap_of_handle(heap);
    for (int tries = 0;;) {
        void *block = zero ? private_heap_alloc_zeroed(private_heap, size)
                           : private_heap_alloc(private_heap, size, align);
        if (likely(block != NULL))
            return block;
        if (!private_heap_api_may_try_again(private_heap, size, &tries))
            return entry_no_memory();
    }
}

api void *cairn_private_heap_alloc(cairn_private_heap *heap, size_t size)
{
    return private_heap_api_get(heap, size, 1, false);
}

api void *cairn_private_heap_alloc_zero(cairn_private_heap *heap, size_t size)
{
    return private_heap_api_get(heap, size, 1, true);
}

/* Returns the size of an array; SIZE_MAX, which no block can have, if it overflows. */
static size_t private_heap_api_total_of(size_t count, size_t size)
{
    size_t total;
    return __builtin_mul_overflow(count, size, &total) ? SIZE_MAX : total;
}

api void *cairn_private_heap_alloc_array(cairn_private_heap *heap, size_t count, size_t size)
{
    return cairn_private_heap_alloc(heap, private_heap_api_total_of(count, size));
}

api void *cairn_private_heap_alloc_array_zero(cairn_private_heap *heap, size_t count, size_t size)
{
    return cairn_private_heap_alloc_zero(heap, private_heap_api_total_of(count, size));
}

api void *cairn_private_heap_alloc_aligned(cairn_private_heap *heap, size_t size, size_t align)
{
    if (unlikely(!is_power_of_two(align))) {
        errno = EINVAL;
        return NULL;
    }
    return private_heap_api_get(heap, size, align, false);
}

/* Whether a block belongs to a heap. If not, that is reported. */
static bool private_heap_api_is_of(cairn_private_heap *heap, const void *pointer,
                                   const char *operation)
{
    return private_heap_checks(private_heap_of_handle(heap), pointer, operation);
}

api void *cairn_private_heap_realloc(cairn_private_heap *heap, void *pointer, size_t size)
{
    size = larger_of(size, 1);
    if (pointer == NULL)
        return private_heap_api_get(heap, size, 1, false);
    if (unlikely(!private_heap_api_is_of(heap, pointer, "realloc")))
        return NULL;
    void *block = heap_resize(pointer, size);
    struct private_heap *private_heap = private_heap_of_handle(heap);
    for (int tries = 0;
         unlikely(block == NULL) && private_heap_api_may_try_again(private_heap, size, &tries);)
        block = heap_resize(pointer, size);
    return likely(block != NULL) ? block : entry_no_memory();
}

api void *cairn_private_heap_resize(cairn_private_heap *heap, void *pointer, size_t size)
{
    if (pointer == NULL || unlikely(!private_heap_api_is_of(heap, pointer, "resize")))
        return NULL;
    return heap_resize_in_place(pointer, larger_of(size, 1)) ? pointer : NULL;
}

api void cairn_private_heap_free(cairn_private_heap *heap, void *pointer)
{
    if (pointer != NULL && likely(private_heap_api_is_of(heap, pointer, "free")))
        entry_free(pointer);
}

api cairn_private_heap *cairn_private_heap_of(const void *pointer)
{
    if (pointer == NULL)
        return NULL;
    const struct span *span = checked_span(pointer, "cairn_private_heap_of");
    return private_heap_api_handle_of(span_private_heap(span));
}

api void cairn_private_heap_set_limit(cairn_private_heap *heap, size_t limit_bytes)
{
    private_heap_set_limit(private_heap_of_handle(heap), limit_bytes);
}

api void cairn_private_heap_trim(cairn_private_heap *heap)
{
    private_heap_trim(private_heap_of_handle(heap));
}

api void cairn_private_heap_read_stats(cairn_private_heap *heap, cairn_private_heap_stats *stats)
{
    private_heap_read_stats(private_heap_of_handle(heap), stats);
}

/* The operation `alloc` of cairn_private_heap_allocator. */
static void *private_heap_api_allocator_alloc(void *context, size_t size, size_t align)
{
    return cairn_private_heap_alloc_aligned(context, larger_of(size, 1), align);
}

/* The operation `resize` of cairn_private_heap_allocator. */
static void *private_heap_api_allocator_resize(void *context, void *pointer, size_t old_size,
                                               size_t new_size)
{
    (void)old_size;
    return cairn_private_heap_resize(context, pointer, new_size);
}

/* The operation `free` of cairn_private_heap_allocator. */
static void private_heap_api_allocator_free(void *context, void *pointer, size_t size)
{
    (void)size;
    cairn_private_heap_free(context, pointer);
}

api cairn_allocator cairn_private_heap_allocator(cairn_private_heap *heap)
{
    static const struct cairn_allocator_operations operations = {
        .alloc = private_heap_api_allocator_alloc,
        .resize = private_heap_api_allocator_resize,
        .free = private_heap_api_allocator_free,
        .capabilities = CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_FREES_TOGETHER |
                        CAIRN_ANY_THREAD | CAIRN_ANY_THREAD_FREE,
        .name = "private_heap",
    };
    return (cairn_allocator){heap, &operations};
}
