/* Pool: objects of one size, got and put back in any order, in about a nanosecond each.
 *
 * Objects lie gapless in slabs, power-of-two runs of pages, behind a table that has one byte and
 * one bit for each of them; an object itself holds nothing of the pool's, in use or not, so 8-byte
 * objects cost 8 bytes and a bit more, and content survives put until the next get (do not rely on
 * it). Free objects are kept last in first out in a magazine, an array of pointers; the slabs are
 * visited for many at a time. Slabs whose objects are all back go back to the page layer but for
 * one.
 *
 * Algorithm: slabs and magazines after J. Bonwick and J. Adams, "Magazines and Vmem", USENIX 2001;
 * the object's number by multiplication with the inverse of its size, Warren, "Hacker's Delight",
 * section 10-17.
 *
 *     CAIRN_POOL(session, struct session);     defines session_pool_new, _get, _put and others
 *
 *     cairn_pool *sessions = session_pool_new(NULL);
 *     if (sessions == NULL)
 *         return ENOMEM;
 *     struct session *session = session_pool_get(sessions);
 *     if (session == NULL)
 *         return ENOMEM;
 *     …
 *     session_pool_put(sessions, session);
 *     cairn_pool_delete(sessions);
 *
 * Threads: a pool is used by one thread at a time; it may go from thread to thread, if the program
 * orders the two. Two threads at once in such a pool, or in one magazine, are not found. A pool
 * made with `shared` may be used by any thread at any time, in every function but walk and delete:
 * get and put take a lock then, and a thread in a hurry attaches a magazine of its own, which needs
 * the lock once for many objects. An object may be put by another thread than got it, if the
 * program orders the two. A signal handler may call nothing here.
 *
 * Failure: NULL with errno ENOMEM when memory or `max_objects` is out; EINVAL for arguments that no
 * pool can have. Success keeps errno.
 *
 * Misuse: a second put, a pointer into an object, a pointer that is no object of the pool, and any
 * use of a pool or magazine after its end (until another one takes its place) end the process with
 * one line on stderr, always; see docs/MESSAGES-region.md. Two threads that put the same object at
 * the same instant may both pass; then the process ends when the object is got while it is in use,
 * or comes back to a slab where it is already. So it is never in use twice, unless two threads get
 * it at the same instant, too, or its slab went back to the system first.
 *
 * Cost: get and put together less than 2 ns while the magazine has objects and room; one in some
 * hundred visits slabs, and the system when memory grows.
 *
 * fork: the child has the objects as they were. The lock of a shared pool is held over the fork,
 * and a thread that needs it meanwhile waits for its end: so no thread gets or puts while it holds
 * a lock that fork itself takes, such as that of a stdio stream (flockfile, or a write function of
 * fopencookie), or neither goes on. What other threads' magazines hold is lost to the child until
 * the pool is deleted, and slabs that other threads were about to add or give back are lost for
 * good. A pool that is not shared must not be in use by another thread at that moment.
 */
#ifndef CAIRN_POOL_H
#define CAIRN_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cairn/allocator.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn_pool cairn_pool;

/* All zero, or no options: the defaults. */
typedef struct cairn_pool_options {
    const char *name;   /* shown in statistics; kept by reference */
    size_t max_objects; /* no more at a time, those in magazines included; 0: as memory lasts */
    bool shared;        /* any thread may use the pool at any time */

    /* Called without a lock when there is no object of so many bytes: true to try again, after it
     * put objects of this pool or made memory free elsewhere. It must return: no longjmp, no
     * exception. NULL: none. */
    bool (*out_of_memory)(void *context, size_t size_bytes);
    void *out_of_memory_context;
} cairn_pool_options;

/* A pool of objects of `object_size` bytes, 1 to 64 MiB, at multiples of `align`, a power of two up
 * to 2 MiB; 0 stands for the largest power of two that divides the size, up to 16. Sizes are
 * rounded up to whole alignments. NULL with errno ENOMEM or EINVAL. */
CAIRN_API CAIRN_NODISCARD cairn_pool *
cairn_pool_new(size_t object_size, size_t align, const cairn_pool_options *options) CAIRN_NOEXCEPT;

/* Ends the pool and all objects, also those in use: 0; or EBUSY while a magazine is attached, and
 * then nothing happened. In a child of fork, magazines from before the fork do not count: they end
 * with the pool. NULL gives 0. */
CAIRN_API int cairn_pool_delete(cairn_pool *pool) CAIRN_NOEXCEPT;

/* An object, contents undefined. */
CAIRN_NODISCARD static inline void *cairn_pool_get(cairn_pool *pool) CAIRN_NOEXCEPT;

/* An object whose bytes are 0, those that the size was rounded up by, too. */
CAIRN_API CAIRN_NODISCARD void *cairn_pool_get_zero(cairn_pool *pool) CAIRN_NOEXCEPT;

/* Gives an object back. NULL is ignored. Keeps errno. */
static inline void cairn_pool_put(cairn_pool *pool, void *object) CAIRN_NOEXCEPT;

/* Gives all slabs without objects in use back, also that which is kept. What attached magazines
 * hold stays. Returns the bytes that went. */
CAIRN_API size_t cairn_pool_trim(cairn_pool *pool) CAIRN_NOEXCEPT;

/* Calls `visit` for every object in use, by slab, until it says false. The visitor gets and puts
 * nothing; of a shared pool nobody does meanwhile. */
typedef bool cairn_pool_visit(void *object, void *context);
CAIRN_API void cairn_pool_walk(cairn_pool *pool, cairn_pool_visit *visit, void *context);

