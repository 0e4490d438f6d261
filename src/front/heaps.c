/* First-class heaps under their public names: handles, arguments, errno, and who is asked when
 * memory is out. See include/cairn/heaps.h. */
#include "cairn/heaps.h"

#include "base/bits.h"
#include "front/entry.h"
#include "front/out_of_memory.h"

#include <errno.h>
#include <string.h>

struct cairn_heap; /* a handle, never followed: see heap/program_heap.h */

static cairn_heap *handle_of(const struct program_heap *program)
{
    return program ? program_handle(program) : NULL;
}

api cairn_heap *cairn_heap_new(const cairn_heap_options *options)
{
    static const cairn_heap_options none;
    if (options == NULL)
        options = &none;
    struct program_heap *program =
        program_make(&(struct program_options){.limit_bytes = options->limit_bytes,
                                               .out_of_memory = options->out_of_memory,
                                               .context = options->context});
    if (program == NULL)
        errno = ENOMEM;
    return handle_of(program);
}

api int cairn_heap_delete(cairn_heap *heap)
{
    if (heap != NULL)
        program_end(program_of_handle(heap));
    return 0;
}

static bool may_try_again(const struct program_heap *program, size_t size, int *tries)
{
    const struct memory_asker asker = {program->options.out_of_memory, program->options.context};
    return memory_asked(&asker, size, tries);
}

static void *get(cairn_heap *heap, size_t size, size_t align, bool zero)
{
    struct program_heap *program = program_of_handle(heap);
    for (int tries = 0;;) {
        void *block =
            zero ? program_allocate_zeroed(program, size) : program_allocate(program, size, align);
        if (likely(block != NULL))
            return block;
        if (!may_try_again(program, size, &tries))
            return entry_no_memory();
    }
}

api void *cairn_heap_alloc(cairn_heap *heap, size_t size) { return get(heap, size, 1, false); }

api void *cairn_heap_alloc_zero(cairn_heap *heap, size_t size) { return get(heap, size, 1, true); }

/* SIZE_MAX, which no block has, when it overflows. */
static size_t total_of(size_t count, size_t size)
{
    size_t total;
    return __builtin_mul_overflow(count, size, &total) ? SIZE_MAX : total;
}

api void *cairn_heap_alloc_array(cairn_heap *heap, size_t count, size_t size)
{
    return cairn_heap_alloc(heap, total_of(count, size));
}

api void *cairn_heap_alloc_array_zero(cairn_heap *heap, size_t count, size_t size)
{
    return cairn_heap_alloc_zero(heap, total_of(count, size));
}

api void *cairn_heap_alloc_aligned(cairn_heap *heap, size_t size, size_t align)
{
    if (unlikely(!is_power_of_two(align))) {
        errno = EINVAL;
        return NULL;
    }
    return get(heap, size, align, false);
}

/* Whether the block is the heap's; when not, that is reported. */
static bool is_of(cairn_heap *heap, const void *pointer, const char *operation)
{
    return program_checks(program_of_handle(heap), pointer, operation, heap);
}

api void *cairn_heap_realloc(cairn_heap *heap, void *pointer, size_t size)
{
    size = larger_of(size, 1);
    if (pointer == NULL)
        return get(heap, size, 1, false);
    if (unlikely(!is_of(heap, pointer, "realloc")))
        return NULL;
    void *block = heap_resize(pointer, size);
    struct program_heap *program = program_of_handle(heap);
    for (int tries = 0; unlikely(block == NULL) && may_try_again(program, size, &tries);)
        block = heap_resize(pointer, size);
    return likely(block != NULL) ? block : entry_no_memory();
}

api void *cairn_heap_resize(cairn_heap *heap, void *pointer, size_t size)
{
    if (pointer == NULL || unlikely(!is_of(heap, pointer, "resize")))
        return NULL;
    return heap_resize_in_place(pointer, larger_of(size, 1)) ? pointer : NULL;
}

api void cairn_heap_free(cairn_heap *heap, void *pointer)
{
    if (pointer != NULL && likely(is_of(heap, pointer, "free")))
        entry_free(pointer);
}

api cairn_heap *cairn_heap_of(const void *pointer)
{
    return pointer ? handle_of(program_of_block(pointer, "cairn_heap_of")) : NULL;
}

api void cairn_heap_set_limit(cairn_heap *heap, size_t limit_bytes)
{
    program_set_limit(program_of_handle(heap), limit_bytes);
}

api void cairn_heap_trim(cairn_heap *heap) { program_trim(program_of_handle(heap)); }

api void cairn_heap_read_own_stats(cairn_heap *heap, cairn_heap_own_stats *stats)
{
    struct program_stats now;
    program_read_stats(program_of_handle(heap), &now);
    *stats = (cairn_heap_own_stats){
        .live_bytes = now.live_bytes,
        .live_blocks = now.live_blocks,
        .large_bytes = now.large_bytes,
        .large_blocks = now.large_blocks,
        .held_bytes = now.held_bytes,
        .peak_bytes = now.peak_bytes,
        .limit_bytes = now.limit_bytes,
        .refusals = now.refusals,
    };
}

static void *allocator_alloc(void *context, size_t size, size_t align)
{
    return cairn_heap_alloc_aligned(context, larger_of(size, 1), align);
}

static void *allocator_resize(void *context, void *pointer, size_t old_size, size_t new_size)
{
    (void)old_size;
    return cairn_heap_resize(context, pointer, new_size);
}

static void allocator_free(void *context, void *pointer, size_t size)
{
    (void)size;
    cairn_heap_free(context, pointer);
}

api cairn_allocator cairn_heap_own_allocator(cairn_heap *heap)
{
    static const struct cairn_allocator_operations operations = {
        .alloc = allocator_alloc,
        .resize = allocator_resize,
        .free = allocator_free,
        .capabilities = CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_FREES_TOGETHER |
                        CAIRN_ANY_THREAD | CAIRN_ANY_THREAD_FREE,
        .name = "own_heap",
    };
    return (cairn_allocator){heap, &operations};
}
