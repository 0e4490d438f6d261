/* The messages of a pool's misuse; see docs/MESSAGES-region.md. No state. */
#include "base/check.h"
#include "region/pool_layout.h"

void pool_must_live(const struct cairn_pool *pool)
{
    if (unlikely(pool->own.pool != pool))
        die("pool %p: used after its end", (const void *)pool);
}

/* A pool's own magazine starts with the pool. */
void magazine_must_live(const struct cairn_pool_magazine *magazine)
{
    if (unlikely(magazine->pool == NULL))
        die("pool %s%p: used after its end", magazine->attached ? "magazine " : "",
            (const void *)magazine);
}

cold no_return void die_of_object(const struct cairn_pool *pool, const void *object)
{
    if (is_ours(pool, object)) {
        struct pool_slab *slab = slab_of(pool, object);
        const char *first = slab_first(pool, slab);
        size_t distance = (uintptr_t)object - (uintptr_t)first;
        if (distance < pool->capacity * pool->stride_bytes) {
            const void *start = first + distance / pool->stride_bytes * pool->stride_bytes;
            if (start != object)
                die("pool put of interior pointer %p (%zu-byte object at %p)", object,
                    pool->stride_bytes, start);
            die("pool double put of %p (%zu-byte object)", object, pool->stride_bytes);
        }
    }
    die("pool put of %p, which is not an object of pool %p", object, (const void *)pool);
}

cold no_return void die_of_second_put(const struct cairn_pool *pool, struct pool_slab *slab,
                                      const struct cairn_pool_entry *from,
                                      const struct cairn_pool_entry *end)
{
    for (const struct cairn_pool_entry *entry = from; entry + 1 < end; entry++) {
        size_t number = (size_t)(state_of(pool, slab, 0) - entry->state);
        bool in_slab = slab_bits(slab)[number / 64] >> number % 64 & 1;
        bool again = false;
        for (const struct cairn_pool_entry *other = entry + 1; other < end; other++)
            again |= other->object == entry->object;
        if (*entry->state != OBJECT_FREE || in_slab || again)
            die_of_object(pool, entry->object);
    }
    die_of_object(pool, end[-1].object);
}
