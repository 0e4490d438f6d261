/* Many blocks at once: what the fast paths of fast.h do for one block, in a loop that keeps the
 * slab at hand. What that does not serve goes the way of single blocks. Hardened builds go it
 * always: their checks are what costs.
 *
 * A block of a run of frees is known to lie in the slab that the one before lay in by its address
 * alone, so the page map is asked once a run. The owner's, but what is another heap's.
 */
#include "heap/heap.h"

/* Up to `count` free slots of the slab. */
static size_t take_run(struct span *slab, size_t count, void **blocks)
{
    uint8_t *links = slab_link(slab, 0);
    size_t size = slab->size_bytes;
    char *base = slab->base;
    size_t slot = slab_own(slab)->head;
    size_t taken = 0;
    while (taken < count && slot != LINK_END) {
        blocks[taken++] = base + slot * size;
        size_t next = load_relaxed(&links[slot]);
        store_relaxed(&links[slot], (uint8_t)LINK_LIVE);
        slot = next;
    }
    slab_own(slab)->head = (uint32_t)slot;
    slab_own(slab)->top = base + slot * size;
    size_t fresh = (size_t)slab->limit;
    size_t end = fresh + smaller_of(count - taken, slab->capacity + 1 - fresh);
    for (char *block = base + fresh * size; fresh < end; fresh++, block += size)
        blocks[taken++] = block;
    store_relaxed(&slab->limit, (uint64_t)end);
    return taken;
}

size_t heap_allocate_batch(size_t count, size_t size_bytes, void **blocks)
{
    size_t taken = 0;
    while (taken < count) {
        /* One by one where a class has no slab with room, or is not to be seen: sampled, packed. */
        if (!config_hardened && likely(size_bytes <= SMALL_MAX)) {
            struct heap *heap = thread_heap;
            struct span *slab = heap->current[heap->small_class[size_bytes]];
            if (likely(slab->capacity != 0))
                taken += take_run(slab, count - taken, blocks + taken);
            if (taken == count)
                break;
        }
        void *block = malloc_fast(size_bytes, malloc_slow);
        if (unlikely(block == NULL))
            break;
        blocks[taken++] = block;
    }
    return taken;
}

/* Frees blocks of the slab, which is this thread's, up to the first that does not lie in it, or is
 * not to be freed so simply. Returns how many. */
static size_t free_run(struct span *slab, size_t count, void *const *blocks)
{
    uint8_t *links = slab_link(slab, 0);
    uintptr_t start = (uintptr_t)slab_start(slab);
    size_t bytes = (size_t)slab->capacity * slab->size_bytes;
    uint64_t limit = slab->limit;
    size_t most =
        smaller_of(count, (size_t)(slab_own(slab)->until - 1)); /* the last one attends to it */
    uint32_t head = slab_own(slab)->head;
    size_t freed = 0;
    for (; freed < most && (uintptr_t)blocks[freed] - start < bytes; freed++) {
        uint64_t slot = slab_slot(slab, blocks[freed]);
        if (unlikely(slot >= limit || load_relaxed(&links[slot]) != LINK_LIVE))
            break;
        store_relaxed(&links[slot], (uint8_t)head);
        head = (uint32_t)slot;
    }
    if (freed > 0) {
        slab_own(slab)->head = head;
        slab_own(slab)->top = blocks[freed - 1];
        slab_own(slab)->until = (uint8_t)(slab_own(slab)->until - freed);
    }
    return freed;
}

void heap_free_batch(size_t count, void *const *blocks)
{
    for (size_t freed = 0; freed < count;) {
        if (!config_hardened) {
            struct span *slab = page_map_find(blocks[freed]);
            if (likely(load_relaxed(&slab->owner) == (uintptr_t)thread_heap))
                freed += free_run(slab, count - freed, blocks + freed);
        }
        if (freed < count)
            free_fast(blocks[freed++]);
    }
}
