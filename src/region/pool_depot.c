/* The pool's depot: slabs, and the objects that are in them and not in a magazine.
 *
 * Objects leave and come back by words of bits, where they can, and leave lowest address first. A
 * slab that has all its objects back is kept, behind those in use, while it is the only one.
 *
 * A slab is made without the lock and added with it. Several threads may have made one meanwhile:
 * one without a use is discarded, so there is never a second slab without objects in use.
 *
 * Invariants and threading: pool_layout.h.
 */
#include "base/bits.h"
#include "base/check.h"
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

struct pool_slab *pool_slab_make(struct cairn_pool *pool)
{
    struct span *span = run_take(pool->slab_bytes, pool->slab_bytes);
    if (span == NULL)
        return NULL;
    struct pool_slab *slab = (struct pool_slab *)(void *)span->base;
    span->next = (struct span *)(void *)pool; /* never followed: it names the pool */
    slab->span = span;
    slab->capacity = 0;
    slab->free_count = 0;
    slab->first_word = 0;
    memset((char *)slab + BITS_AT, 0, pool->first - BITS_AT);
    return slab;
}

/* Puts the slab's first objects into it, which are all that it ever has. */
static void slab_fill(struct cairn_pool *pool, struct pool_slab *slab, uint32_t capacity)
{
    uint64_t *bits = slab_bits(slab);
    size_t step = pool->stride_bytes / pool->unit_bytes;
    slab->capacity = capacity;
    slab->free_count = capacity;
    if (step != 1) {
        for (size_t i = 0; i < capacity; i++)
            bits[i * step / 64] |= (uint64_t)1 << i * step % 64;
        return;
    }
    for (size_t word = 0; word < capacity / 64; word++)
        bits[word] = UINT64_MAX;
    if (capacity % 64 != 0)
        bits[capacity / 64] = ((uint64_t)1 << capacity % 64) - 1;
}

bool depot_may_grow(const struct cairn_pool *pool) { return pool->objects < pool->objects_most; }

static void slab_discard(struct cairn_pool *pool, struct pool_slab *slab)
{
    slab->next_ended = pool->ended;
    pool->ended = slab;
}

void depot_add(struct cairn_pool *pool, struct pool_slab *slab)
{
    if (pool->free_slabs != 0 || !depot_may_grow(pool)) {
        slab_discard(pool, slab); /* other threads were quicker */
        return;
    }
    slab_fill(pool, slab, (uint32_t)smaller_of(pool->capacity, pool->objects_most - pool->objects));
    list_insert(pool->partial.prev, &slab->partial);
    list_insert(&pool->every, &slab->every);
    pool->slabs++;
    pool->free_slabs++;
    pool->objects += slab->capacity;
    pool->free_objects += slab->capacity;
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
    pool->objects -= slab->capacity;
    pool->free_objects -= slab->free_count;
    magazine_forget(&pool->own, pool, slab);
    for (struct cairn_pool_magazine *other = pool->magazines; other; other = other->next)
        magazine_forget(other, pool, slab);
    slab_discard(pool, slab);
}

void pool_unlock(struct cairn_pool *pool)
{
    struct pool_slab *ended = pool->ended;
    pool->ended = NULL;
    depot_verify(pool);
    if (pool->shared)
        fork_lock_release(&pool->lock);
    for (struct pool_slab *next; ended; ended = next) {
        next = ended->next_ended;
        struct span *span = ended->span;
        span->next = NULL;
        run_give(span);
    }
}

/* Writes entries for the objects whose bits are set, downwards from `top`, which it returns. */
inline_always struct cairn_pool_entry *write_entries(struct cairn_pool_entry *top, uint64_t bits,
                                                     char *object, uint8_t *state,
                                                     size_t unit_bytes)
{
    if (bits == UINT64_MAX) {
        for (size_t i = 0; i < 64; i++)
            *--top = (struct cairn_pool_entry){object + i * unit_bytes, state - i};
        return top;
    }
    for (; bits != 0; bits &= bits - 1) {
        unsigned i = lowest_bit(bits);
        *--top = (struct cairn_pool_entry){object + i * unit_bytes, state - i};
    }
    return top;
}

/* The lowest `count` bits of those that are set; there are more. */
static uint64_t lowest_bits(uint64_t bits, uint32_t count)
{
    uint64_t rest = bits;
    for (; count > 0; count--)
        rest &= rest - 1;
    return bits ^ rest;
}

/* Moves the first `count` objects of a slab into entries below `top`, which it returns lowered. */
static struct cairn_pool_entry *slab_claim(struct cairn_pool *pool, struct pool_slab *slab,
                                           struct cairn_pool_entry *top, uint32_t count)
{
    uint64_t *bits = slab_bits(slab);
    uint32_t left = count;
    uint32_t word = slab->first_word;
    while (left > 0) {
        uint64_t claimed = bits[word];
        uint32_t found = claimed == UINT64_MAX ? 64 : count_bits(claimed);
        if (found > left) {
            claimed = lowest_bits(claimed, left);
            found = left;
        }
        size_t number = (size_t)word * 64;
        top = write_entries(top, claimed, object_at(pool, slab, number),
                            state_of(pool, slab, number), pool->unit_bytes);
        bits[word] ^= claimed;
        left -= found;
        word += left > 0;
    }
    slab->first_word = word;
    pool->free_slabs -= slab->free_count == slab->capacity;
    slab->free_count -= count;
    if (slab->free_count == 0)
        list_remove(&slab->partial);
    return top;
}

