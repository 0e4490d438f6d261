/* The whole fast path: malloc of a small block and free of an own block, checks included.
 *
 * malloc: size -> class -> the class's current slab; its list gives the slot freed last; the list's
 * next head comes from the slot's link byte, which becomes "live". An empty list falls through to
 * the slots never used. free: page map -> header -> owned by this thread's heap? -> slot number by
 * one multiplication, which also tells interior pointers -> link byte still "live"? -> push.
 *
 * No null tests: before a thread's first call and after its end `thread_heap` points at a table of
 * empty slabs, and the page map answers with the null span for whatever is not ours. No locks, no
 * atomics: only the owner writes here what is written here. What other threads may read (limit,
 * links) is accessed by relaxed atomics, which cost nothing. Everything else is in allocate.c
 * and free.c, behind one jump. dev/ counts the instructions of both paths in the built library.
 */
#ifndef CAIRN_HEAP_FAST_H
#define CAIRN_HEAP_FAST_H

#include "heap/class_table.h"
#include "heap/free.h"
#include "heap/harden_fast.h"
#include "heap/large.h"
#include "heap/packed_take.h"
#include "heap/thread_heap.h"

#include <string.h>

void *
malloc_slow(size_t size_bytes); /* whatever the fast path does not serve; NULL when memory is out */
void *malloc_not_at_hand(size_t size_bytes);   /* likewise, after malloc_at_hand */
void *malloc_slow_untraced(size_t size_bytes); /* likewise; no tracer hears of it */
void free_sized_slow(void *pointer, size_t size_bytes, size_t alignment_bytes); /* in resize.c */

/* The usual way of a medium block: its class's current slab has a free slot. Else, and for who
 * watches, `slow` has to look. A thread without a heap has empty slabs only. */
inline_always void *malloc_medium(size_t size_bytes, void *(*slow)(size_t))
{
    struct span *slab = thread_heap->current[medium_class(size_bytes + CANARY_BYTES)];
    if (!config_hardened && likely(slab_own(slab)->head != LINK_END)) {
        slab_own(slab)->until++;
        return slab_pop_first(slab, slab_own(slab)->head);
    }
    void *block = config_hardened ? harden_malloc_medium(slab, size_bytes) : slab_pop_fresh(slab);
    if (unlikely(block == NULL))
        return slow(size_bytes);
    if (!config_hardened)
        slab_own(slab)->until++;
    return block;
}

/* What malloc_fast left over and is at hand all the same: a medium block, one of a packed slab, or
 * a large one as the thread has just freed. */
inline_always void *malloc_at_hand(size_t size_bytes, void *(*slow)(size_t))
{
    if (unlikely(heap_is_watched()))
        return slow(size_bytes);
    if (likely(size_bytes - (SMALL_MOST + 1) <= MEDIUM_MOST - (SMALL_MOST + 1)))
        return malloc_medium(size_bytes, slow);
    if (size_bytes > SMALL_MOST)
        return large_malloc(size_bytes, slow);
    void *block =
        config_packed && size_bytes <= PACKED_BYTES ? packed_take_claimed(thread_heap) : NULL;
    return likely(block != NULL) ? block : slow(size_bytes);
}

/* `slow` is malloc_slow or a caller's wrapper of it: what to do when it fails costs the fast path
 * nothing. */
inline_always void *malloc_fast(size_t size_bytes, void *(*slow)(size_t))
{
    if (config_hardened)
        return harden_malloc(size_bytes, slow);
    struct heap *heap = thread_heap;
    if (unlikely(size_bytes > SMALL_MAX))
        return slow(size_bytes);
    struct span *slab = heap->current[heap->small_class[size_bytes]];
    size_t slot = slab_own(slab)->head;
    if (likely(slot != LINK_END))
        return slab_pop_first(slab, slot);
    uint32_t fresh = (uint32_t)slab->limit;
    if (unlikely(fresh > slab->capacity))
        return slow(size_bytes);
    store_relaxed(&slab->limit, (uint64_t)fresh + 1);
    return slab->base + fresh * slab->size_bytes;
}

/* A block that reads zero, cleared by a jump to memset; `slow` gives such blocks, too. */
inline_always void *calloc_fast(size_t size_bytes, void *(*slow)(size_t))
{
    struct heap *heap = thread_heap;
    if (config_hardened || unlikely(size_bytes > SMALL_MAX))
        return slow(size_bytes);
    struct span *slab = heap->current[heap->small_class[size_bytes]];
    size_t slot = slab_own(slab)->head;
    if (likely(slot != LINK_END))
        return memset(slab_pop_first(slab, slot), 0, size_bytes);
    uint32_t fresh = (uint32_t)slab->limit;
    if (unlikely(fresh > slab->capacity))
        return slow(size_bytes);
    store_relaxed(&slab->limit, (uint64_t)fresh + 1);
    return memset(slab->base + fresh * slab->size_bytes, 0, size_bytes);
}

/* Of a slab that this thread's heap owns. */
inline_always void free_own(void *pointer, struct span *slab)
{
    slab_own(slab)->top =
        pointer; /* early: one register less; what rejects the pointer takes it back */
    size_t slot = slab_slot(slab, pointer);
    if (unlikely(slot >= load_folded(&slab->limit) ||
                 load_folded(slab_link(slab, slot)) != LINK_LIVE)) {
        free_reject((uint32_t)slot, slab);
        return;
    }
    keep_in_register(slot); /* both uses of the link byte address it directly */
    store_relaxed(slab_link(slab, slot), (uint8_t)slab_own(slab)->head);
    slab_own(slab)->head = (uint32_t)slot;
    if (unlikely(--slab_own(slab)->until == 0))
        free_attend(slab);
}

inline_always void free_fast(void *pointer)
{
    if (config_hardened) {
        harden_free(pointer);
        return;
    }
    if (unlikely(!page_map_reaches((uintptr_t)pointer))) {
        free_foreign(pointer);
        return;
    }
    struct span *slab = page_map_find_reached((uintptr_t)pointer);
    if (unlikely(load_folded(&slab->owner) != (uintptr_t)thread_heap)) {
        free_slow(pointer, slab);
        return;
    }
    free_own(pointer, slab);
}

/* A free with the size and the alignment that were asked for: of a small block of this thread's,
 * whose heap has the class of every size at hand. Where its table leads elsewhere, as for a class
 * that is to be sampled, no slab of its own has that class. `slow` is free_sized_slow. NULL may
 * come before this thread has any heap: see free_reject. */
inline_always void free_sized_fast(void *pointer, size_t size_bytes, size_t alignment_bytes,
                                   void (*slow)(void *, size_t, size_t))
{
    if (likely(size_bytes <= SMALL_MOST && alignment_bytes <= 16 && pointer != NULL &&
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
