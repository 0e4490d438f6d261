/* The fast paths, with all checks: malloc of a small block, free of a block that this thread's heap
 * owns, and requests that need no search (medium, packed and kept large blocks).
 *
 * malloc: the size gives the class, the class its current slab, and the slab's list the slot that
 * was freed last, which is still in the cache. The slot's link byte is the next head of the list,
 * and becomes LIVE. An empty list leads to the slots that were never handed out.
 *
 * free: the page map gives the header, and the header the owner. One multiplication gives the slot
 * number and detects interior pointers. A slot whose link byte is LIVE is pushed to the list.
 *
 * Only free_sized_fast tests for NULL. Before a thread's first call and after its end `thread_heap`
 * points to a heap whose slabs have no slots, and the page map returns the null span for every
 * foreign address.
 * Threads: the fast paths write only fields of the owner, and the link bytes of its blocks
 * (remote.c argues about races on these). Fields that other threads may read (`fresh_slot`, links)
 * are stored by relaxed atomics and read by load_folded, which cost no more than plain accesses.
 *
 * allocate.c, free.c and resize.c handle every other case behind one jump. dev/check_fast_path.py
 * counts the instructions of both paths. */
#ifndef CAIRN_HEAP_FAST_H
#define CAIRN_HEAP_FAST_H

#include "heap/free.h"
#include "heap/hooks.h"
#include "heap/large.h"
#include "heap/packed.h"
#include "heap/thread_heap.h"

#include <string.h>

/* Serves a request that the fast path does not serve. Returns: NULL when out of memory. */
void *malloc_slow(size_t size_bytes);
/* malloc_slow without a report to the tracer, for a resize. */
void *malloc_slow_untraced(size_t size_bytes);
/* malloc_slow without its first step, malloc_cached. */
void *malloc_uncached(size_t size_bytes);
/* Frees a block with its size and alignment; reports a mismatch (resize.c). */
void free_sized_slow(void *pointer, size_t size_bytes, size_t alignment_bytes);

/* Serves a medium request (above SMALL_REQUEST_MAX, at most MEDIUM_REQUEST_MAX) from its class's
 * current slab. Calls `slow` if that has no free slot, as for a thread without a heap. */
inline_always void *malloc_medium(size_t size_bytes, void *(*slow)(size_t))
{
    struct span *slab = thread_heap->current[medium_class(size_bytes + CANARY_BYTES)];
    if (!config_hardened && likely(slab_hot(slab)->head != LINK_END)) {
        slab_hot(slab)->frees_to_attention++;
        return slab_pop_first(slab, slab_hot(slab)->head);
    }
    void *block = config_hardened ? harden_malloc_medium(slab, size_bytes) : slab_pop_fresh(slab);
    if (unlikely(block == NULL))
        return slow(size_bytes);
    if (!config_hardened)
        slab_hot(slab)->frees_to_attention++;
    return block;
}

/* Serves a request that malloc_fast does not serve but that needs no search: a medium block, a
 * packed block, or a large block that the thread has just freed. Calls `slow` otherwise, and while
 * a hook is on. */
inline_always void *malloc_cached(size_t size_bytes, void *(*slow)(size_t))
{
    if (unlikely(heap_is_hooked()))
        return slow(size_bytes);
    if (likely(size_bytes - (SMALL_REQUEST_MAX + 1) <=
               MEDIUM_REQUEST_MAX - (SMALL_REQUEST_MAX + 1)))
        return malloc_medium(size_bytes, slow);
    if (size_bytes > SMALL_REQUEST_MAX)
        return large_malloc(size_bytes, slow);
    void *block =
        config_packed && size_bytes <= PACKED_BYTES ? packed_take_at_hand(thread_heap) : NULL;
    return likely(block != NULL) ? block : slow(size_bytes);
}

/* Serves a request below `end_bytes`, which is at most SMALL_REQUEST_MAX + 1; `slow` serves all
 * others. With an end of 0 the comparison that malloc needs anyway sends every size to `slow`. */
inline_always void *malloc_fast_below(size_t size_bytes, size_t end_bytes, void *(*slow)(size_t))
{
    if (config_hardened)
        return likely(size_bytes < end_bytes) ? harden_malloc(size_bytes, slow) : slow(size_bytes);
    struct heap *heap = thread_heap;
    if (unlikely(size_bytes >= end_bytes))
        return slow(size_bytes);
    struct span *slab = heap->current[heap->small_class[size_bytes]];
    size_t slot = slab_hot(slab)->head;
    if (likely(slot != LINK_END))
        return slab_pop_first(slab, slot);
    uint32_t fresh = (uint32_t)slab->fresh_slot;
    if (unlikely(fresh > slab->capacity))
        return slow(size_bytes);
    store_relaxed(&slab->fresh_slot, (uint64_t)fresh + 1);
    return slab->base + fresh * slab->size_bytes;
}

