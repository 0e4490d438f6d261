/* The pool's depot: slabs, and the objects that are in them and not in a magazine.
 *
 * Objects leave by whole words of bits, lowest address first, and come back one by one. A slab that
 * has all its objects back is kept, behind those in use, while it is the only one. Invariants and
 * threading: pool_layout.h.
 */
#include "base/bits.h"
#include "region/pool_layout.h"

#include <string.h>

static void list_insert(struct slab_list *after, struct slab_list *link)
{
    link->next = after->next;
    link->prev = after;
    after->next->prev = link;
    after->next = link;
}

static void list_remove(struct slab_list *link)
{
    link->next->prev = link->prev;
    link->prev->next = link->next;
}

/* A new slab, all its objects in it. Without the lock: nobody knows it yet. */
static struct pool_slab *slab_make(struct cairn_pool *pool)
{
    struct span *span = run_take(pool->slab_bytes, pool->slab_bytes);
    if (span == NULL)
        return NULL;
    struct pool_slab *slab = (struct pool_slab *)(void *)span->base;
    span->next = (struct span *)(void *)pool; /* never followed: it names the pool */
    slab->span = span;
    slab->free_count = pool->capacity;
    slab->first_word = 0;
    memset((char *)slab + BITS_AT, 0, pool->first - BITS_AT);
    for (size_t i = 0; i < pool->capacity; i++) {
        size_t number = i * (pool->stride_bytes / pool->unit_bytes);
        slab_bits(slab)[number / 64] |= (uint64_t)1 << number % 64;
    }
    return slab;
}

bool depot_may_grow(struct cairn_pool *pool)
{
    if (pool->slabs + pool->coming_slabs >= pool->slabs_most)
        return false;
    pool->coming_slabs++;
    return true;
}

bool depot_grow(struct cairn_pool *pool)
{
    struct pool_slab *slab = slab_make(pool);
    pool_lock(pool);
    pool->coming_slabs--;
    if (slab) {
        list_insert(pool->partial.prev, &slab->partial);
        list_insert(&pool->every, &slab->every);
        pool->slabs++;
        pool->free_slabs++;
        pool->free_objects += pool->capacity;
    }
    pool_unlock(pool);
    return slab != NULL;
}

/* No put may find the slab any more. A slab is up to several entries wide. */
static void magazine_forget(struct cairn_pool_magazine *magazine, const struct cairn_pool *pool,
                            struct pool_slab *slab)
{
    enum { ENTRY_BYTES = 1 << CAIRN_POOL_RECENT_SHIFT };
    uintptr_t first = (uintptr_t)slab_first(pool, slab);
    for (size_t at = 0; at < pool->slab_bytes && at < CAIRN_POOL_RECENT * ENTRY_BYTES;
         at += ENTRY_BYTES) {
        uintptr_t *recent = recent_of(magazine, (char *)slab + at);
        if (load_relaxed(recent) == first)
            store_relaxed(recent, CAIRN_POOL_NONE);
    }
}

static void slab_end(struct cairn_pool *pool, struct pool_slab *slab)
{
    list_remove(&slab->every);
    pool->slabs--;
    magazine_forget(&pool->own, pool, slab);
    for (struct cairn_pool_magazine *other = pool->magazines; other; other = other->next)
        magazine_forget(other, pool, slab);
    slab->every.next = pool->ended;
    pool->ended = &slab->every;
}

void pool_unlock(struct cairn_pool *pool)
{
    struct slab_list *ended = pool->ended;
    pool->ended = NULL;
    if (pool->shared)
        fork_lock_release(&pool->lock);
    for (struct slab_list *next; ended; ended = next) {
        next = ended->next;
        struct span *span = slab_from(ended, every)->span;
        span->next = NULL;
        pages_give(span);
    }
}

/* Moves objects of one slab into the magazine, in rising order, until that has `most`. */
static void slab_claim(struct cairn_pool *pool, struct pool_slab *slab,
                       struct cairn_pool_magazine *magazine, uint32_t most)
{
    uint64_t *bits = slab_bits(slab);
    pool->free_slabs -= slab->free_count == pool->capacity;
    while (magazine_count(magazine) < most && slab->free_count > 0) {
        uint64_t *word = &bits[slab->first_word];
        if (*word == 0) {
            slab->first_word++;
            continue;
        }
        size_t number = (size_t)slab->first_word * 64 + lowest_bit(*word);
        *word &= *word - 1;
        slab->free_count--;
        pool->free_objects--;
        *magazine->view.top++ =
            (struct cairn_pool_entry){object_at(pool, slab, number), state_of(pool, slab, number)};
    }
    if (slab->free_count == 0)
        list_remove(&slab->partial);
}

bool depot_refill(struct cairn_pool_magazine *magazine)
{
    struct cairn_pool *pool = magazine->pool;
    uint32_t most = (uint32_t)(magazine->view.limit - magazine->entries + 1) / 2;
    if (pool->partial.next == &pool->partial)
        return false;
    while (magazine_count(magazine) < most && pool->partial.next != &pool->partial)
        slab_claim(pool, slab_from(pool->partial.next, partial), magazine, most);
    /* Turned round, so that the lowest address is got first. */
    struct cairn_pool_entry *low = magazine->entries;
    for (struct cairn_pool_entry *high = magazine->view.top - 1; low < high; low++, high--) {
        struct cairn_pool_entry swapped = *low;
        *low = *high;
        *high = swapped;
    }
    return true;
}

static void object_return(struct cairn_pool *pool, void *object)
{
    struct pool_slab *slab = slab_of(pool, object);
    uint64_t number = number_of(pool, slab, object);
    slab_bits(slab)[number / 64] |= (uint64_t)1 << number % 64;
    slab->first_word = (uint32_t)smaller_of(slab->first_word, number / 64);
    pool->free_objects++;
    if (slab->free_count++ == 0)
        list_insert(&pool->partial, &slab->partial);
    if (slab->free_count < pool->capacity)
        return;
    list_remove(&slab->partial);
    if (pool->free_slabs == 0) {
        pool->free_slabs = 1;
        list_insert(pool->partial.prev, &slab->partial);
    } else {
        pool->free_objects -= pool->capacity;
        slab_end(pool, slab);
    }
}

/* The oldest entries go: they are out of the cache. */
void depot_flush(struct cairn_pool_magazine *magazine, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        object_return(magazine->pool, magazine->entries[i].object);
    magazine->view.top -= count;
    memmove(magazine->entries, magazine->entries + count,
            magazine_count(magazine) * sizeof(struct cairn_pool_entry));
}

size_t depot_trim(struct cairn_pool *pool)
{
    size_t before = pool->slabs;
    struct cairn_pool_magazine *magazine = pool->shared ? pool->common : &pool->own;
    depot_flush(magazine, magazine_count(magazine));
    struct slab_list *link = pool->partial.prev; /* an empty slab stands last, and is one */
    if (pool->free_slabs != 0) {
        struct pool_slab *slab = slab_from(link, partial);
        list_remove(link);
        pool->free_slabs = 0;
        pool->free_objects -= pool->capacity;
        slab_end(pool, slab);
    }
    return (before - pool->slabs) * pool->slab_bytes;
}

void depot_end(struct cairn_pool *pool)
{
    while (pool->every.next != &pool->every)
        slab_end(pool, slab_from(pool->every.next, every));
}
