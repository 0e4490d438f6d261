/* TLSF behind the common interface, plain and shared: see cairn/allocator.h. No state. */
#include "base/bits.h"
#include "cairn/tlsf.h"

static void *alloc(void *heap, size_t size, size_t align)
{
    return cairn_tlsf_alloc_aligned(heap, larger_of(size, 1), align);
}

static void *resize(void *heap, void *pointer, size_t old_size, size_t new_size)
{
    (void)old_size;
    return cairn_tlsf_resize(heap, pointer, new_size);
}

static void free_block(void *heap, void *pointer, size_t size)
{
    (void)size;
    cairn_tlsf_free(heap, pointer);
}

api cairn_allocator cairn_tlsf_allocator(struct cairn_tlsf *heap)
{
    static const struct cairn_allocator_operations operations = {
        .alloc = alloc,
        .resize = resize,
        .free = free_block,
        .capabilities = CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_FREES_TOGETHER,
        .name = "tlsf",
    };
    return (cairn_allocator){heap, &operations};
}

static void *shared_alloc(void *shared, size_t size, size_t align)
{
    return cairn_tlsf_shared_alloc_aligned(shared, larger_of(size, 1), align);
}

static void *shared_resize(void *shared, void *pointer, size_t old_size, size_t new_size)
{
    (void)old_size;
    return cairn_tlsf_shared_resize(shared, pointer, new_size);
}

static void shared_free(void *shared, void *pointer, size_t size)
{
    (void)size;
    cairn_tlsf_shared_free(shared, pointer);
}

api cairn_allocator cairn_tlsf_shared_allocator(struct cairn_tlsf_shared *shared)
{
    static const struct cairn_allocator_operations operations = {
        .alloc = shared_alloc,
        .resize = shared_resize,
        .free = shared_free,
        .capabilities = CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_FREES_TOGETHER |
                        CAIRN_ANY_THREAD | CAIRN_ANY_THREAD_FREE,
        .name = "tlsf_shared",
    };
    return (cairn_allocator){shared, &operations};
}
