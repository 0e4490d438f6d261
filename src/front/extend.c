/* What the heap offers beyond libc's functions: see include/cairn/heap.h. No state. */
#include "cairn/heap.h"

#include "base/bits.h"
#include "front/entry.h"
#include "front/out_of_memory.h"

#include <errno.h>

api size_t cairn_good_size(size_t size) { return heap_good_size(size); }

api void *cairn_malloc_at_least(size_t size, size_t *usable)
{
    size_t good = heap_good_size(size);
    void *block = entry_malloc(good);
    *usable = block ? good : 0;
    return block;
}

api void *cairn_resize(void *pointer, size_t size)
{
    return pointer && heap_resize_in_place(pointer, larger_of(size, 1)) ? pointer : NULL;
}

static cold void *failed(int error)
{
    errno = error;
    return NULL;
}

api void *cairn_recallocarray(void *pointer, size_t old_count, size_t count, size_t size)
{
    size_t total, old;
    if (__builtin_mul_overflow(count, size, &total))
        return failed(ENOMEM);
    if (pointer == NULL)
        return entry_calloc(count, size);
    if (__builtin_mul_overflow(old_count, size, &old) || old > heap_usable_size(pointer))
        return failed(EINVAL);
    void *block = heap_resize_zeroed(pointer, old, total);
    for (int tries = 0; block == NULL && memory_asked_of_process(total, &tries);)
        block = heap_resize_zeroed(pointer, old, total);
    return block ? block : failed(ENOMEM);
}

api size_t cairn_malloc_batch(size_t count, size_t size, void **blocks)
{
    size_t taken = heap_allocate_batch(count, size, blocks);
    for (int tries = 0; taken < count && memory_asked_of_process(size, &tries);)
        taken += heap_allocate_batch(count - taken, size, blocks + taken);
    if (unlikely(taken < count))
        errno = ENOMEM;
    return taken;
}

api void cairn_free_batch(size_t count, void *const *blocks) { heap_free_batch(count, blocks); }

api void cairn_thread_idle(void) { heap_idle(); }
