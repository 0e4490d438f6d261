/* TLSF with a lock: each call is the heap's own between acquire and release.
 *
 * The structure lies in a block of the heap. The lock is held for the bounded time of one
 * operation, over no system call; it is watched for fork. Threading: any thread, any operation
 * beside any other, but for unshare.
 */
#include "region/fork_locks.h"
#include "region/tlsf_host.h"
#include "region/tlsf_region.h"

struct cairn_tlsf_shared {
    struct fork_lock lock;
    struct cairn_tlsf *heap; /* const; what it leads to: lock */
};

api struct cairn_tlsf_shared *cairn_tlsf_share(struct cairn_tlsf *heap)
{
    struct cairn_tlsf_shared *shared = cairn_tlsf_alloc(heap, sizeof *shared);
    if (shared == NULL)
        return NULL;
    *shared = (struct cairn_tlsf_shared){.heap = heap};
    if (fork_lock_watch(&shared->lock) != 0) {
        cairn_tlsf_free(heap, shared);
        tlsf_note_no_memory();
        return NULL;
    }
    return shared;
}

api struct cairn_tlsf *cairn_tlsf_unshare(struct cairn_tlsf_shared *shared)
{
    struct cairn_tlsf *heap = shared->heap;
    fork_lock_unwatch(&shared->lock);
    cairn_tlsf_free(heap, shared);
    return heap;
}

api void *cairn_tlsf_shared_alloc(struct cairn_tlsf_shared *shared, size_t size)
{
    fork_lock_acquire(&shared->lock);
    void *pointer = cairn_tlsf_alloc(shared->heap, size);
    fork_lock_release(&shared->lock);
    return pointer;
}

api void *cairn_tlsf_shared_memalign(struct cairn_tlsf_shared *shared, size_t align, size_t size)
{
    fork_lock_acquire(&shared->lock);
    void *pointer = cairn_tlsf_memalign(shared->heap, align, size);
    fork_lock_release(&shared->lock);
    return pointer;
}

api void *cairn_tlsf_shared_realloc(struct cairn_tlsf_shared *shared, void *pointer, size_t size)
{
    fork_lock_acquire(&shared->lock);
    void *moved = cairn_tlsf_realloc(shared->heap, pointer, size);
    fork_lock_release(&shared->lock);
    return moved;
}

api void *cairn_tlsf_shared_resize(struct cairn_tlsf_shared *shared, void *pointer, size_t size)
{
    fork_lock_acquire(&shared->lock);
    void *resized = cairn_tlsf_resize(shared->heap, pointer, size);
    fork_lock_release(&shared->lock);
    return resized;
}

api void cairn_tlsf_shared_free(struct cairn_tlsf_shared *shared, void *pointer)
{
    fork_lock_acquire(&shared->lock);
    cairn_tlsf_free(shared->heap, pointer);
    fork_lock_release(&shared->lock);
}

api size_t cairn_tlsf_shared_usable(struct cairn_tlsf_shared *shared, const void *pointer)
{
    fork_lock_acquire(&shared->lock);
    size_t size = cairn_tlsf_usable(shared->heap, pointer);
    fork_lock_release(&shared->lock);
    return size;
}

api void cairn_tlsf_shared_read_stats(struct cairn_tlsf_shared *shared,
                                      struct cairn_tlsf_stats *stats)
{
    fork_lock_acquire(&shared->lock);
    cairn_tlsf_read_stats(shared->heap, stats);
    fork_lock_release(&shared->lock);
}
