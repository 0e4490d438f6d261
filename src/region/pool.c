/* The pool: the slow paths of get and put, creation and end of pools and magazines, and the common
 * interface (cairn/allocator.h).
 *
 * The inline get and put are in cairn/pool.h. The slow put looks its object up in full: masking the
 * pointer gives the slab, the page map says whether the slab is the pool's, then the object's
 * number and state are checked. A slab has 64 KiB, or more if 8 objects with the alignment of the
 * first need it. In the common interface a block is one object. A request that is larger or more
 * aligned than the objects fails with ENOMEM, and a resize succeeds if the new size still fits.
 *
 * Slabs are in pool_depot.c. Structures, invariants and threads are described in pool_layout.h.
 */
#include "base/bits.h"
#include "base/test_delay.h"
#include "os/memory.h"
#include "region/pool_layout.h"

#include <errno.h>
#include <string.h>

/* Takes an object from a magazine, which is filled from the slabs when it is empty.
 * Locking: lock of a shared pool held.
 * Returns: NULL when no object is in a slab. */
static void *pool_magazine_pop(struct cairn_pool_magazine *magazine)
{
    if (magazine_count(magazine) == 0 && !depot_refill(magazine))
        return NULL;
    struct cairn_pool_entry *top = magazine->view.top - 1;
    if (unlikely(*top->state != OBJECT_FREE))
        die_of_object(magazine->pool, top->object); /* two threads put it at the same instant */
    *top->state = OBJECT_LIVE;
    magazine->view.top = top;
    return top->object;
}

/* The state byte of a live object. Ends the process when `object` is none. */
static uint8_t *pool_live_state(struct cairn_pool *pool, void *object)
{
    if (!is_ours(pool, object))
        die_of_object(pool, object);
    struct pool_slab *slab = slab_of(pool, object);
    uint64_t number = number_of(pool, slab, object);
    if (number >= pool->own.view.numbers || *state_of(pool, slab, number) != OBJECT_LIVE)
        die_of_object(pool, object);
    return state_of(pool, slab, number);
}

/* Puts an object into a magazine, half of which is emptied first when it is full.
 * Locking: lock of a shared pool held. */
static void pool_magazine_push(struct cairn_pool_magazine *magazine, void *object, uint8_t *state)
{
    if (magazine->view.top == magazine->view.limit)
        depot_flush(magazine, (magazine_count(magazine) + 1) / 2);
    *state = OBJECT_FREE;
    *magazine->view.top++ = (struct cairn_pool_entry){object, state};
}

/* The magazine whose objects a call takes. A shared pool's own magazine is replaced by the common
 * one. */
static struct cairn_pool_magazine *pool_behind(struct cairn_pool_magazine *magazine)
{
    struct cairn_pool *pool = magazine->pool;
    return pool->shared && magazine == &pool->own ? pool->common : magazine;
}

/* Takes an object from the magazine or, when it is empty, from a slab, which may be a new one. */
static void *pool_get(struct cairn_pool *pool, struct cairn_pool_magazine *magazine)
{
    struct pool_slab *slab = NULL;
    pool_lock(pool);
    void *object = pool_magazine_pop(magazine);
    while (object == NULL && depot_may_grow(pool)) {
        pool_unlock(pool);
        slab = pool_slab_make(pool);
        test_delay();
        pool_lock(pool);
        if (slab != NULL)
            depot_add(pool, slab);
        object = pool_magazine_pop(magazine);
        if (slab == NULL)
            break;
    }
    pool_unlock(pool);
    return object;
}

api void *cairn_pool_get_slowly(struct cairn_pool_magazine *magazine)
{
    magazine_must_live(magazine);
    struct cairn_pool *pool = magazine->pool;
    int saved_errno = errno;
    void *object = pool_get(pool, pool_behind(magazine));
    while (object == NULL) {
        if (pool->out_of_memory == NULL ||
            !pool->out_of_memory(pool->out_of_memory_context, pool->stride_bytes)) {
            errno = ENOMEM;
            return NULL;
        }
        object = pool_get(pool, pool_behind(magazine));
    }
    errno = saved_errno;
    return object;
}

static void *pool_clear(struct cairn_pool *pool, void *object)
{
    return object != NULL ? memset(object, 0, pool->stride_bytes) : NULL;
}

