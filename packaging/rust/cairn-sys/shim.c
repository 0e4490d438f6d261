/* Inline functions of the headers under names that Rust can link. */
#include <cairn/fifo.h>
#include <cairn/pool.h>
#include <cairn/ring.h>

/* An alignment that is a constant takes the inline path; the others are the slow path's. */
CAIRN_API void *cairn_sys_fifo_alloc(cairn_fifo *fifo, size_t size, size_t align)
{
    if (align <= 8 && align != 0 && (align & (align - 1)) == 0)
        return cairn_fifo_alloc(fifo, size, 8);
    if (align == 16)
        return cairn_fifo_alloc(fifo, size, 16);
    return cairn_fifo_alloc_slow(fifo, size, align);
}

CAIRN_API void cairn_sys_fifo_free(cairn_fifo *fifo, void *pointer)
{
    cairn_fifo_free(fifo, pointer);
}

CAIRN_API void *cairn_sys_ring_alloc(cairn_ring *ring, size_t size, size_t align)
{
    if (align <= 8 && align != 0 && (align & (align - 1)) == 0)
        return cairn_ring_alloc(ring, size, 8);
    if (align == 16)
        return cairn_ring_alloc(ring, size, 16);
    return cairn_ring_alloc_slow(ring, size, align);
}

CAIRN_API void *cairn_sys_pool_get(cairn_pool *pool) { return cairn_pool_get(pool); }

CAIRN_API void cairn_sys_pool_put(cairn_pool *pool, void *object) { cairn_pool_put(pool, object); }

CAIRN_API void *cairn_sys_pool_magazine_get(cairn_pool_magazine *magazine)
{
    return cairn_pool_magazine_get(magazine);
}

CAIRN_API void cairn_sys_pool_magazine_put(cairn_pool_magazine *magazine, void *object)
{
    cairn_pool_magazine_put(magazine, object);
}
