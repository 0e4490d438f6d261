/* Blocks of one size, many at once: heap_allocate_batch and heap_free_batch. A batch does in a loop
 * what the fast paths do for one block, with the slab in registers. A block of a batch of frees is
 * found by its address to be in the slab of the previous block, so the page map is read once for a
 * run of such blocks. Blocks that the loops do not serve are allocated and freed one by one, as all
 * blocks of hardened builds are. A file of its own, because few programs execute it: see
 * src/CMakeLists.txt. */
#include "heap/heap.h"

/* Takes up to `count` free slots of the slab, and returns their number. Locking: heap held. */
static size_t batch_take_run(struct span *slab, size_t count, void **blocks)
{
    uint8_t *links = slab_link(slab, 0);
    size_t size = slab->size_bytes;
    char *base = slab->base;
    size_t slot = slab_hot(slab)->head;
    size_t taken = 0;
    while (taken < count && slot != LINK_END) {
        blocks[taken++] = base + slot * size;
        size_t next = load_relaxed(&links[slot]);
        store_relaxed(&links[slot], (uint8_t)LINK_LIVE);
        slot = next;
    }
    slab_hot(slab)->head = (uint32_t)slot;
    slab_hot(slab)->top = base + slot * size;
    size_t fresh = (size_t)slab->fresh_slot;
    size_t end = fresh + smaller_of(count - taken, slab->capacity + 1 - fresh);
    for (char *block = base + fresh * size; fresh < end; fresh++, block += size)
        blocks[taken++] = block;
    store_relaxed(&slab->fresh_slot, (uint64_t)end);
    return taken;
}

size_t heap_allocate_batch(size_t count, size_t size_bytes, void **blocks)
{
    size_t taken = 0;
    while (taken < count) {
        /* Allocated alone if the class has no slab with room, or is diverted or packed. */
        if (!config_hardened && likely(size_bytes <= SMALL_BLOCK_MAX)) {
            struct heap *heap = thread_heap;
            struct span *slab = heap->current[heap->small_class[size_bytes]];
            if (likely(slab->capacity != 0))
                taken += batch_take_run(slab, count - taken, blocks + taken);
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

/* Frees blocks up to the first one of another slab or of the general path. Returns: their number.
 * Threads: owner only. */
static size_t batch_free_run(struct span *slab, size_t count, void *const *blocks)
{
    uint8_t *links = slab_link(slab, 0);
    uintptr_t start = (uintptr_t)slab_start(slab);
    size_t bytes = (size_t)slab->capacity * slab->size_bytes;
    uint64_t limit = slab->fresh_slot;
    /* The free that makes the count 0 has to call free_attend, so it is not done here. */
    size_t most = smaller_of(count, (size_t)(slab_hot(slab)->frees_to_attention - 1));
    uint32_t head = slab_hot(slab)->head;
    size_t freed = 0;
    for (; freed < most && (uintptr_t)blocks[freed] - start < bytes; freed++) {
        uint64_t slot = slab_slot(slab, blocks[freed]);
        if (unlikely(slot >= limit || load_relaxed(&links[slot]) != LINK_LIVE))
            break;
        store_relaxed(&links[slot], (uint8_t)head);
        head = (uint32_t)slot;
    }
    if (freed > 0) {
        slab_hot(slab)->head = head;
        slab_hot(slab)->top = blocks[freed - 1];
        slab_hot(slab)->frees_to_attention = (uint8_t)(slab_hot(slab)->frees_to_attention - freed);
    }
    return freed;
}

void heap_free_batch(size_t count, void *const *blocks)
{
    for (size_t freed = 0; freed < count;) {
        if (!config_hardened) {
            struct span *slab = page_map_find(blocks[freed]);
            if (likely(load_relaxed(&slab->owner) == (uintptr_t)thread_heap))
                freed += batch_free_run(slab, count - freed, blocks + freed);
        }
        if (freed < count)
            free_fast(blocks[freed++]);
    }
}