api void *cairn_pool_get_zero(struct cairn_pool *pool)
{
    return pool_clear(pool, cairn_pool_get(pool));
}

api void *cairn_pool_magazine_get_zero(struct cairn_pool_magazine *magazine)
{
    magazine_must_live(magazine);
    return pool_clear(magazine->pool, cairn_pool_magazine_get(magazine));
}

api void cairn_pool_put_slowly(struct cairn_pool_magazine *magazine, void *object)
{
    if (object == NULL)
        return;
    magazine_must_live(magazine);
    struct cairn_pool *pool = magazine->pool;
    uint8_t *state = pool_live_state(pool, object);
    store_relaxed(recent_of(magazine, object), (uintptr_t)slab_first(pool, slab_of(pool, object)));
    pool_lock(pool);
    pool_magazine_push(pool_behind(magazine), object, state);
    pool_unlock(pool);
}

enum {
    OBJECT_MAX_BYTES = 64 << 20,
    ALIGN_MAX_BYTES = 2 << 20,
    SLAB_MIN_BYTES = 64 << 10,
    SLAB_MIN_OBJECTS = 8,
    /* the maximum size of the objects in a magazine, unless they are fewer than MAGAZINE_MIN */
    MAGAZINE_BYTES = 256 << 10,
    MAGAZINE_MIN = 4,
};

static_check((size_t)OBJECT_MAX_BYTES *SLAB_MIN_OBJECTS * 2 <= UINT32_MAX, "offsets fit");

/* Descriptors are recycled and never returned to the system, so an outdated handle finds one that
 * has ended. */
static struct descriptor_pool pool_descriptors = {
    .descriptor_bytes = sizeof(struct cairn_pool),
};
static struct descriptor_pool magazine_descriptors = {
    .descriptor_bytes = sizeof(struct cairn_pool_magazine),
};

/* The inverse of an odd number modulo 2^64, by Newton's iteration. The first value has three
 * correct bits, and each step doubles their number. */
static uint64_t pool_inverse_of(uint64_t odd)
{
    uint64_t inverse = odd;
    for (int bits = 3; bits < 64; bits *= 2)
        inverse *= 2 - odd * inverse;
    return inverse;
}

/* The offset of the first object in a slab with `numbers` numbers. */
static size_t pool_first_offset(size_t numbers, size_t align_bytes)
{
    size_t bits_end = BITS_AT + (numbers + 63) / 64 * sizeof(uint64_t);
    return align_up(bits_end + numbers, align_bytes);
}

static void pool_lay_out_slab(struct cairn_pool *pool)
{
    size_t stride = pool->stride_bytes;
    unsigned twos = lowest_bit(stride);
    unsigned excess = twos > CAIRN_POOL_NUMBER_SHIFT ? twos - CAIRN_POOL_NUMBER_SHIFT : 0;
    size_t wanted = stride * SLAB_MIN_OBJECTS + 2 * pool->align_bytes;
    size_t bytes = SLAB_MIN_BYTES;
    while (bytes < wanted)
        bytes *= 2;
    size_t capacity = bytes / stride;
    while (pool_first_offset(capacity << excess, pool->align_bytes) + capacity * stride > bytes)
        capacity--;
    pool->slab_bytes = bytes;
    pool->slab_mask = ~(uintptr_t)(bytes - 1);
    pool->capacity = (uint32_t)capacity;
    pool->unit_bytes = stride >> excess;
    pool->first = pool_first_offset(capacity << excess, pool->align_bytes);
}

static void pool_magazine_init(struct cairn_pool *pool, struct cairn_pool_magazine *magazine)
{
    size_t most = larger_of(MAGAZINE_BYTES / pool->stride_bytes, MAGAZINE_MIN);
    unsigned twos = lowest_bit(pool->unit_bytes);
    *magazine = (struct cairn_pool_magazine){
        .view.top = magazine->entries,
        .view.limit = magazine->entries + smaller_of(most, MAGAZINE_MAX),
        .view.inverse = pool_inverse_of(pool->unit_bytes >> twos)
                        << (CAIRN_POOL_NUMBER_SHIFT - twos),
        .view.numbers = pool->capacity * (pool->stride_bytes / pool->unit_bytes),
        .pool = pool,
        .attached = magazine != &pool->own,
        .process = fork_lock_process(),
        .bottom_state = OBJECT_LIVE,
        .bottom.state = &magazine->bottom_state,
    };
    for (size_t i = 0; i < CAIRN_POOL_RECENT; i++)
        magazine->view.recent[i] = CAIRN_POOL_NONE;
}

