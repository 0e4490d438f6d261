/* A pool behind the common interface: see cairn/allocator.h. No state.
 *
 * A block is one object; what is larger, or aligned beyond the pool's objects, is out of memory
 * here. A resize succeeds while the new size still fits.
 */
#include "base/bits.h"
#include "region/pool_layout.h"

#include <errno.h>

static void *alloc(void *context, size_t size, size_t align)
{
    const struct cairn_pool *pool = context;
    if (!is_power_of_two(align)) {
        errno = EINVAL;
        return NULL;
    }
    if (size > pool->stride_bytes || align > pool->align_bytes) {
        errno = ENOMEM;
        return NULL;
    }
    return cairn_pool_get(context);
}

static void *resize(void *context, void *pointer, size_t old_size, size_t new_size)
{
    const struct cairn_pool *pool = context;
    (void)old_size;
    return new_size <= pool->stride_bytes ? pointer : NULL;
}

static void free_object(void *pool, void *pointer, size_t size)
{
    (void)size;
    cairn_pool_put(pool, pointer);
}

api cairn_allocator cairn_pool_allocator(struct cairn_pool *pool)
{
    enum {
        CAPABILITIES = CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_FREES_TOGETHER | CAIRN_ONE_SIZE
    };
    static const struct cairn_allocator_operations operations = {
        .alloc = alloc,
        .resize = resize,
        .free = free_object,
        .capabilities = CAPABILITIES,
        .name = "pool",
    };
    static const struct cairn_allocator_operations shared_operations = {
        .alloc = alloc,
        .resize = resize,
        .free = free_object,
        .capabilities = CAPABILITIES | CAIRN_ANY_THREAD | CAIRN_ANY_THREAD_FREE,
        .name = "pool_shared",
    };
    pool_must_live(pool);
    return (cairn_allocator){pool, pool->shared ? &shared_operations : &operations};
}
