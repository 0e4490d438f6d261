/* Pool: objects of one size, taken and returned in any order, in about a nanosecond each.
 *
 * Use a pool for the nodes, sessions or connections of a program: many objects of one size that
 * come and go. An object holds no data of the pool, so objects of 8 bytes take little more than 8
 * bytes. Do not use a pool for objects of different sizes (cairn/heap.h), or for objects that all
 * end together (cairn/stack.h).
 *
 * Example:
 *
 *     #include <cairn/pool.h>
 *
 *     struct session {
 *         int number;
 *     };
 *
 *     CAIRN_POOL(session, struct session); // defines session_pool_new, session_pool_get, ...
 *
 *     int serve(void (*work)(struct session *session))
 *     {
 *         cairn_pool *sessions = session_pool_new(NULL);
 *         if (sessions == NULL)
 *             return -1;
 *         struct session *session = session_pool_get(sessions);
 *         if (session != NULL) {
 *             session->number = 1;
 *             work(session);
 *             session_pool_put(sessions, session);
 *         }
 *         return cairn_pool_delete(sessions);
 *     }
 *
 * Algorithm: slabs and magazines after Bonwick and Adams, "Magazines and Vmem", USENIX 2001.
 * Objects are adjacent in slabs, runs of a power of two pages, behind a table with one byte and one
 * bit for each object. Free objects wait in a magazine, an array of pointers used last in, first
 * out; the pool visits its slabs for many objects at a time. The number of an object in its slab
 * comes from a multiplication with the inverse of the size (Warren, "Hacker's Delight", section
 * 10-17).
 *
 * Memory: a slab whose objects are all returned goes to the page layer, except one that is kept.
 *
 * Threads: a pool is used by one thread at a time; the program must order the calls of different
 * threads. A pool made with `shared` may be used by any thread at any time, except for walk and
 * delete: get and put then take a lock. A thread that calls them often attaches a magazine of its
 * own, which takes the lock once for many objects. The thread that returns an object need not be
 * the thread that took it.
 *
 * Failure: functions that take an object return NULL with errno ENOMEM when memory is out or
 * `max_objects` is reached, and change nothing. Success keeps errno.
 *
 * Cost: get and put together take less than 2 ns while the magazine has objects and room. One call
 * in some hundred visits slabs, and the system if memory grows.
 *
 * Caveats:
 *  - No signal handler may call a function of this header.
 *  - Misuse ends the process with one line on stderr (docs/reference/MESSAGES.md) in all builds: a
 *    second put, a pointer into an object, a pointer that is no object of the pool, use of a pool
 *    or magazine after its end as long as no other one has taken the place.
 *  - Two threads that return one object at the same instant may both pass. The process then ends
 *    when the object is taken while it is in use, or returns to a slab that already has it. The
 *    object is never in use twice, unless two threads also take it at one instant or its slab has
 *    returned to the system before.
 *  - Not detected: two threads in a pool that is not shared, or in one magazine, at once; writes to
 *    an object after its put; writes past its end, which damage the adjacent object.
 *  - The contents of an object often survive the put. Do not rely on it.
 *  - fork holds the lock of a shared pool; threads that need it wait. So a thread must not get or
 *    put while it holds a lock that fork takes, such as that of a stdio stream: both would wait
 *    forever.
 *  - In a child of fork, the objects in magazines of other threads are lost until the pool is
 *    deleted. Slabs that other threads were adding or returning at that moment are lost for good.
 *    Another thread must not be using an unshared pool during the fork.
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

/* A pool of objects of one size. */
typedef struct cairn_pool cairn_pool;

/* Options of cairn_pool_new. All zero: not shared, no limit. */
typedef struct cairn_pool_options {
    const char *name;   /* shown in statistics; it must exist as long as the pool */
    size_t max_objects; /* the most objects at a time, those in magazines included; 0: no limit */
    bool shared;        /* any thread may use the pool at any time */

    /* Called without a lock when there is no object of `size_bytes`; NULL: none. The function
     * returns true to try again after it has returned objects to this pool or freed other memory.
     * The function must return, without longjmp or an exception. */
    bool (*out_of_memory)(void *context, size_t size_bytes);
    void *out_of_memory_context;
} cairn_pool_options;

/* Creates a pool of objects of `object_size` bytes, 1 to 64 MiB, at multiples of `align` bytes, a
 * power of two up to 2 MiB. An alignment of 0 stands for the largest power of two, up to 16, that
 * divides the size. Sizes are rounded up to a multiple of the alignment. `options` may be NULL.
 * Returns: the pool, or NULL with errno ENOMEM or EINVAL. */
CAIRN_API CAIRN_NODISCARD cairn_pool *
cairn_pool_new(size_t object_size, size_t align, const cairn_pool_options *options) CAIRN_NOEXCEPT;

/* Ends the pool and all its objects, those in use as well. NULL is ignored. As for a stack or a
 * private heap, this is how many objects end at once, without a put for each; a ring or FIFO, whose
 * objects may be on their way to another thread, refuses. To find objects that were not returned,
 * read `live_objects` before.
 * Returns: 0; EBUSY while a magazine is attached, then nothing has changed. In a child of fork,
 * magazines from before the fork do not count: they end with the pool.
 * Threads: no other thread may use the pool. */
