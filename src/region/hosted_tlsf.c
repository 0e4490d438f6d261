/* TLSF on an operating system: heaps with a lock, the common interface (cairn/allocator.h), and
 * heaps over a mapping of their own.
 *
 * A shared heap is a TLSF heap with a lock. The structure with the lock is a block of the heap.
 * Each call takes the lock, calls the heap's function and releases the lock. Under the lock there
 * is no system call, and no function of the program except the visitor of a walk. The out-of-memory
 * function is called, and memory is cleared, after the lock was released. fork takes the lock too
 * (fork_lock_watch).
 *
 * cairn_tlsf_new makes a heap of a fixed size over one mapping, which exists as long as the heap.
 * The heap never asks for more memory and returns none before its end.
 *
 * Threads: any thread may call any function of a shared heap at any time, except
 *     cairn_tlsf_unshare. All other functions: one thread at a time in a heap.
 */
#include "base/bits.h"
#include "base/check.h"
#include "base/compiler.h"
#include "base/host.h"
#include "cairn/tlsf.h"
#include "os/memory.h"
#include "page/page.h"
#include "region/tlsf.h"

#include <errno.h>

struct cairn_tlsf_shared {
    struct fork_lock lock;
    struct cairn_tlsf *heap; /* const after init; the heap itself: lock */
    uint64_t magic;          /* const after init; 0 once unshared */
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
    fork_lock_watch(&shared->lock);
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

/* Takes the lock and returns the heap. tlsf_shared_leave releases the lock. */
static struct cairn_tlsf *tlsf_shared_enter(struct cairn_tlsf_shared *shared)
{
    must_be_shared(shared);
    fork_lock_acquire(&shared->lock);
    return shared->heap;
}

static void tlsf_shared_leave(struct cairn_tlsf_shared *shared)
{
    fork_lock_release(&shared->lock);
}

/* Meets a request. The program's out-of-memory function is called without the lock, because it may
 * free blocks. */
static void *tlsf_shared_get(struct cairn_tlsf_shared *shared, struct tlsf_request request)
{
    for (;;) {
        void *memory = tlsf_request_meet(tlsf_shared_enter(shared), &request);
        tlsf_shared_leave(shared);
        if (memory != NULL)
            return memory;
        if (!tlsf_may_try_again(shared->heap, &request)) {
            host_note_no_memory();
            return NULL;
        }
    }
}

api void *cairn_tlsf_shared_alloc(struct cairn_tlsf_shared *shared, size_t size)
{
    return tlsf_shared_get(shared, (struct tlsf_request){NULL, size, TLSF_GRAIN_BYTES});
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
        host_note_invalid();
        return NULL;
    }
    return tlsf_shared_get(shared, (struct tlsf_request){NULL, size, align});
}

api void *cairn_tlsf_shared_realloc(struct cairn_tlsf_shared *shared, void *pointer, size_t size)
{
    return tlsf_shared_get(shared, (struct tlsf_request){pointer, size, TLSF_GRAIN_BYTES});
}

api void *cairn_tlsf_shared_resize(struct cairn_tlsf_shared *shared, void *pointer, size_t size)
{
    void *resized = cairn_tlsf_resize(tlsf_shared_enter(shared), pointer, size);
    tlsf_shared_leave(shared);
    return resized;
}

api void cairn_tlsf_shared_free(struct cairn_tlsf_shared *shared, void *pointer)
{
    cairn_tlsf_free(tlsf_shared_enter(shared), pointer);
    tlsf_shared_leave(shared);
}

api size_t cairn_tlsf_shared_usable(struct cairn_tlsf_shared *shared, const void *pointer)
{
    size_t size = cairn_tlsf_usable(tlsf_shared_enter(shared), pointer);
    tlsf_shared_leave(shared);
    return size;
}

api int cairn_tlsf_shared_add(struct cairn_tlsf_shared *shared, void *memory, size_t size)
{
    int error = cairn_tlsf_add(tlsf_shared_enter(shared), memory, size);
    tlsf_shared_leave(shared);
    return error;
}

api int cairn_tlsf_shared_remove(struct cairn_tlsf_shared *shared, void *memory)
{
    int error = cairn_tlsf_remove(tlsf_shared_enter(shared), memory);
    tlsf_shared_leave(shared);
    return error;
}