typedef struct cairn_pool_stats {
    const char *name;
    size_t object_bytes; /* of one, rounded up to its alignment */
    size_t live_objects; /* in use, or in attached magazines */
    size_t free_objects; /* the rest of those in slabs */
    size_t slabs;
    size_t slab_bytes; /* memory of all slabs together */
} cairn_pool_stats;
CAIRN_API void cairn_pool_read_stats(cairn_pool *pool, cairn_pool_stats *stats) CAIRN_NOEXCEPT;

/* Verifies the pool's invariants: NULL when all hold, else which one does not. Of attached
 * magazines nobody uses one meanwhile. */
CAIRN_API const char *cairn_pool_check(cairn_pool *pool) CAIRN_NOEXCEPT;

/* ---- magazines ---------------------------------------------------------------------------- */

/* A magazine of a thread's own on a shared pool: get and put without a lock, most of the time. Used
 * by one thread at a time. It keeps up to 192 objects, less when they are large: 256 KiB, or 4. */
typedef struct cairn_pool_magazine cairn_pool_magazine;

/* NULL with errno ENOMEM; EINVAL when the pool is not shared. */
CAIRN_API CAIRN_NODISCARD cairn_pool_magazine *cairn_pool_attach(cairn_pool *pool) CAIRN_NOEXCEPT;

/* Ends the magazine; its objects go back to the pool. Another thread may do it for one that has
 * ended, or else those objects stay unused. NULL is ignored. */
CAIRN_API void cairn_pool_detach(cairn_pool_magazine *magazine) CAIRN_NOEXCEPT;

CAIRN_NODISCARD static inline void *
cairn_pool_magazine_get(cairn_pool_magazine *magazine) CAIRN_NOEXCEPT;
CAIRN_API CAIRN_NODISCARD void *
cairn_pool_magazine_get_zero(cairn_pool_magazine *magazine) CAIRN_NOEXCEPT;
static inline void cairn_pool_magazine_put(cairn_pool_magazine *magazine,
                                           void *object) CAIRN_NOEXCEPT;

/* ---- typed, and as an allocator ------------------------------------------------------------ */

/* Functions of one type's pool:
 *
 *     cairn_pool *noun_pool_new(options)              cairn_pool_magazine *noun_pool_attach(pool)
 *     type *noun_pool_get(pool)                       type *noun_magazine_get(magazine)
 *     type *noun_pool_get_zero(pool)                  type *noun_magazine_get_zero(magazine)
 *     noun_pool_put(pool, type *)                     noun_magazine_put(magazine, type *)
 *
 * Pool and magazine are plain ones for everything else. */
#define CAIRN_POOL(noun, type)                                                                     \
    CAIRN_POOL_TYPED cairn_pool *noun##_pool_new(const cairn_pool_options *options)                \
    {                                                                                              \
        return cairn_pool_new(sizeof(type), __alignof__(type), options);                           \
    }                                                                                              \
    CAIRN_POOL_TYPED cairn_pool_magazine *noun##_pool_attach(cairn_pool *pool)                     \
    {                                                                                              \
        return cairn_pool_attach(pool);                                                            \
    }                                                                                              \
    CAIRN_POOL_FUNCTIONS(noun##_pool, cairn_pool, type)                                            \
    CAIRN_POOL_FUNCTIONS(noun##_magazine, cairn_pool_magazine, type)                               \
    typedef type noun##_pool_object /* ends in the macro's semicolon */

/* Parts of CAIRN_POOL. */
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

/* See cairn/allocator.h. Requests of up to the object's size and alignment are met with one. */
CAIRN_API cairn_allocator cairn_pool_allocator(cairn_pool *pool) CAIRN_NOEXCEPT;

/* ---- the fast paths, inline; what follows is not for direct use --------------------------- */

enum { CAIRN_POOL_RECENT = 64, CAIRN_POOL_RECENT_SHIFT = 16, CAIRN_POOL_NUMBER_SHIFT = 16 };

/* In `recent`: no slab. No address has a small distance from it, not even NULL. */
#define CAIRN_POOL_NONE (((uintptr_t)1 << 47) - 1)

struct cairn_pool_entry {
    void *object;         /* free */
    unsigned char *state; /* its byte in its slab: 1 when it is in use, else 0 */
};

/* The start of a magazine, and so of a pool, which starts with its own. See pool_layout.h. */
struct cairn_pool_view {
    struct cairn_pool_entry *top;        /* owner: above the object that is got next */
    struct cairn_pool_entry *limit;      /* const: `top` when the magazine is full */
    uint64_t inverse;                    /* const: see below */
    uint64_t numbers;                    /* const: objects in a slab have smaller numbers */
    uintptr_t recent[CAIRN_POOL_RECENT]; /* atomic: first objects of slabs, by address */
};

/* Everything that the inline paths leave over: refill and flush, shared pools, slabs that are not
 * in `recent`, NULL, misuse. */
CAIRN_API void *cairn_pool_get_slowly(cairn_pool_magazine *magazine) CAIRN_NOEXCEPT;
CAIRN_API void cairn_pool_put_slowly(cairn_pool_magazine *magazine, void *object) CAIRN_NOEXCEPT;

/* Where in `recent` the first object of the slab at an address is. Neighbouring slabs have
 * different places. So have those that lie as far from the starts of two arenas, a power of two
 * apart: in a program that uses malloc, too, a pool's first slabs often do. */
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
    /* Under the lowest entry lies one whose state is 1; else it is 1 when two threads have put the
     * object at the same instant, and it was got since. */
    if (__builtin_expect(*state != 0, 0))
        return cairn_pool_get_slowly(magazine);
    *state = 1;
    view->top = top;
    return top->object;
}

/* The distance from its slab's first object, times the inverse of the object's size, is the
 * object's number; from any other address the product is a number beyond all. The states lie in
 * front of the first object, downwards. */
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
