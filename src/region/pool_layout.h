/* The pool's structures: pool, magazine, slab; and the interface of pool_depot.c.
 *
 * A slab is a run of pages whose size is a power of two, at a multiple of its size:
 *
 *     | header | bit words | (padding) | … state 1 | state 0 | object 0 | object 1 | … |
 *     ^ base   ^ base + 64                                     ^ base + first
 *
 * The states are in front of the first object, in descending order, so that an object's address
 * determines the places of both. The page map finds the slab's span by the base, and the span's
 * `next` names the pool. So a pointer is known to be in this pool before anything near it is read.
 * A small table (`recent`) of the slabs found last avoids the search in the page map.
 *
 * An object is live (in use), in a magazine, or in its slab. The state byte says LIVE or FREE; the
 * bit is set when the object is in its slab. An entry of a magazine holds the object and the
 * address of its state byte, so get computes nothing. The entry below the first one has a state
 * that says LIVE. So one test in get detects both an empty magazine and an object that is in use
 * because two threads put it at the same instant.
 *
 * Invariants (cairn_pool_check):
 *   free_count(slab) == number of its bits set; slab in `partial` == free_count != 0;
 *   objects of bits set and of magazine entries: state FREE, and none occurs twice;
 *   objects == sum of capacity(slab) <= objects_most; free_objects == sum of free_count(slab);
 *   free_slabs == number of slabs with free_count == capacity, at most 1, last in `partial`;
 *   an entry of `recent` is the first object of a slab of the pool, or none.
 *
 * Threads: one at a time in a magazine. Slab headers and bits belong to the pool's lock when the
 *     pool is shared, else to the one thread that uses the pool. A state byte belongs to the user
 *     between get and put, and to the magazine or the slab otherwise. The program or the lock
 *     orders each change of ownership. `recent` is atomic; an outdated or lost entry costs a search
 *     in the page map.
 */
#ifndef CAIRN_REGION_POOL_LAYOUT_H
#define CAIRN_REGION_POOL_LAYOUT_H

#include "base/bits.h"
#include "cairn/pool.h"
#include "page/page.h"

enum { OBJECT_FREE = 0, OBJECT_LIVE = 1 };

enum { MAGAZINE_MAX = 192, BITS_AT = 64 /* offset of the bit words in a slab */ };

struct cairn_pool_magazine {
    struct cairn_pool_view view;
    struct cairn_pool *pool;          /* const after init; NULL once the magazine has ended */
    bool attached;                    /* const after init: false for the pool's own magazine */
    uint32_t process;                 /* const after init: fork_lock_process() at that time */
    struct cairn_pool_magazine *next; /* lock: list of the attached magazines */
    struct cairn_pool_magazine *prev; /* lock: the list's other direction */
    uint8_t bottom_state;             /* const after init: LIVE */
    struct cairn_pool_entry bottom;   /* const after init: no object, and the state above */
    struct cairn_pool_entry entries[MAGAZINE_MAX]; /* owner of the magazine */
};

static_check(offsetof(struct cairn_pool_magazine, view) == 0, "the inline paths cast");
static_check(offsetof(struct cairn_pool_magazine, entries) ==
                 offsetof(struct cairn_pool_magazine, bottom) + sizeof(struct cairn_pool_entry),
             "the bottom lies under the entries");

struct slab_list {
    struct slab_list *next; /* lock: the pool's */
    struct slab_list *prev; /* lock: the pool's */
};

#define slab_from(link, member)                                                                    \
    ((struct pool_slab *)(void *)((char *)(link) - offsetof(struct pool_slab, member)))

struct pool_slab {
    struct slab_list partial; /* lock: in the pool's `partial` when free_count is not 0 */
    struct slab_list every;   /* lock: in the pool's `every` */
    struct span *span;        /* const after init */
    /* lock: list `ended` of the pool; used by slabs in no other list */
    struct pool_slab *next_ended;
    /* const once added: number of objects, at most the pool's capacity */
    uint32_t capacity;
    uint32_t free_count; /* lock: number of bits set */
    uint32_t first_word; /* lock: no bit is set in an earlier word */
};

