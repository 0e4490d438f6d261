/* The inline half of cairn/pool.h: structures, and bodies of functions that it declares.
 *
 * Programs include cairn/pool.h and use no name that only this file declares. The compiler copies
 * the code and the layouts into programs, so they are part of the binary interface.
 */
#ifndef CAIRN_DETAIL_POOL_H
#define CAIRN_DETAIL_POOL_H

#include <cairn/pool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The functions that CAIRN_POOL defines. */
#define CAIRN_POOL_TYPED CAIRN_NODISCARD __attribute__((unused)) static inline
#define CAIRN_POOL_FUNCTIONS(prefix, from, type)                                                   \
    CAIRN_POOL_TYPED type *prefix##_get(from *source) { return (type *)from##_get(source); }       \
    CAIRN_POOL_TYPED type *prefix##_get_zero(from *source)                                         \
    {                                                                                              \
        void *object = from##_get(source);                                                         \
        return (type *)(object ? __builtin_memset(object, 0, sizeof(type)) : NULL);                \
    }                                                                                              \
    __attribute__((unused)) static inline void prefix##_put(from *source, type *object)            \
    {                                                                                              \
        from##_put(source, object);                                                                \
    }

/* The number of entries of `recent`, and shifts of an address and of a product. */
enum { CAIRN_POOL_RECENT = 64, CAIRN_POOL_RECENT_SHIFT = 16, CAIRN_POOL_NUMBER_SHIFT = 16 };

/* An entry of `recent` without a slab. No address has a small distance from it, not even NULL. */
#define CAIRN_POOL_NONE (((uintptr_t)1 << 47) - 1)

/* An entry of a magazine. */
struct cairn_pool_entry {
    void *object;         /* a free object */
    unsigned char *state; /* the byte of the object in its slab: 1 if in use, else 0 */
};

/* The start of a magazine, and of a pool, which begins with a magazine of its own. See
 * pool_layout.h. */
struct cairn_pool_view {
    struct cairn_pool_entry *top;        /* owner: above the object that is taken next */
    struct cairn_pool_entry *limit;      /* const: `top` when the magazine is full */
    uint64_t inverse;                    /* const: see cairn_pool_magazine_put */
    uint64_t numbers;                    /* const: objects in a slab have smaller numbers */
    uintptr_t recent[CAIRN_POOL_RECENT]; /* atomic: first objects of slabs, by address */
};

/* The slow halves of the inline functions: refill and flush, shared pools, slabs that are not in
 * `recent`, NULL, misuse. */
CAIRN_API void *cairn_pool_get_slowly(cairn_pool_magazine *magazine) CAIRN_NOEXCEPT;
CAIRN_API void cairn_pool_put_slowly(cairn_pool_magazine *magazine, void *object) CAIRN_NOEXCEPT;

/* Computes the place in `recent` for the slab at an address. Adjacent slabs have different places.
 * Slabs at equal distances from the starts of two arenas have different places, too; the first
 * slabs of a pool are often such slabs in a program that also uses malloc. */
static inline size_t cairn_pool_recent_place(uintptr_t address) CAIRN_NOEXCEPT
{
    return (address >> CAIRN_POOL_RECENT_SHIFT ^ address >> (CAIRN_POOL_RECENT_SHIFT + 3)) %
           CAIRN_POOL_RECENT;
}

static inline void *cairn_pool_magazine_get(cairn_pool_magazine *magazine) CAIRN_NOEXCEPT
{
    struct cairn_pool_view *view = (struct cairn_pool_view *)magazine;
    struct cairn_pool_entry *top = view->top - 1;
    unsigned char *state = top->state;
    /* The entry below the lowest one has state 1. Other entries have it only if two threads
     * returned the object at one instant and it was taken since. */
    if (__builtin_expect(*state != 0, 0))
        return cairn_pool_get_slowly(magazine);
    *state = 1;
    view->top = top;
    return top->object;
}

/* The distance from the first object of the slab, times the inverse of the object's size, is the
 * number of the object. For any other address the product is larger than every number. The states
 * are in front of the first object, downwards. */
static inline void cairn_pool_magazine_put(cairn_pool_magazine *magazine,
                                           void *object) CAIRN_NOEXCEPT
{
    struct cairn_pool_view *view = (struct cairn_pool_view *)magazine;
    uintptr_t address = (uintptr_t)object;
    uintptr_t first =
        __atomic_load_n(&view->recent[cairn_pool_recent_place(address)], __ATOMIC_RELAXED);
    uint64_t product = (uint64_t)(address - first) * view->inverse;
    uint64_t number = product >> CAIRN_POOL_NUMBER_SHIFT | product
                                                               << (64 - CAIRN_POOL_NUMBER_SHIFT);
    unsigned char *state = (unsigned char *)(first - 1 - number);
    struct cairn_pool_entry *top = view->top;
    if (__builtin_expect(number >= view->numbers || *state != 1 || top == view->limit, 0)) {
        cairn_pool_put_slowly(magazine, object);
        return;
    }
    *state = 0;
    top->object = object;
    top->state = state;
    view->top = top + 1;
}

static inline void *cairn_pool_get(cairn_pool *pool) CAIRN_NOEXCEPT
{
    return cairn_pool_magazine_get((cairn_pool_magazine *)pool);
}

static inline void cairn_pool_put(cairn_pool *pool, void *object) CAIRN_NOEXCEPT
{
    cairn_pool_magazine_put((cairn_pool_magazine *)pool, object);
}

#ifdef __cplusplus
}
#endif
#endif