api void cairn_tlsf_shared_walk(struct cairn_tlsf_shared *shared, cairn_tlsf_visit *visit,
                                void *context)
{
    cairn_tlsf_walk(tlsf_shared_enter(shared), visit, context);
    tlsf_shared_leave(shared);
}

api const char *cairn_tlsf_shared_check(struct cairn_tlsf_shared *shared)
{
    const char *fault = cairn_tlsf_check(tlsf_shared_enter(shared));
    tlsf_shared_leave(shared);
    return fault;
}

api void cairn_tlsf_shared_read_stats(struct cairn_tlsf_shared *shared, cairn_tlsf_stats *stats)
{
    cairn_tlsf_read_stats(tlsf_shared_enter(shared), stats);
    tlsf_shared_leave(shared);
}

static void *tlsf_allocator_alloc(void *heap, size_t size, size_t align)
{
    return cairn_tlsf_alloc_aligned(heap, larger_of(size, 1), align);
}

static void *tlsf_allocator_resize(void *heap, void *pointer, size_t old_size, size_t new_size)
{
    (void)old_size;
    return cairn_tlsf_resize(heap, pointer, new_size);
}

static void tlsf_allocator_free(void *heap, void *pointer, size_t size)
{
    (void)size;
    cairn_tlsf_free(heap, pointer);
}

api cairn_allocator cairn_tlsf_allocator(struct cairn_tlsf *heap)
{
    static const struct cairn_allocator_operations operations = {
        .alloc = tlsf_allocator_alloc,
        .resize = tlsf_allocator_resize,
        .free = tlsf_allocator_free,
        .capabilities = CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_FREES_TOGETHER,
        .name = "tlsf",
    };
    return (cairn_allocator){heap, &operations};
}

static void *tlsf_shared_allocator_alloc(void *shared, size_t size, size_t align)
{
    return cairn_tlsf_shared_alloc_aligned(shared, larger_of(size, 1), align);
}

static void *tlsf_shared_allocator_resize(void *shared, void *pointer, size_t old_size,
                                          size_t new_size)
{
    (void)old_size;
    return cairn_tlsf_shared_resize(shared, pointer, new_size);
}

static void tlsf_shared_allocator_free(void *shared, void *pointer, size_t size)
{
    (void)size;
    cairn_tlsf_shared_free(shared, pointer);
}

api cairn_allocator cairn_tlsf_shared_allocator(struct cairn_tlsf_shared *shared)
{
    static const struct cairn_allocator_operations operations = {
        .alloc = tlsf_shared_allocator_alloc,
        .resize = tlsf_shared_allocator_resize,
        .free = tlsf_shared_allocator_free,
        .capabilities = CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_FREES_TOGETHER |
                        CAIRN_ANY_THREAD | CAIRN_ANY_THREAD_FREE,
        .name = "tlsf_shared",
    };
    return (cairn_allocator){shared, &operations};
}

enum { HUGE_PAGES_FROM_BYTES = 2 << 20 };

static_check(TLSF_EBUSY == EBUSY && TLSF_EINVAL == EINVAL && TLSF_EFBIG == EFBIG,
             "the core's error numbers are libc's");

api struct cairn_tlsf *cairn_tlsf_new(size_t size)
{
    os_init();
    /* A heap of all mapped bytes could have one level more, and less room than promised. */
    size_t used = cairn_tlsf_bytes_for(size != 0 ? size : CAIRN_TLSF_NEW_BYTES);
    size_t mapped = align_up(used, os_page_size());
    void *memory = mapped != 0 ? os_map(mapped) : NULL;
    if (memory == NULL && mapped != 0 && pages_make_room(mapped, PAGE_BYTES))
        memory = os_map(mapped);
    if (memory == NULL) {
        errno = ENOMEM;
        return NULL;
    }
    if (mapped >= HUGE_PAGES_FROM_BYTES)
        (void)os_huge_pages(memory, mapped, true);
    struct cairn_tlsf *heap = cairn_tlsf_init(memory, used);
    heap->mapped_bytes = mapped;
    return heap;
}

api int cairn_tlsf_delete(struct cairn_tlsf *heap)
{
    if (heap == NULL)
        return 0;
    if (heap->magic != TLSF_MAGIC || heap->mapped_bytes == 0)
        die("TLSF delete of %p, which is not a heap of cairn_tlsf_new", (void *)heap);
    if (heap->shared != 0)
        return EBUSY; /* the list of locks that fork takes refers to this memory */
    (void)os_unmap(heap, heap->mapped_bytes);
    return 0;
}