static_check(sizeof(struct pool_slab) <= BITS_AT, "the bits follow the header");

struct cairn_pool {
    struct cairn_pool_magazine own; /* of a shared pool: both empty and full */
    /* const after init: an object's address & slab_mask is its slab's base */
    uintptr_t slab_mask;
    size_t slab_bytes;   /* const after init */
    size_t first;        /* const after init: offset of object 0 from the slab's base */
    size_t stride_bytes; /* const after init: distance of two objects */
    size_t unit_bytes;   /* const after init: distance of two numbers, see number_of */
    size_t align_bytes;  /* const after init */
    /* const after init: number of objects for which a slab has space */
    uint32_t capacity;
    bool shared;                                             /* const after init */
    size_t objects_most;                                     /* const after init */
    const char *name;                                        /* const after init */
    bool (*out_of_memory)(void *context, size_t size_bytes); /* const after init; may be NULL */
    void *out_of_memory_context;                             /* const after init */
    struct fork_lock lock; /* used, and taken by fork, when the pool is shared */
    /* const after init: of a shared pool, for the plain get and put; its contents: lock */
    struct cairn_pool_magazine *common;
    struct cairn_pool_magazine *magazines; /* lock: attached magazines and `common` */
    /* lock: slabs with free objects; a slab without objects in use is the last */
    struct slab_list partial;
    struct slab_list every; /* lock: all slabs */
    /* lock: slabs that pool_unlock returns to the page layer */
    struct pool_slab *ended;
    size_t slabs;        /* lock: number of slabs */
    size_t free_slabs;   /* lock: number of slabs without objects in use */
    size_t objects;      /* lock: sum of the slabs' capacities */
    size_t free_objects; /* lock: number of objects in their slabs */
};

static_check(offsetof(struct cairn_pool, own) == 0, "the inline paths cast");
static_check(sizeof(struct cairn_pool) <= PAGE_BYTES - sizeof(void *), "with its list's link");

/* The slab in which an object of the pool would be. The slab need not exist. */
inline_always struct pool_slab *slab_of(const struct cairn_pool *pool, const void *object)
{
    return (struct pool_slab *)((uintptr_t)object & pool->slab_mask);
}

inline_always char *slab_first(const struct cairn_pool *pool, struct pool_slab *slab)
{
    return (char *)slab + pool->first;
}

/* The number of the unit that starts at an address in a slab; view.numbers or more when none starts
 * there. A unit is one object. But a unit may have at most CAIRN_POOL_NUMBER_SHIFT factors 2, so an
 * object with more consists of several units, and only its first unit has the number of an object.
 *
 * For a unit of odd * 2^k bytes, `inverse` is the inverse of `odd` modulo 2^64, times
 * 2^(CAIRN_POOL_NUMBER_SHIFT - k). The product with the distance is n * 2^CAIRN_POOL_NUMBER_SHIFT
 * for n units. The rotation moves the low bits to the top, where they are not 0 if the distance is
 * no multiple of 2^k. If it is no multiple of `odd`, the result is at least 2^48 / odd. So the
 * result is exact for distances below 2^48, which includes all addresses. */
inline_always uint64_t number_of(const struct cairn_pool *pool, struct pool_slab *slab,
                                 const void *object)
{
    uint64_t distance = (uint64_t)((uintptr_t)object - (uintptr_t)slab_first(pool, slab));
    return rotate_right(distance * pool->own.view.inverse, CAIRN_POOL_NUMBER_SHIFT);
}

/* The state byte of the object with a number. */
inline_always uint8_t *state_of(const struct cairn_pool *pool, struct pool_slab *slab,
                                uint64_t number)
{
    return (uint8_t *)slab_first(pool, slab) - 1 - number;
}

