/* The pool's structures: pool, magazine, slab.
 *
 * A slab is a power-of-two run of pages at a multiple of its size:
 *
 *     | header | bit words | (padding) | … state 1 | state 0 | object 0 | object 1 | … |
 *     ^ base   ^ base + 64                                     ^ base + first
 *
 * The states lie in front of the first object, downwards, so that both are found from its address.
 * The run's span, which the page map finds by the base, names the pool in its `next`: so a pointer
 * is known to be of this pool before anything near it is read. A small table (`recent`) of slabs
 * lately found saves put the page map.
 *
 * An object is live (in use), in a magazine, or in its slab. The state byte says LIVE or not; the
 * bit is set when the object is in its slab. An entry of a magazine is the object and the place of
 * its state byte, so that get computes nothing. Under the entries lies one whose state says LIVE:
 * so get needs one test for an empty magazine and for an object that is in use, because two threads
 * put it at the same instant.
 *
 * Invariants (cairn_pool_check):
 *   free_count(slab) == number of its bits set; slab in `partial` == free_count != 0;
 *   objects of bits set and of magazine entries: state FREE, and none is there twice;
 *   objects == sum of capacity(slab) <= objects_most; free_objects == sum of free_count(slab);
 *   free_slabs == number of slabs with free_count == capacity, at most 1; it stands last;
 *   what stands in `recent` is the first object of a slab of the pool, or none.
 *
 * Threading: a magazine belongs to one thread at a time. Slab headers and bits: the pool's lock
 * when it is shared, else the pool's user. A state byte belongs to whoever has the object: its user
 * between get and put, the magazine or the slab afterwards; handing over is ordered by the program
 * or by the lock. `recent` is atomic: a stale or lost entry costs a look into the page map.
 */
#ifndef CAIRN_REGION_POOL_LAYOUT_H
#define CAIRN_REGION_POOL_LAYOUT_H

#include "base/bits.h"
#include "cairn/pool.h"
#include "page/page.h"

enum { OBJECT_FREE = 0, OBJECT_LIVE = 1 };

enum { MAGAZINE_MOST = 192, BITS_AT = 64 /* in the slab */ };

struct cairn_pool_magazine {
    struct cairn_pool_view view;
    struct cairn_pool *pool;          /* const; NULL after its end */
    bool attached;                    /* const: false for the pool's own */
    uint32_t process;                 /* const: fork_lock_process() when it was attached */
    struct cairn_pool_magazine *next; /* pool's lock: attached ones */
    struct cairn_pool_magazine *prev; /* pool's lock */
    uint8_t bottom_state;             /* const: LIVE */
    struct cairn_pool_entry bottom;   /* const: no object, and that state */
    struct cairn_pool_entry entries[MAGAZINE_MOST]; /* owner */
};

static_check(offsetof(struct cairn_pool_magazine, view) == 0, "the inline paths cast");
static_check(offsetof(struct cairn_pool_magazine, entries) ==
                 offsetof(struct cairn_pool_magazine, bottom) + sizeof(struct cairn_pool_entry),
             "the bottom lies under the entries");

struct slab_list {
    struct slab_list *next; /* pool's lock */
    struct slab_list *prev; /* pool's lock */
};

#define slab_from(link, member)                                                                    \
    ((struct pool_slab *)(void *)((char *)(link)-offsetof(struct pool_slab, member)))

struct pool_slab {
    struct slab_list partial;     /* in the pool's `partial` when free_count is not 0 */
    struct slab_list every;       /* in the pool's `every` */
    struct span *span;            /* const */
    struct pool_slab *next_ended; /* lock: in the pool's `ended`, when in no other list */
    uint32_t capacity;            /* const once added: its objects, the pool's or fewer */
    uint32_t free_count;          /* pool's lock: bits set */
    uint32_t first_word;          /* pool's lock: no bit is set in a word before */
};

static_check(sizeof(struct pool_slab) <= BITS_AT, "the bits follow the header");

