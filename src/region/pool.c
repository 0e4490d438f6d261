/* What the pool's inline get and put leave over. See pool_layout.h for structures, invariants and
 * threading, cairn/pool.h for the inline paths.
 *
 * put's object is looked up in full here: the slab by masking the pointer, whether it is the pool's
 * by the page map, the object's number, its state. Not here: slabs (pool_depot.c), making and
 * ending pools (pool_set_up.c).
 */
#include "base/test_delay.h"
#include "region/pool_layout.h"

#include <errno.h>
#include <string.h>

/* NULL when no object is in a slab. */
static void *magazine_pop(struct cairn_pool_magazine *magazine)
{
    if (magazine_count(magazine) == 0 && !depot_refill(magazine))
        return NULL;
    struct cairn_pool_entry *top = magazine->view.top - 1;
    if (unlikely(*top->state != OBJECT_FREE))
        die_of_object(magazine->pool, top->object); /* two threads put it at the same instant */
    *top->state = OBJECT_LIVE;
    magazine->view.top = top;
    return top->object;
}

/* The state byte of a live object; dies if it is none. */
static uint8_t *live_state(struct cairn_pool *pool, void *object)
{
    if (!is_ours(pool, object))
        die_of_object(pool, object);
    struct pool_slab *slab = slab_of(pool, object);
    uint64_t number = number_of(pool, slab, object);
    if (number >= pool->own.view.numbers || *state_of(pool, slab, number) != OBJECT_LIVE)
        die_of_object(pool, object);
    return state_of(pool, slab, number);
}

static void magazine_push(struct cairn_pool_magazine *magazine, void *object, uint8_t *state)
{
    if (magazine->view.top == magazine->view.limit)
        depot_flush(magazine, (magazine_count(magazine) + 1) / 2);
    *state = OBJECT_FREE;
    *magazine->view.top++ = (struct cairn_pool_entry){object, state};
}

/* A shared pool's own magazine stands for the common one. */
static struct cairn_pool_magazine *behind(struct cairn_pool_magazine *magazine)
{
    struct cairn_pool *pool = magazine->pool;
    return pool->shared && magazine == &pool->own ? pool->common : magazine;
}

/* An object of the magazine or, when that has none, of a slab, which may be a new one. */
static void *get(struct cairn_pool *pool, struct cairn_pool_magazine *magazine)
{
    struct pool_slab *slab = NULL;
    pool_lock(pool);
    void *object = magazine_pop(magazine);
    while (object == NULL && depot_may_grow(pool)) {
        pool_unlock(pool);
        slab = pool_slab_make(pool);
        test_delay();
        pool_lock(pool);
        if (slab != NULL)
            depot_add(pool, slab);
        object = magazine_pop(magazine);
        if (slab == NULL)
            break;
    }
    pool_unlock(pool);
    return object;
}

api void *cairn_pool_get_slowly(struct cairn_pool_magazine *magazine)
{
    magazine_must_live(magazine);
    struct cairn_pool *pool = magazine->pool;
    int saved_errno = errno;
    void *object = get(pool, behind(magazine));
    while (object == NULL) {
        if (pool->out_of_memory == NULL ||
            !pool->out_of_memory(pool->out_of_memory_context, pool->stride_bytes)) {
            errno = ENOMEM;
            return NULL;
        }
        object = get(pool, behind(magazine));
    }
    errno = saved_errno;
    return object;
}

static void *clear(struct cairn_pool *pool, void *object)
{
    return object != NULL ? memset(object, 0, pool->stride_bytes) : NULL;
}

api void *cairn_pool_get_zero(struct cairn_pool *pool) { return clear(pool, cairn_pool_get(pool)); }

api void *cairn_pool_magazine_get_zero(struct cairn_pool_magazine *magazine)
{
    magazine_must_live(magazine);
    return clear(magazine->pool, cairn_pool_magazine_get(magazine));
}

api void cairn_pool_put_slowly(struct cairn_pool_magazine *magazine, void *object)
{
    if (object == NULL)
        return;
    magazine_must_live(magazine);
    struct cairn_pool *pool = magazine->pool;
    uint8_t *state = live_state(pool, object);
    store_relaxed(recent_of(magazine, object), (uintptr_t)slab_first(pool, slab_of(pool, object)));
    pool_lock(pool);
    magazine_push(behind(magazine), object, state);
    pool_unlock(pool);
}