/* Serves any request. `slow` is malloc_slow or a caller's wrapper of it; the wrapper handles
 * failure, so that failure costs the fast path nothing. */
inline_always void *malloc_fast(size_t size_bytes, void *(*slow)(size_t))
{
    if (config_hardened)
        return harden_malloc(size_bytes, slow);
    return malloc_fast_below(size_bytes, SMALL_REQUEST_MAX + 1, slow);
}

/* Serves a request for a block that reads zero, as a block of `slow` does. */
inline_always void *calloc_fast(size_t size_bytes, void *(*slow)(size_t))
{
    struct heap *heap = thread_heap;
    if (config_hardened || unlikely(size_bytes > SMALL_BLOCK_MAX))
        return slow(size_bytes);
    struct span *slab = heap->current[heap->small_class[size_bytes]];
    size_t slot = slab_hot(slab)->head;
    if (likely(slot != LINK_END))
        return memset(slab_pop_first(slab, slot), 0, size_bytes);
    uint32_t fresh = (uint32_t)slab->fresh_slot;
    if (unlikely(fresh > slab->capacity))
        return slow(size_bytes);
    store_relaxed(&slab->fresh_slot, (uint64_t)fresh + 1);
    return memset(slab->base + fresh * slab->size_bytes, 0, size_bytes);
}

/* Frees a block of a slab of this thread's heap. Calls free_reject if the block is not LIVE. */
inline_always void free_own(void *pointer, struct span *slab)
{
    /* Stored before validation to save a register; free_reject restores it. */
    slab_hot(slab)->top = pointer;
    size_t slot = slab_slot(slab, pointer);
    if (unlikely(slot >= load_folded(&slab->fresh_slot) ||
                 load_folded(slab_link(slab, slot)) != LINK_LIVE)) {
        free_reject((uint32_t)slot, slab);
        return;
    }
    keep_in_register(slot); /* both uses of the link byte address it directly */
    store_relaxed(slab_link(slab, slot), (uint8_t)slab_hot(slab)->head);
    slab_hot(slab)->head = (uint32_t)slot;
    if (unlikely(--slab_hot(slab)->frees_to_attention == 0))
        free_attend(slab);
}

/* Frees a pointer in the first `regions` of the page map's REGION_COUNT regions. `beyond` gets all
 * others: with 0 regions every pointer, by the comparison that free needs anyway. */
inline_always void free_fast_within(void *pointer, size_t regions, void (*beyond)(void *))
{
    if (unlikely((uintptr_t)pointer >> REGION_SHIFT >= regions)) {
        beyond(pointer);
        return;
    }
    if (config_hardened) {
        harden_free(pointer);
        return;
    }
    struct span *slab = page_map_find_reached((uintptr_t)pointer);
    if (unlikely(load_folded(&slab->owner) != (uintptr_t)thread_heap)) {
        free_slow(pointer, slab);
        return;
    }
    free_own(pointer, slab);
}

inline_always void free_fast(void *pointer)
{
    if (config_hardened)
        harden_free(pointer);
    else
        free_fast_within(pointer, REGION_COUNT, free_foreign);
}

/* Frees a block with the size and the alignment that were requested, if it is a small block of this
 * thread's heap. `slow`, which is free_sized_slow or a caller's wrapper of it, handles all other
 * cases, also sizes from `end_bytes` on, which is at most SMALL_REQUEST_MAX + 1, and classes that a
 * hook diverts: no slab has CLASS_COUNT. The test for NULL is needed because NULL may be freed
 * before this thread's `thread_heap` is set up: see free_reject. */
inline_always void free_sized_fast(void *pointer, size_t size_bytes, size_t end_bytes,
                                   size_t alignment_bytes, void (*slow)(void *, size_t, size_t))
{
    if (likely(size_bytes < end_bytes && alignment_bytes <= 16 && pointer != NULL &&
               page_map_reaches((uintptr_t)pointer))) {
        struct span *slab = page_map_find_reached((uintptr_t)pointer);
        const struct heap *heap = thread_heap;
        unsigned size_class = heap->small_class[size_bytes + CANARY_BYTES];
        if (likely(load_folded(&slab->owner) == (uintptr_t)heap &&
                   slab->tag == (uint8_t)(SPAN_SLAB + size_class))) {
            if (config_hardened)
                harden_free_sized(pointer, slab, size_bytes, alignment_bytes, slow);
            else
                free_own(pointer, slab);
            return;
        }
    }
    slow(pointer, size_bytes, alignment_bytes);
}

#endif