struct cairn_pool {
    struct cairn_pool_magazine own; /* of a shared pool: empty and full */
    uintptr_t slab_mask;            /* const: an object's address & slab_mask is its slab's base */
    size_t slab_bytes;              /* const */
    size_t first;                   /* const: offset of object 0 from the base */
    size_t stride_bytes;            /* const: from object to object */
    size_t unit_bytes;              /* const: from number to number, see below */
    size_t align_bytes;             /* const */
    uint32_t capacity;              /* const: objects that a slab has room for */
    bool shared;                    /* const */
    size_t objects_most;            /* const */
    const char *name;               /* const */
    bool (*out_of_memory)(void *context, size_t size_bytes); /* const; may be NULL */
    void *out_of_memory_context;                             /* const */
    struct fork_lock lock;                 /* used and watched when the pool is shared */
    struct cairn_pool_magazine *common;    /* lock; of a shared pool: for the plain get and put */
    struct cairn_pool_magazine *magazines; /* lock: attached ones, `common` among them */
    struct slab_list partial;              /* lock: an empty slab stands last */
    struct slab_list every;                /* lock */
    struct pool_slab *ended;               /* lock: to be given back by pool_unlock */
    size_t slabs;                          /* lock */
    size_t free_slabs;                     /* lock */
    size_t objects;                        /* lock: that the slabs have */
    size_t free_objects;                   /* lock: of those in their slabs */
};

static_check(offsetof(struct cairn_pool, own) == 0, "the inline paths cast");
static_check(sizeof(struct cairn_pool) <= PAGE_BYTES - sizeof(void *), "with its list's link");

inline_always struct pool_slab *slab_of(const struct cairn_pool *pool, const void *object)
{
    return (struct pool_slab *)((uintptr_t)object & pool->slab_mask);
}

inline_always char *slab_first(const struct cairn_pool *pool, struct pool_slab *slab)
{
    return (char *)slab + pool->first;
}

/* The number of an object in its slab: below view.numbers for the start of one, else anything
 * above. A number is one stride; but a stride may have at most NUMBER_SHIFT factors 2, so one with
 * more counts several units, and only every so many-th number is an object's.
 *
 * For a unit of odd * 2^k bytes, `inverse` is the odd part's inverse modulo 2^64, times
 * 2^(NUMBER_SHIFT - k): n units become n * 2^NUMBER_SHIFT, and what is no multiple has low bits
 * set, which the rotation brings to the top. Exact for distances below 2^48, and so for all
 * addresses. */
inline_always uint64_t number_of(const struct cairn_pool *pool, struct pool_slab *slab,
                                 const void *object)
{
    uint64_t distance = (uint64_t)((uintptr_t)object - (uintptr_t)slab_first(pool, slab));
    return rotate_right(distance * pool->own.view.inverse, CAIRN_POOL_NUMBER_SHIFT);
}

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

/* Whether the pointer lies in a slab of the pool; nothing near it is read. */
inline_always bool is_ours(const struct cairn_pool *pool, const void *object)
{
    return (const void *)page_map_find(slab_of(pool, object))->next == pool;
}

inline_always uint32_t magazine_count(const struct cairn_pool_magazine *magazine)
{
    return (uint32_t)(magazine->view.top - magazine->entries);
}

/* Whose objects the plain get and put take: a shared pool's own magazine stays empty and full. */
inline_always struct cairn_pool_magazine *plain_magazine(struct cairn_pool *pool)
{
    return pool->shared ? pool->common : &pool->own;
}

/* The depot, pool_depot.c. With the lock, when the pool is shared: */
bool depot_refill(struct cairn_pool_magazine *magazine); /* false: no object is in a slab */
void depot_flush(struct cairn_pool_magazine *magazine, uint32_t count);
size_t depot_trim(struct cairn_pool *pool);
void depot_end(struct cairn_pool *pool);
bool depot_may_grow(const struct cairn_pool *pool);
void depot_add(struct cairn_pool *pool, struct pool_slab *slab);
/* Debug builds: asserts what can be told in constant time. cairn_pool_check looks at everything. */
void depot_verify(const struct cairn_pool *pool);
/* Without it, as the system may have to be asked. A slab without objects; NULL: out of memory. */
struct pool_slab *pool_slab_make(struct cairn_pool *pool);

/* Dies when the pool, or the magazine, has ended and none has taken its place. pool_fault.c. */
void pool_must_live(const struct cairn_pool *pool);
void magazine_must_live(const struct cairn_pool_magazine *magazine);

/* Dies: `object` was put and is no live object of the pool. pool_fault.c. */
no_return void die_of_object(const struct cairn_pool *pool, const void *object);
/* Dies: one of these objects, of that slab, was put twice at once, and so passed. */
no_return void die_of_second_put(const struct cairn_pool *pool, struct pool_slab *slab,
                                 const struct cairn_pool_entry *from,
                                 const struct cairn_pool_entry *end);

inline_always void pool_lock(struct cairn_pool *pool)
{
    if (pool->shared)
        fork_lock_acquire(&pool->lock);
}

/* Also gives back the slabs that ended under the lock: the page layer may ask the system. */
void pool_unlock(struct cairn_pool *pool);

#endif