bool depot_refill(struct cairn_pool_magazine *magazine)
{
    struct cairn_pool *pool = magazine->pool;
    uint32_t most = (uint32_t)(magazine->view.limit - magazine->entries + 1) / 2;
    uint32_t left = (uint32_t)smaller_of(most, pool->free_objects);
    if (left == 0)
        return false;
    /* From the top down, so that the lowest address is got first. */
    struct cairn_pool_entry *top = magazine->entries + left;
    magazine->view.top = top;
    pool->free_objects -= left;
    while (left > 0) {
        struct pool_slab *slab = slab_from(pool->partial.next, partial);
        uint32_t count = (uint32_t)smaller_of(left, slab->free_count);
        top = slab_claim(pool, slab, top, count);
        left -= count;
    }
    return true;
}

/* The slab has so many objects more, and is not full. */
static void slab_gained(struct cairn_pool *pool, struct pool_slab *slab, uint32_t count)
{
    if (slab->free_count == 0)
        list_insert(&pool->partial, &slab->partial);
    slab->free_count += count;
    pool->free_objects += count;
    if (slab->free_count < slab->capacity)
        return;
    list_remove(&slab->partial);
    if (pool->free_slabs == 0) {
        pool->free_slabs = 1;
        list_insert(pool->partial.prev, &slab->partial);
    } else {
        slab_end(pool, slab);
    }
}

/* Returns the objects from `entry` on that are of one slab, up to `end`. The first that is not.
 * Those of one word of bits are gathered first: most come in the order in which they were made. The
 * states of other slabs are more than 64 bytes away, so an equal word says that the slab is. */
static const struct cairn_pool_entry *slab_return(struct cairn_pool *pool,
                                                  const struct cairn_pool_entry *entry,
                                                  const struct cairn_pool_entry *end)
{
    struct pool_slab *slab = slab_of(pool, entry->object);
    const struct cairn_pool_entry *from = entry;
    uint64_t *bits = slab_bits(slab);
    const uint8_t *states = state_of(pool, slab, 0);
    do {
        uint64_t word = (uint64_t)(states - entry->state) / 64;
        uint64_t gathered = 0;
        uint64_t twice = 0;
        do {
            uint64_t bit = (uint64_t)1 << (uint64_t)(states - entry->state) % 64;
            twice |= *entry->state | (gathered & bit);
            gathered |= bit;
            entry++;
        } while (entry < end && (uint64_t)(states - entry->state) / 64 == word);
        if (unlikely((twice | (bits[word] & gathered)) != 0))
            die_of_second_put(pool, slab, from, entry);
        bits[word] |= gathered;
        slab->first_word = (uint32_t)smaller_of(slab->first_word, word);
    } while (entry < end && slab_of(pool, entry->object) == slab);
    slab_gained(pool, slab, (uint32_t)(entry - from));
    return entry;
}

/* The oldest entries go: they are out of the cache. */
void depot_flush(struct cairn_pool_magazine *magazine, uint32_t count)
{
    const struct cairn_pool_entry *end = magazine->entries + count;
    for (const struct cairn_pool_entry *entry = magazine->entries; entry < end;)
        entry = slab_return(magazine->pool, entry, end);
    magazine->view.top -= count;
    memmove(magazine->entries, magazine->entries + count,
            magazine_count(magazine) * sizeof(struct cairn_pool_entry));
}

size_t depot_trim(struct cairn_pool *pool)
{
    size_t before = pool->slabs;
    struct cairn_pool_magazine *magazine = plain_magazine(pool);
    depot_flush(magazine, magazine_count(magazine));
    if (pool->free_slabs != 0) {
        struct pool_slab *slab = slab_from(pool->partial.prev, partial);
        list_remove(&slab->partial);
        pool->free_slabs = 0;
        slab_end(pool, slab);
    }
    return (before - pool->slabs) * pool->slab_bytes;
}

void depot_end(struct cairn_pool *pool)
{
    while (pool->every.next != &pool->every) {
        struct pool_slab *slab = slab_from(pool->every.next, every);
        if (slab->free_count != 0)
            list_remove(&slab->partial);
        pool->free_slabs -= slab->free_count == slab->capacity;
        slab_end(pool, slab);
    }
}

void depot_verify(const struct cairn_pool *pool)
{
    if (!config_debug)
        return;
    check_internal(pool->free_slabs <= 1 && pool->free_slabs <= pool->slabs);
    check_internal(pool->free_objects <= pool->objects && pool->objects <= pool->objects_most);
    check_internal((pool->partial.next == &pool->partial) == (pool->free_objects == 0));
    if (pool->free_objects == 0)
        return;
    const struct pool_slab *last = slab_from(pool->partial.prev, partial);
    check_internal(last->free_count != 0 && last->free_count <= last->capacity);
    check_internal((last->free_count == last->capacity) == (pool->free_slabs == 1));
}