/* Ends a magazine: it becomes both empty and full and knows no slab, so every later use reaches the
 * slow paths, which end the process. */
static void pool_magazine_end(struct cairn_pool_magazine *magazine)
{
    magazine->view.top = magazine->entries;
    magazine->view.limit = magazine->entries;
    for (size_t i = 0; i < CAIRN_POOL_RECENT; i++)
        store_relaxed(&magazine->view.recent[i], CAIRN_POOL_NONE);
    magazine->pool = NULL;
    if (magazine->attached)
        descriptor_give_to(&magazine_descriptors, magazine);
}

/* Makes a magazine and attaches it to the pool. While the pool is being created, no other thread
 * knows it and its lock has no effect. */
static struct cairn_pool_magazine *pool_magazine_make(struct cairn_pool *pool)
{
    struct cairn_pool_magazine *magazine = descriptor_take_from(&magazine_descriptors);
    if (magazine == NULL)
        return NULL;
    pool_magazine_init(pool, magazine);
    pool_lock(pool);
    magazine->next = pool->magazines;
    if (magazine->next)
        magazine->next->prev = magazine;
    pool->magazines = magazine;
    pool_unlock(pool);
    return magazine;
}

/* Makes a new pool shared. The pool's own magazine becomes both empty and full, so the plain get
 * and put reach the slow paths, which use the common magazine under the lock. */
static bool pool_share(struct cairn_pool *pool)
{
    pool->own.view.limit = pool->own.entries;
    pool->common = pool_magazine_make(pool);
    if (pool->common == NULL)
        return false;
    fork_lock_watch(&pool->lock);
    return true;
}

/* Ends a pool whose slabs and magazines have ended. */
static void pool_end(struct cairn_pool *pool)
{
    pool_magazine_end(&pool->own);
    descriptor_give_to(&pool_descriptors, pool);
}

static struct cairn_pool *pool_refuse(int error)
{
    errno = error;
    return NULL;
}

api struct cairn_pool *cairn_pool_new(size_t object_size, size_t align,
                                      const cairn_pool_options *options)
{
    static const cairn_pool_options defaults;
    options = options ? options : &defaults;
    if (align == 0 && object_size != 0)
        align = smaller_of((size_t)1 << lowest_bit(object_size), 16);
    if (object_size == 0 || object_size > OBJECT_MAX_BYTES || !is_power_of_two(align) ||
        align > ALIGN_MAX_BYTES)
        return pool_refuse(EINVAL);
    os_init();
    struct cairn_pool *pool = descriptor_take_from(&pool_descriptors);
    if (pool == NULL)
        return pool_refuse(ENOMEM);
    *pool = (struct cairn_pool){
        .shared = options->shared,
        .stride_bytes = align_up(object_size, align),
        .align_bytes = align,
        .objects_most = options->max_objects ? options->max_objects : SIZE_MAX,
        .name = options->name,
        .out_of_memory = options->out_of_memory,
        .out_of_memory_context = options->out_of_memory_context,
        .partial = {&pool->partial, &pool->partial},
        .every = {&pool->every, &pool->every},
    };
    pool_lay_out_slab(pool);
    pool_magazine_init(pool, &pool->own);
    if (pool->shared && !pool_share(pool)) {
        pool_end(pool);
        return pool_refuse(ENOMEM);
    }
    return pool;
}

/* Whether a magazine of this process is attached. A magazine from before a fork does not count: it
 * may have been in use at that moment, so no thread of the child detaches it. */
static bool pool_has_magazines(const struct cairn_pool *pool)
{
    for (const struct cairn_pool_magazine *magazine = pool->magazines; magazine;
         magazine = magazine->next)
        if (magazine != pool->common && magazine->process == fork_lock_process())
            return true;
    return false;
}

api int cairn_pool_delete(struct cairn_pool *pool)
{
    if (pool == NULL)
        return 0;
    pool_must_live(pool);
    pool_lock(pool);
    bool busy = pool_has_magazines(pool);
    if (!busy)
        depot_end(pool);
    pool_unlock(pool);
    if (busy)
        return EBUSY;
    if (pool->shared)
        fork_lock_unwatch(&pool->lock);
    for (struct cairn_pool_magazine *next, *magazine = pool->magazines; magazine; magazine = next) {
        next = magazine->next;
        pool_magazine_end(magazine);
    }
    pool_end(pool);
    return 0;
}

