/* TLSF with a lock: each call is the heap's own between acquire and release.
 *
 * The structure lies in a block of the heap. The lock is held for the bounded time of one
 * operation, over no system call and no function of the program's but a walk's visitor; it is
 * watched for fork. What a block is cleared for happens after the lock is free. Threading: any
 * thread, any operation beside any other, but for unshare.
 */
#include "base/check.h"
#include "page/page.h"
#include "region/tlsf.h"
#include "region/tlsf_host.h"
#include "region/tlsf_region.h"

#include <errno.h>

struct cairn_tlsf_shared {
    struct fork_lock lock;
    struct cairn_tlsf *heap; /* const; what it leads to: lock */
    uint64_t magic;          /* const until unshared */
};

#define SHARED_MAGIC 0x6465726168736c74u

api struct cairn_tlsf_shared *cairn_tlsf_share(struct cairn_tlsf *heap)
{
    if (heap->shared != 0) {
        errno = EBUSY;
        return NULL;
    }
    struct cairn_tlsf_shared *shared = cairn_tlsf_alloc(heap, sizeof *shared);
    if (shared == NULL)
        return NULL;
    *shared = (struct cairn_tlsf_shared){.heap = heap, .magic = SHARED_MAGIC};
    if (fork_lock_watch(&shared->lock) != 0) {
        cairn_tlsf_free(heap, shared);
        tlsf_note_no_memory();
        return NULL;
    }
    heap->shared = place_of(heap, shared);
    return shared;
}

inline_always void must_be_shared(const struct cairn_tlsf_shared *shared)
{
    if (unlikely(shared->magic != SHARED_MAGIC))
        die("TLSF shared heap %p: used after it was unshared", (const void *)shared);
}

api struct cairn_tlsf *cairn_tlsf_unshare(struct cairn_tlsf_shared *shared)
{
    if (shared == NULL)
        return NULL;
    must_be_shared(shared);
    struct cairn_tlsf *heap = shared->heap;
    fork_lock_unwatch(&shared->lock);
    shared->magic = 0;
    heap->shared = 0;
    cairn_tlsf_free(heap, shared);
    return heap;
}

/* The heap, with its lock. */
static struct cairn_tlsf *enter(struct cairn_tlsf_shared *shared)
{
    must_be_shared(shared);
    fork_lock_acquire(&shared->lock);
    return shared->heap;
}

static void leave(struct cairn_tlsf_shared *shared) { fork_lock_release(&shared->lock); }

/* The program's out-of-memory function is called without the lock: it may free blocks. */
static void *get(struct cairn_tlsf_shared *shared, struct tlsf_request request)
{
    for (;;) {
        void *memory = tlsf_request_meet(enter(shared), &request);
        leave(shared);
        if (memory != NULL)
            return memory;
        if (!tlsf_may_try_again(shared->heap, request.size_bytes)) {
            tlsf_note_no_memory();
            return NULL;
        }
    }
}

api void *cairn_tlsf_shared_alloc(struct cairn_tlsf_shared *shared, size_t size)
{
    return get(shared, (struct tlsf_request){NULL, size, TLSF_GRAIN_BYTES});
}

api void *cairn_tlsf_shared_alloc_zero(struct cairn_tlsf_shared *shared, size_t size)
{
    void *memory = cairn_tlsf_shared_alloc(shared, size);
    return memory != NULL ? __builtin_memset(memory, 0, size) : NULL;
}

api void *cairn_tlsf_shared_alloc_array(struct cairn_tlsf_shared *shared, size_t count, size_t size)
{
    return cairn_tlsf_shared_alloc(shared, tlsf_total_of(count, size));
}

api void *cairn_tlsf_shared_alloc_array_zero(struct cairn_tlsf_shared *shared, size_t count,
                                             size_t size)
{
    return cairn_tlsf_shared_alloc_zero(shared, tlsf_total_of(count, size));
}

api void *cairn_tlsf_shared_alloc_aligned(struct cairn_tlsf_shared *shared, size_t size,
                                          size_t align)
{
    if (!is_power_of_two(align)) {
        tlsf_note_invalid();
        return NULL;
    }
    return get(shared, (struct tlsf_request){NULL, size, align});
}

api void *cairn_tlsf_shared_realloc(struct cairn_tlsf_shared *shared, void *pointer, size_t size)
{
    return get(shared, (struct tlsf_request){pointer, size, TLSF_GRAIN_BYTES});
}

api void *cairn_tlsf_shared_resize(struct cairn_tlsf_shared *shared, void *pointer, size_t size)
{
    void *resized = cairn_tlsf_resize(enter(shared), pointer, size);
    leave(shared);
    return resized;
}

api void cairn_tlsf_shared_free(struct cairn_tlsf_shared *shared, void *pointer)
{
    cairn_tlsf_free(enter(shared), pointer);
    leave(shared);
}

api size_t cairn_tlsf_shared_usable(struct cairn_tlsf_shared *shared, const void *pointer)
{
    size_t size = cairn_tlsf_usable(enter(shared), pointer);
    leave(shared);
    return size;
}

api int cairn_tlsf_shared_add(struct cairn_tlsf_shared *shared, void *memory, size_t size)
{
    int error = cairn_tlsf_add(enter(shared), memory, size);
    leave(shared);
    return error;
}

api int cairn_tlsf_shared_remove(struct cairn_tlsf_shared *shared, void *memory)
{
    int error = cairn_tlsf_remove(enter(shared), memory);
    leave(shared);
    return error;
}

api void cairn_tlsf_shared_walk(struct cairn_tlsf_shared *shared, cairn_tlsf_visit *visit,
                                void *context)
{
    cairn_tlsf_walk(enter(shared), visit, context);
    leave(shared);
}

api const char *cairn_tlsf_shared_check(struct cairn_tlsf_shared *shared)
{
    const char *fault = cairn_tlsf_check(enter(shared));
    leave(shared);
    return fault;
}

api void cairn_tlsf_shared_read_stats(struct cairn_tlsf_shared *shared, cairn_tlsf_stats *stats)
{
    cairn_tlsf_read_stats(enter(shared), stats);
    leave(shared);
}
