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

/* Descriptors: recycled, never given back, so that a stale handle finds an ended one. */
static struct cell_list pool_cells cache_aligned = {.descriptor_bytes = sizeof(struct cairn_pool)};
static struct cell_list magazine_cells cache_aligned = {
    .descriptor_bytes = sizeof(struct cairn_pool_magazine),
};

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

static void magazine_init(struct cairn_pool *pool, struct cairn_pool_magazine *magazine)
{
    size_t most = larger_of(MAGAZINE_BYTES / pool->stride_bytes, MAGAZINE_LEAST);
    unsigned twos = lowest_bit(pool->unit_bytes);
    *magazine = (struct cairn_pool_magazine){
        .view.top = magazine->entries,
        .view.limit = magazine->entries + smaller_of(most, MAGAZINE_MOST),
        .view.inverse = inverse_of(pool->unit_bytes >> twos) << (CAIRN_POOL_NUMBER_SHIFT - twos),
        .view.numbers = pool->capacity * (pool->stride_bytes / pool->unit_bytes),
        .pool = pool,
        .attached = magazine != &pool->own,
        .process = fork_lock_process(),
        .bottom_state = OBJECT_LIVE,
        .bottom.state = &magazine->bottom_state,
    };
    for (size_t i = 0; i < CAIRN_POOL_RECENT; i++)
        magazine->view.recent[i] = CAIRN_POOL_NONE;
}

/* Empty, full, and without a slab: every further use comes to the slow paths, which die of it. */
static void magazine_end(struct cairn_pool_magazine *magazine)
{
    magazine->view.top = magazine->entries;
    magazine->view.limit = magazine->entries;
    for (size_t i = 0; i < CAIRN_POOL_RECENT; i++)
        store_relaxed(&magazine->view.recent[i], CAIRN_POOL_NONE);
    magazine->pool = NULL;
    if (magazine->attached)
        cell_give_to(&magazine_cells, magazine);
}

/* The pool's lock is not needed by who makes the pool. */
static struct cairn_pool_magazine *magazine_make(struct cairn_pool *pool)
{
    struct cairn_pool_magazine *magazine = cell_take_from(&magazine_cells);
    if (magazine == NULL)
        return NULL;
    magazine_init(pool, magazine);
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
    magazine_end(pool->common);
    return false;
}

/* Ends the structure, whose slabs and magazines have ended. */
static void pool_end(struct cairn_pool *pool)
{
    magazine_end(&pool->own);
    cell_give_to(&pool_cells, pool);
}

static struct cairn_pool *refuse(int error)
{
    errno = error;
    return NULL;
}

api struct cairn_pool *cairn_pool_new(size_t object_size, size_t align,
                                      const cairn_pool_options *options)
{
    static const cairn_pool_options defaults;
    options = options ? options : &defaults;
    if (align == 0 && object_size != 0)
        align = smaller_of((size_t)1 << lowest_bit(object_size), 16);
    if (object_size == 0 || object_size > OBJECT_MOST_BYTES || !is_power_of_two(align) ||
        align > ALIGN_MOST_BYTES)
        return refuse(EINVAL);
    os_init();
    struct cairn_pool *pool = cell_take_from(&pool_cells);
    if (pool == NULL)
        return refuse(ENOMEM);
    *pool = (struct cairn_pool){
        .shared = options->shared,
        .stride_bytes = align_up(object_size, align),
        .align_bytes = align,
        .objects_most = options->max_objects ? options->max_objects : SIZE_MAX,
        .name = options->name,
        .out_of_memory = options->out_of_memory,
        .out_of_memory_context = options->out_of_memory_context,
        .partial = {&pool->partial, &pool->partial},
        .every = {&pool->every, &pool->every},
    };
    lay_out_slab(pool);
    magazine_init(pool, &pool->own);
    if (pool->shared && !share(pool)) {
        pool_end(pool);
        return refuse(ENOMEM);
    }
    return pool;
}

/* A magazine of a process before the fork may have been in use at that moment: nobody detaches it.
 */
static bool has_magazines(const struct cairn_pool *pool)
{
    for (const struct cairn_pool_magazine *magazine = pool->magazines; magazine;
         magazine = magazine->next)
        if (magazine != pool->common && magazine->process == fork_lock_process())
            return true;
    return false;
}

api int cairn_pool_delete(struct cairn_pool *pool)
{
    if (pool == NULL)
        return 0;
    pool_must_live(pool);
    pool_lock(pool);
    bool busy = has_magazines(pool);
    if (!busy)
        depot_end(pool);
    pool_unlock(pool);
    if (busy)
        return EBUSY;
    if (pool->shared)
        fork_lock_unwatch(&pool->lock);
    for (struct cairn_pool_magazine *next, *magazine = pool->magazines; magazine; magazine = next) {
        next = magazine->next;
        magazine_end(magazine);
    }
    pool_end(pool);
    return 0;
}

api size_t cairn_pool_trim(struct cairn_pool *pool)
{
    pool_must_live(pool);
    pool_lock(pool);
    size_t bytes = depot_trim(pool);
    pool_unlock(pool);
    return bytes;
}

api struct cairn_pool_magazine *cairn_pool_attach(struct cairn_pool *pool)
{
    pool_must_live(pool);
    struct cairn_pool_magazine *magazine = pool->shared ? magazine_make(pool) : NULL;
    if (magazine == NULL)
        errno = pool->shared ? ENOMEM : EINVAL;
    return magazine;
}

api void cairn_pool_detach(struct cairn_pool_magazine *magazine)
{
    if (magazine == NULL)
        return;
    magazine_must_live(magazine);
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
    magazine_end(magazine);
}
