/* Making and ending pools and their magazines. Structures and threading: pool_layout.h.
 *
 * A slab is 64 KiB, or larger so that it holds at least 8 objects and the first one's alignment.
 */
#include "base/bits.h"
#include "os/os.h"
#include "region/pool_layout.h"

#include <errno.h>

enum {
    OBJECT_MOST_BYTES = 64 << 20,
    ALIGN_MOST_BYTES = 2 << 20,
    SLAB_LEAST_BYTES = 64 << 10,
    SLAB_LEAST_OBJECTS = 8,
    MAGAZINE_BYTES = 256 << 10, /* objects in a magazine are at most so much memory, or 4 */
    MAGAZINE_LEAST = 4,
};

static_check((size_t)OBJECT_MOST_BYTES *SLAB_LEAST_OBJECTS * 2 <= UINT32_MAX, "offsets fit");

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

/* The inverse of an odd number modulo 2^64, by Newton's iteration: each step doubles the bits that
 * are right, of which the start has three. */
static uint64_t inverse_of(uint64_t odd)
{
    uint64_t inverse = odd;
    for (int bits = 3; bits < 64; bits *= 2)
        inverse *= 2 - odd * inverse;
    return inverse;
}

/* Offset of the first object in a slab that has so many numbers. */
static size_t first_offset(size_t numbers, size_t align_bytes)
{
    size_t bits_end = BITS_AT + (numbers + 63) / 64 * sizeof(uint64_t);
    return align_up(bits_end + numbers, align_bytes);
}

static void lay_out_slab(struct cairn_pool *pool)
{
    size_t stride = pool->stride_bytes;
    unsigned twos = lowest_bit(stride);
    unsigned excess = twos > CAIRN_POOL_NUMBER_SHIFT ? twos - CAIRN_POOL_NUMBER_SHIFT : 0;
    size_t wanted = stride * SLAB_LEAST_OBJECTS + 2 * pool->align_bytes;
    size_t bytes = SLAB_LEAST_BYTES;
    while (bytes < wanted)
        bytes *= 2;
    size_t capacity = bytes / stride;
    while (first_offset(capacity << excess, pool->align_bytes) + capacity * stride > bytes)
        capacity--;
    pool->slab_bytes = bytes;
    pool->slab_mask = ~(uintptr_t)(bytes - 1);
    pool->capacity = (uint32_t)capacity;
    pool->unit_bytes = stride >> excess;
    pool->first = first_offset(capacity << excess, pool->align_bytes);
}

static void magazine_init(struct cairn_pool *pool, struct cairn_pool_magazine *magazine,
                          struct span *span)
{
    size_t most = larger_of(MAGAZINE_BYTES / pool->stride_bytes, MAGAZINE_LEAST);
    unsigned twos = lowest_bit(pool->unit_bytes);
    *magazine = (struct cairn_pool_magazine){
        .view.top = magazine->entries,
        .view.limit = magazine->entries + smaller_of(most, MAGAZINE_MOST),
        .view.inverse = inverse_of(pool->unit_bytes >> twos) << (CAIRN_POOL_NUMBER_SHIFT - twos),
        .view.numbers = pool->capacity * (pool->stride_bytes / pool->unit_bytes),
        .pool = pool,
        .span = span,
        .bottom_state = OBJECT_LIVE,
        .bottom.state = &magazine->bottom_state,
    };
    for (size_t i = 0; i < CAIRN_POOL_RECENT; i++)
        magazine->view.recent[i] = CAIRN_POOL_NONE;
}

/* The pool's lock is not needed by who makes the pool. */
static struct cairn_pool_magazine *magazine_make(struct cairn_pool *pool)
{
    struct span *span = run_take(PAGE_BYTES, PAGE_BYTES);
    if (span == NULL)
        return NULL;
    struct cairn_pool_magazine *magazine = (struct cairn_pool_magazine *)(void *)span->base;
    magazine_init(pool, magazine, span);
    pool_lock(pool);
    magazine->next = pool->magazines;
    if (magazine->next)
        magazine->next->prev = magazine;
    pool->magazines = magazine;
    pool_unlock(pool);
    return magazine;
}

/* Makes a new pool one that any thread may use: the plain get and put find its own magazine empty
 * and full, and so come to the common one and the lock. */
static bool share(struct cairn_pool *pool)
{
    pool->own.view.limit = pool->own.entries;
    pool->common = magazine_make(pool);
    if (pool->common == NULL)
        return false;
    if (fork_lock_watch(&pool->lock) == 0)
        return true;
    pages_give(pool->common->span);
    return false;
}

api struct cairn_pool *cairn_pool_new(size_t object_size, size_t align,
                                      const cairn_pool_options *options)
{
    static const cairn_pool_options defaults;
    options = options ? options : &defaults;
    if (align == 0 && object_size != 0)
        align = smaller_of((size_t)1 << lowest_bit(object_size), 16);
    if (object_size == 0 || object_size > OBJECT_MOST_BYTES || !is_power_of_two(align) ||
        align > ALIGN_MOST_BYTES) {
        errno = EINVAL;
        return NULL;
    }
    os_init();
    struct span *span = run_take(PAGE_BYTES, PAGE_BYTES);
    if (span == NULL)
        return no_memory();
    struct cairn_pool *pool = (struct cairn_pool *)(void *)span->base;
    *pool = (struct cairn_pool){
        .shared = options->shared,
        .stride_bytes = align_up(object_size, align),
        .align_bytes = align,
        .objects_most = options->max_objects ? options->max_objects : SIZE_MAX,
        .name = options->name,
        .span = span,
        .partial = {&pool->partial, &pool->partial},
        .every = {&pool->every, &pool->every},
    };
    lay_out_slab(pool);
    magazine_init(pool, &pool->own, NULL);
    if (pool->shared && !share(pool)) {
        pages_give(span);
        return no_memory();
    }
    return pool;
}

api void cairn_pool_delete(struct cairn_pool *pool)
{
    if (pool == NULL)
        return;
    if (pool->shared)
        fork_lock_unwatch(&pool->lock);
    pool_lock(pool);
    depot_end(pool);
    pool_unlock(pool);
    for (struct cairn_pool_magazine *next, *magazine = pool->magazines; magazine; magazine = next) {
        next = magazine->next;
        pages_give(magazine->span);
    }
    pages_give(pool->span);
}

api size_t cairn_pool_trim(struct cairn_pool *pool)
{
    pool_lock(pool);
    size_t bytes = depot_trim(pool);
    pool_unlock(pool);
    return bytes;
}

api struct cairn_pool_magazine *cairn_pool_attach(struct cairn_pool *pool)
{
    struct cairn_pool_magazine *magazine = magazine_make(pool);
    return magazine ? magazine : no_memory();
}

api void cairn_pool_detach(struct cairn_pool_magazine *magazine)
{
    if (magazine == NULL)
        return;
    struct cairn_pool *pool = magazine->pool;
    pool_lock(pool);
    depot_flush(magazine, magazine_count(magazine));
    if (magazine->next)
        magazine->next->prev = magazine->prev;
    if (magazine->prev)
        magazine->prev->next = magazine->next;
    else
        pool->magazines = magazine->next;
    pool_unlock(pool);
    pages_give(magazine->span);
}