api size_t cairn_pool_trim(struct cairn_pool *pool)
{
    pool_must_live(pool);
    pool_lock(pool);
    size_t bytes = depot_trim(pool);
    pool_unlock(pool);
    return bytes;
}

api struct cairn_pool_magazine *cairn_pool_attach(struct cairn_pool *pool)
{
    pool_must_live(pool);
    struct cairn_pool_magazine *magazine = pool->shared ? pool_magazine_make(pool) : NULL;
    if (magazine == NULL)
        errno = pool->shared ? ENOMEM : EINVAL;
    return magazine;
}

api void cairn_pool_detach(struct cairn_pool_magazine *magazine)
{
    if (magazine == NULL)
        return;
    magazine_must_live(magazine);
    struct cairn_pool *pool = magazine->pool;
    pool_lock(pool);
    depot_flush(magazine, magazine_count(magazine));
    if (magazine->next)
        magazine->next->prev = magazine->prev;
    if (magazine->prev)
        magazine->prev->next = magazine->next;
    else
        pool->magazines = magazine->next;
    pool_unlock(pool);
    pool_magazine_end(magazine);
}

static void *pool_allocator_alloc(void *context, size_t size, size_t align)
{
    const struct cairn_pool *pool = context;
    if (!is_power_of_two(align)) {
        errno = EINVAL;
        return NULL;
    }
    if (size > pool->stride_bytes || align > pool->align_bytes) {
        errno = ENOMEM;
        return NULL;
    }
    return cairn_pool_get(context);
}

static void *pool_allocator_resize(void *context, void *pointer, size_t old_size, size_t new_size)
{
    const struct cairn_pool *pool = context;
    (void)old_size;
    return new_size <= pool->stride_bytes ? pointer : NULL;
}

static void pool_allocator_free(void *pool, void *pointer, size_t size)
{
    (void)size;
    cairn_pool_put(pool, pointer);
}

api cairn_allocator cairn_pool_allocator(struct cairn_pool *pool)
{
    enum {
        CAPABILITIES = CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_FREES_TOGETHER | CAIRN_ONE_SIZE
    };
    static const struct cairn_allocator_operations operations = {
        .alloc = pool_allocator_alloc,
        .resize = pool_allocator_resize,
        .free = pool_allocator_free,
        .capabilities = CAPABILITIES,
        .name = "pool",
    };
    static const struct cairn_allocator_operations shared_operations = {
        .alloc = pool_allocator_alloc,
        .resize = pool_allocator_resize,
        .free = pool_allocator_free,
        .capabilities = CAPABILITIES | CAIRN_ANY_THREAD | CAIRN_ANY_THREAD_FREE,
        .name = "pool_shared",
    };
    pool_must_live(pool);
    return (cairn_allocator){pool, pool->shared ? &shared_operations : &operations};
}

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

/* The sums over all slabs. */
struct count {
    size_t slabs;
    size_t free_slabs;
    size_t objects;
    size_t in_slabs;
    size_t live;
};

/* Checks a slab and adds it to the sums.
 * Returns: NULL, or what is wrong. */
static const char *pool_check_slab(struct cairn_pool *pool, struct pool_slab *slab,
                                   struct count *count)
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

/* Checks a magazine: every slab that it knows is the pool's, and every entry is a free object that
 * is not in its slab.
 * Returns: NULL, or what is wrong. */
static const char *pool_check_magazine(struct cairn_pool *pool,
                                       struct cairn_pool_magazine *magazine)
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

static const char *pool_check_all(struct cairn_pool *pool)
{
    struct count count = {0};
    const char *fault = NULL;
    for (struct slab_list *link = pool->every.next; !fault && link != &pool->every;
         link = link->next)
        fault = pool_check_slab(pool, slab_from(link, every), &count);
    size_t in_magazines = magazine_count(&pool->own);
    if (!fault)
        fault = pool_check_magazine(pool, &pool->own);
    for (struct cairn_pool_magazine *magazine = pool->magazines; !fault && magazine;
         magazine = magazine->next) {
        fault = pool_check_magazine(pool, magazine);
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
    const char *fault = pool_check_all(pool);
    pool_unlock(pool);
    return fault;
}