inline_always uint64_t *slab_bits(struct pool_slab *slab)
{
    return (uint64_t *)(void *)((char *)slab + BITS_AT);
}

inline_always void *object_at(const struct cairn_pool *pool, struct pool_slab *slab, size_t number)
{
    return slab_first(pool, slab) + number * pool->unit_bytes;
}

inline_always uintptr_t *recent_of(struct cairn_pool_magazine *magazine, const void *address)
{
    return &magazine->view.recent[cairn_pool_recent_place((uintptr_t)address)];
}

/* Whether a pointer is in a slab of the pool. Reads nothing near the pointer. */
inline_always bool is_ours(const struct cairn_pool *pool, const void *object)
{
    return (const void *)page_map_find(slab_of(pool, object))->next == pool;
}

inline_always uint32_t magazine_count(const struct cairn_pool_magazine *magazine)
{
    return (uint32_t)(magazine->view.top - magazine->entries);
}

/* The magazine for the plain get and put: `common` in a shared pool, whose own magazine stays both
 * empty and full. */
inline_always struct cairn_pool_magazine *plain_magazine(struct cairn_pool *pool)
{
    return pool->shared ? pool->common : &pool->own;
}

/* Fills an empty magazine up to half with objects from slabs.
 * Locking: lock of a shared pool held.
 * Returns: false when no object is in a slab. */
bool depot_refill(struct cairn_pool_magazine *magazine);

/* Returns the first `count` objects of a magazine to their slabs. These are the oldest ones.
 * Locking: lock of a shared pool held. */
void depot_flush(struct cairn_pool_magazine *magazine, uint32_t count);

/* Returns the objects of the plain magazine to their slabs, and ends the slab without objects in
 * use.
 * Locking: lock of a shared pool held.
 * Returns: the size of the slabs that ended, in bytes. */
size_t depot_trim(struct cairn_pool *pool);

/* Ends all slabs, with the objects in them.
 * Locking: lock of a shared pool held. */
void depot_end(struct cairn_pool *pool);

/* Whether objects_most allows another slab.
 * Locking: lock of a shared pool held. */
bool depot_may_grow(const struct cairn_pool *pool);

/* Adds a slab of pool_slab_make with all its objects free. Discards it when another thread has
 * added one in the meantime.
 * Locking: lock of a shared pool held. */
void depot_add(struct cairn_pool *pool, struct pool_slab *slab);

/* Debug builds: asserts the invariants that take constant time. cairn_pool_check verifies all of
 * them.
 * Locking: lock of a shared pool held. */
void depot_verify(const struct cairn_pool *pool);

/* Makes a slab that has no objects yet. This may be a system call.
 * Locking: lock not held.
 * Returns: NULL when out of memory. */
struct pool_slab *pool_slab_make(struct cairn_pool *pool);

/* Ends the process when the pool has ended and no other pool has taken its place. */
void pool_must_live(const struct cairn_pool *pool);

/* Ends the process when the magazine has ended and no other magazine has taken its place. */
void magazine_must_live(const struct cairn_pool_magazine *magazine);

/* Ends the process: `object` was put and is no live object of the pool. */
no_return void die_of_object(const struct cairn_pool *pool, const void *object);

/* Ends the process: two threads put one of these objects of a slab at the same instant, and neither
 * put detected it. */
no_return void die_of_second_put(const struct cairn_pool *pool, struct pool_slab *slab,
                                 const struct cairn_pool_entry *from,
                                 const struct cairn_pool_entry *end);

inline_always void pool_lock(struct cairn_pool *pool)
{
    if (pool->shared)
        fork_lock_acquire(&pool->lock);
}

/* Releases the lock of a shared pool. Then returns the slabs that ended under the lock to the page
 * layer, which may need a system call. */
void pool_unlock(struct cairn_pool *pool);

#endif
