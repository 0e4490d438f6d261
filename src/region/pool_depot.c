/* The pool's depot: the slabs, and the objects that are in slabs and not in a magazine; and the
 * pool's messages of misuse (docs/reference/MESSAGES.md).
 *
 * Objects leave and return by whole words of bits where possible, and the lowest address leaves
 * first. A slab whose objects have all returned is kept behind the others while it is the only one.
 *
 * A slab is made without the lock and added with the lock. Several threads may make slabs at the
 * same time; an unneeded one is discarded. So there is never a second slab without objects in use.
 *
 * Structures, invariants and threads are described in pool_layout.h.
 */
#include "base/bits.h"
#include "base/check.h"
#include "region/pool_layout.h"

#include <string.h>

void pool_must_live(const struct cairn_pool *pool)
{
    if (unlikely(pool->own.pool != pool))
        die("pool %p: used after its end", (const void *)pool);
}

/* The pool's own magazine has the address of the pool, so the message names the pool. */
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

static void pool_list_insert(struct slab_list *after, struct slab_list *link)
{
    link->next = after->next;
    link->prev = after;
    after->next->prev = link;
    after->next = link;
}

static void pool_list_remove(struct slab_list *link)
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
    span->next = (struct span *)(void *)pool; /* names the pool and is never followed */
    slab->span = span;
    slab->capacity = 0;
    slab->free_count = 0;
    slab->first_word = 0;
    memset((char *)slab + BITS_AT, 0, pool->first - BITS_AT);
    return slab;
}

/* Gives a new slab its objects, `capacity` of them. A slab never gets more. */
static void pool_slab_fill(struct cairn_pool *pool, struct pool_slab *slab, uint32_t capacity)
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

/* Adds a slab to the list that pool_unlock returns to the page layer. */
static void pool_slab_discard(struct cairn_pool *pool, struct pool_slab *slab)
{
    slab->next_ended = pool->ended;
    pool->ended = slab;
}

void depot_add(struct cairn_pool *pool, struct pool_slab *slab)
{
    if (pool->free_slabs != 0 || !depot_may_grow(pool)) {
        pool_slab_discard(pool, slab); /* other threads have added one */
        return;
    }
    pool_slab_fill(pool, slab,
                   (uint32_t)smaller_of(pool->capacity, pool->objects_most - pool->objects));
    pool_list_insert(pool->partial.prev, &slab->partial);
    pool_list_insert(&pool->every, &slab->every);
    pool->slabs++;
    pool->free_slabs++;
    pool->objects += slab->capacity;
    pool->free_objects += slab->capacity;
}

/* Removes a slab from a magazine's `recent`, so that put no longer finds it. A slab may have
 * several entries. */
static void pool_magazine_forget(struct cairn_pool_magazine *magazine,
                                 const struct cairn_pool *pool, struct pool_slab *slab)
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

/* Ends a slab that is not in `partial`. */
static void pool_slab_end(struct cairn_pool *pool, struct pool_slab *slab)
{
    pool_list_remove(&slab->every);
    pool->slabs--;
    pool->objects -= slab->capacity;
    pool->free_objects -= slab->free_count;
    pool_magazine_forget(&pool->own, pool, slab);
    for (struct cairn_pool_magazine *other = pool->magazines; other; other = other->next)
        pool_magazine_forget(other, pool, slab);
    pool_slab_discard(pool, slab);
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

/* Writes an entry below `top` for each bit that is set.
 * Returns: the lowered top. */
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

/* The lowest `count` of the bits that are set. More than `count` are set. */
static uint64_t pool_lowest_bits(uint64_t bits, uint32_t count)
{
    uint64_t rest = bits;
    for (; count > 0; count--)
        rest &= rest - 1;
    return bits ^ rest;
}

/* Moves the first `count` free objects of a slab into entries below `top`.
 * Returns: the lowered top. */
static struct cairn_pool_entry *pool_slab_claim(struct cairn_pool *pool, struct pool_slab *slab,
                                                struct cairn_pool_entry *top, uint32_t count)
{
    uint64_t *bits = slab_bits(slab);
    uint32_t left = count;
    uint32_t word = slab->first_word;
    while (left > 0) {
        uint64_t claimed = bits[word];
        uint32_t found = claimed == UINT64_MAX ? 64 : count_bits(claimed);
        if (found > left) {
            claimed = pool_lowest_bits(claimed, left);
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
        pool_list_remove(&slab->partial);
    return top;
}

bool depot_refill(struct cairn_pool_magazine *magazine)
{
    struct cairn_pool *pool = magazine->pool;
    uint32_t most = (uint32_t)(magazine->view.limit - magazine->entries + 1) / 2;
    uint32_t left = (uint32_t)smaller_of(most, pool->free_objects);
    if (left == 0)
        return false;
    /* From the top down, so that get takes the lowest address first. */
    struct cairn_pool_entry *top = magazine->entries + left;
    magazine->view.top = top;
    pool->free_objects -= left;
    while (left > 0) {
        struct pool_slab *slab = slab_from(pool->partial.next, partial);
        uint32_t count = (uint32_t)smaller_of(left, slab->free_count);
        top = pool_slab_claim(pool, slab, top, count);
        left -= count;
    }
    return true;
}

/* Counts `count` objects that have returned to a slab, and moves the slab to its new list. A slab
 * with all its objects is kept if it is the only one, and ends otherwise. */
static void pool_slab_gained(struct cairn_pool *pool, struct pool_slab *slab, uint32_t count)
{
    if (slab->free_count == 0)
        pool_list_insert(&pool->partial, &slab->partial);
    slab->free_count += count;
    pool->free_objects += count;
    if (slab->free_count < slab->capacity)
        return;
    pool_list_remove(&slab->partial);
    if (pool->free_slabs == 0) {
        pool->free_slabs = 1;
        pool_list_insert(pool->partial.prev, &slab->partial);
    } else {
        pool_slab_end(pool, slab);
    }
}

/* Returns the objects of the entries from `entry` on that are in one slab. The bits of one word are
 * collected first, because most objects return in the order in which they were taken. The states of
 * other slabs are more than 64 bytes away, so an equal word number means an equal slab.
 * Returns: the first entry of another slab, or `end`. */
static const struct cairn_pool_entry *pool_slab_return(struct cairn_pool *pool,
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
    pool_slab_gained(pool, slab, (uint32_t)(entry - from));
    return entry;
}

/* The oldest entries return to their slabs, because they are no longer in the cache. */
void depot_flush(struct cairn_pool_magazine *magazine, uint32_t count)
{
    const struct cairn_pool_entry *end = magazine->entries + count;
    for (const struct cairn_pool_entry *entry = magazine->entries; entry < end;)
        entry = pool_slab_return(magazine->pool, entry, end);
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
        pool_list_remove(&slab->partial);
        pool->free_slabs = 0;
        pool_slab_end(pool, slab);
    }
    return (before - pool->slabs) * pool->slab_bytes;
}

void depot_end(struct cairn_pool *pool)
{
    while (pool->every.next != &pool->every) {
        struct pool_slab *slab = slab_from(pool->every.next, every);
        if (slab->free_count != 0)
            pool_list_remove(&slab->partial);
        pool->free_slabs -= slab->free_count == slab->capacity;
        pool_slab_end(pool, slab);
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
