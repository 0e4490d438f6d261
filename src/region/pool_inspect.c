/* Looking at a pool: walk of the live objects, statistics, the verifier. Structures, invariants and
 * threading: pool_layout.h. Time: in proportion to the objects that the slabs have room for.
 */
#include "region/pool_layout.h"

api void cairn_pool_walk(struct cairn_pool *pool, cairn_pool_visit *visit, void *context)
{
    pool_must_live(pool);
    for (struct slab_list *link = pool->every.next; link != &pool->every; link = link->next) {
        struct pool_slab *slab = slab_from(link, every);
        for (size_t number = 0; number < pool->own.view.numbers; number++)
            if (*state_of(pool, slab, number) == OBJECT_LIVE &&
                !visit(object_at(pool, slab, number), context))
                return;
    }
}

api void cairn_pool_read_stats(struct cairn_pool *pool, struct cairn_pool_stats *stats)
{
    pool_must_live(pool);
    pool_lock(pool);
    size_t free_objects = pool->free_objects + magazine_count(plain_magazine(pool));
    *stats = (struct cairn_pool_stats){
        .name = pool->name,
        .object_bytes = pool->stride_bytes,
        .live_objects = pool->objects - free_objects,
        .free_objects = free_objects,
        .slabs = pool->slabs,
        .slab_bytes = pool->slabs * pool->slab_bytes,
    };
    pool_unlock(pool);
}

/* Sums over all slabs. */
struct count {
    size_t slabs;
    size_t free_slabs;
    size_t objects;
    size_t in_slabs;
    size_t live;
};

static const char *check_slab(struct cairn_pool *pool, struct pool_slab *slab, struct count *count)
{
    size_t step = pool->stride_bytes / pool->unit_bytes;
    size_t in_slab = 0;
    if (slab_of(pool, slab) != slab || !is_ours(pool, slab))
        return "a slab is not where it should be";
    for (size_t number = 0; number < pool->own.view.numbers; number++) {
        bool bit = slab_bits(slab)[number / 64] >> number % 64 & 1;
        uint8_t state = *state_of(pool, slab, number);
        bool exists = number % step == 0 && number / step < slab->capacity;
        if (bit && (state != OBJECT_FREE || !exists))
            return "an object in its slab is in use";
        if (bit && number / 64 < slab->first_word)
            return "a slab's first word is wrong";
        if (state > OBJECT_LIVE || (state == OBJECT_LIVE && !exists))
            return "an object's state is wrong";
        in_slab += bit;
        count->live += state == OBJECT_LIVE;
    }
    if (in_slab != slab->free_count)
        return "a slab's free objects are not those counted";
    count->slabs++;
    count->free_slabs += in_slab == slab->capacity;
    count->objects += slab->capacity;
    count->in_slabs += in_slab;
    return NULL;
}

static const char *check_magazine(struct cairn_pool *pool, struct cairn_pool_magazine *magazine)
{
    if (magazine->bottom.object != NULL || magazine->view.top > magazine->view.limit)
        return "a magazine is broken";
    for (size_t i = 0; i < CAIRN_POOL_RECENT; i++) {
        uintptr_t first = load_relaxed(&magazine->view.recent[i]);
        if (first != CAIRN_POOL_NONE &&
            (!is_ours(pool, (const void *)first) ||
             first != (uintptr_t)slab_first(pool, slab_of(pool, (const void *)first))))
            return "a magazine knows a slab that the pool has not";
    }
    for (struct cairn_pool_entry *entry = magazine->entries; entry < magazine->view.top; entry++) {
        if (!is_ours(pool, entry->object))
            return "a magazine holds what is not the pool's";
        struct pool_slab *slab = slab_of(pool, entry->object);
        uint64_t number = number_of(pool, slab, entry->object);
        if (number >= pool->own.view.numbers || entry->state != state_of(pool, slab, number))
            return "a magazine holds what is no object";
        bool in_slab = slab_bits(slab)[number / 64] >> number % 64 & 1;
        if (*entry->state != OBJECT_FREE || in_slab)
            return "an object in a magazine is elsewhere, too";
    }
    return NULL;
}

static const char *check_all(struct cairn_pool *pool)
{
    struct count count = {0};
    const char *fault = NULL;
    for (struct slab_list *link = pool->every.next; !fault && link != &pool->every;
         link = link->next)
        fault = check_slab(pool, slab_from(link, every), &count);
    size_t in_magazines = magazine_count(&pool->own);
    if (!fault)
        fault = check_magazine(pool, &pool->own);
    for (struct cairn_pool_magazine *magazine = pool->magazines; !fault && magazine;
         magazine = magazine->next) {
        fault = check_magazine(pool, magazine);
        in_magazines += magazine_count(magazine);
    }
    size_t with_free = 0;
    for (struct slab_list *link = pool->partial.next; !fault && link != &pool->partial;
         link = link->next) {
        const struct pool_slab *slab = slab_from(link, partial);
        with_free += slab->free_count;
        if (slab->free_count == slab->capacity && link->next != &pool->partial)
            fault = "a slab without objects in use does not stand last";
    }
    if (!fault && (count.slabs != pool->slabs || count.free_slabs != pool->free_slabs ||
                   count.objects != pool->objects || count.objects > pool->objects_most))
        fault = "the slabs are not those counted";
    if (!fault && (count.in_slabs != pool->free_objects || with_free != pool->free_objects))
        fault = "the free objects are not those counted";
    if (!fault && count.live + count.in_slabs + in_magazines != pool->objects)
        fault = "an object is nowhere, or twice in magazines";
    return fault;
}

api const char *cairn_pool_check(struct cairn_pool *pool)
{
    pool_must_live(pool);
    pool_lock(pool);
    const char *fault = check_all(pool);
    pool_unlock(pool);
    return fault;
}