CAIRN_API int cairn_pool_delete(cairn_pool *pool) CAIRN_NOEXCEPT;

/* Takes an object with undefined contents.
 * Returns: the object, or NULL with errno ENOMEM.
 * Cost: about a nanosecond, inline. */
CAIRN_NODISCARD static inline void *cairn_pool_get(cairn_pool *pool) CAIRN_NOEXCEPT;

/* Takes an object and sets it to 0, including the bytes by which its size was rounded up.
 * Returns: the object, or NULL with errno ENOMEM. */
CAIRN_API CAIRN_NODISCARD void *cairn_pool_get_zero(cairn_pool *pool) CAIRN_NOEXCEPT;

/* Returns an object to the pool. NULL is ignored. Keeps errno.
 * Cost: about a nanosecond, inline. */
static inline void cairn_pool_put(cairn_pool *pool, void *object) CAIRN_NOEXCEPT;

/* Returns all slabs without objects in use to the page layer, the one that is kept as well.
 * Attached magazines keep their objects.
 * Returns: the number of bytes in the returned slabs. */
CAIRN_API size_t cairn_pool_trim(cairn_pool *pool) CAIRN_NOEXCEPT;

/* A function that cairn_pool_walk calls for one object. Returning false ends the walk. */
typedef bool cairn_pool_visit(void *object, void *context);

/* Calls `visit` with `context` for each object in use, slab by slab, until it returns false.
 * `visit` must not take or return objects of the pool.
 * Threads: no other thread may use the pool meanwhile, also if it is shared. */
CAIRN_API void cairn_pool_walk(cairn_pool *pool, cairn_pool_visit *visit, void *context);

/* Statistics of one pool. */
typedef struct cairn_pool_stats {
    const char *name;
    size_t object_bytes; /* size of an object, rounded up to its alignment */
    size_t live_objects; /* objects in use or in attached magazines */
    size_t free_objects; /* the other objects of the slabs */
    size_t slabs;
    size_t slab_bytes; /* memory of all slabs together */
} cairn_pool_stats;

/* Fills *stats. */
CAIRN_API void cairn_pool_read_stats(cairn_pool *pool, cairn_pool_stats *stats) CAIRN_NOEXCEPT;

/* Verifies the invariants of the pool, for tests. No thread may use an attached magazine meanwhile.
 * Returns: NULL if all hold, else a sentence that names one that does not. */
CAIRN_API const char *cairn_pool_check(cairn_pool *pool) CAIRN_NOEXCEPT;

/* ---- magazines ---------------------------------------------------------------------------- */

/* A magazine: an array of free objects of a shared pool for one thread, whose get and put take no
 * lock most of the time. One thread uses it at a time. A magazine keeps up to 192 objects; of large
 * ones fewer, as many as 256 KiB hold, but at least 4. */
typedef struct cairn_pool_magazine cairn_pool_magazine;

/* Creates a magazine on a shared pool.
 * Returns: the magazine; NULL with errno ENOMEM; NULL with EINVAL if the pool is not shared. */
CAIRN_API CAIRN_NODISCARD cairn_pool_magazine *cairn_pool_attach(cairn_pool *pool) CAIRN_NOEXCEPT;

/* Ends the magazine and returns its objects to the pool. NULL is ignored. The magazine of a thread
 * that has ended may be detached by another thread; its objects stay unused before that. */
CAIRN_API void cairn_pool_detach(cairn_pool_magazine *magazine) CAIRN_NOEXCEPT;

/* Takes an object with undefined contents through the magazine.
 * Returns: the object, or NULL with errno ENOMEM.
 * Cost: about a nanosecond, inline. */
CAIRN_NODISCARD static inline void *
cairn_pool_magazine_get(cairn_pool_magazine *magazine) CAIRN_NOEXCEPT;

/* Takes an object through the magazine and sets it to 0.
 * Returns: the object, or NULL with errno ENOMEM. */
CAIRN_API CAIRN_NODISCARD void *
cairn_pool_magazine_get_zero(cairn_pool_magazine *magazine) CAIRN_NOEXCEPT;

/* Returns an object through the magazine. NULL is ignored. Keeps errno. */
static inline void cairn_pool_magazine_put(cairn_pool_magazine *magazine,
                                           void *object) CAIRN_NOEXCEPT;

/* ---- typed, and as an allocator ------------------------------------------------------------ */

/* Defines the functions of a pool of objects of `type`, whose names begin with `noun`:
 *
 *     cairn_pool *noun_pool_new(options)              cairn_pool_magazine *noun_pool_attach(pool)
 *     type *noun_pool_get(pool)                       type *noun_magazine_get(magazine)
 *     type *noun_pool_get_zero(pool)                  type *noun_magazine_get_zero(magazine)
 *     noun_pool_put(pool, type *)                     noun_magazine_put(magazine, type *)
 *
 * The pools and magazines are of the types cairn_pool and cairn_pool_magazine, for all other
 * functions of this header. */
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

/* Makes a cairn_allocator (cairn/allocator.h) that answers requests of up to the size and alignment
 * of an object with one object. The cairn_allocator is valid until the pool is deleted. */
CAIRN_API cairn_allocator cairn_pool_allocator(cairn_pool *pool) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#include <cairn/detail/pool.h> /* the bodies of the inline functions */
#endif
