/* See harden_fast.h. */
#include "heap/harden_fast.h"

#include "heap/canary.h"
#include "heap/free.h"
#include "heap/quarantine.h"

void *harden_malloc(size_t size_bytes, void *(*slow)(size_t))
{
    if (unlikely(size_bytes > SMALL_MOST))
        return slow(size_bytes);
    struct heap *heap = thread_heap;
    struct span *slab = heap->current[heap->small_class[size_bytes + CANARY_BYTES]];
    unsigned slot = slab_own(slab)->head;
    if (unlikely(slot == LINK_END))
        return slow(size_bytes);
    void *block = slab_own(slab)->top;
    uint8_t *link = slab_link(slab, slot);
    slab_own(slab)->head = load_relaxed(link);
    slab_own(slab)->top = slab_block(slab, slab_own(slab)->head);
    store_relaxed(link, (uint8_t)LINK_LIVE);
    if (config_zero_freed)
        __builtin_prefetch(slab_own(slab)->top, 1); /* the next one will be looked at, too */
    return harden_hand_out_at(block, slab->size_bytes, size_bytes);
}

void *harden_malloc_medium(struct span *slab, size_t size_bytes)
{
    void *block = slab_pop(slab);
    if (unlikely(block == NULL))
        return NULL;
    slab_own(slab)->until++;
    return harden_hand_out_medium(block, slab->size_bytes, size_bytes);
}

/* Longer blocks are cleared by memset: apart, so that the usual free has no stack frame. */
enum { CLEARED_IN_LINE = 256 };

static no_inline void retire_long(struct span *slab, char *block, unsigned slot)
{
    memset(block, 0, slab->size_bytes);
    quarantine_retain(thread_heap, slab, slot);
}

/* A block of this thread's whose canaries were looked at. */
inline_always void retire(struct span *slab, char *block, unsigned slot)
{
    size_t size_bytes = slab->size_bytes;
    quarantine_mark(slab, slot);
    if (config_zero_freed && size_bytes > CLEARED_IN_LINE) {
        retire_long(slab, block, slot);
        return;
    }
    if (config_zero_freed)
        block_clear(block, size_bytes);
    quarantine_retain(thread_heap, slab, slot);
}

void harden_free(void *pointer)
{
    if (unlikely(!page_map_reaches((uintptr_t)pointer))) {
        free_foreign(pointer);
        return;
    }
    struct span *slab = page_map_find(pointer);
    if (unlikely(load_relaxed(&slab->owner) != (uintptr_t)thread_heap)) {
        free_slow(pointer, slab);
        return;
    }
    unsigned slot = (unsigned)slab_slot(slab, pointer);
    if (unlikely(slot >= load_relaxed(&slab->limit) ||
                 load_relaxed(slab_link(slab, slot)) != LINK_LIVE)) {
        free_reject(slot, slab);
        return;
    }
    if (unlikely(slab_is_void(slab))) {
        quarantine_mark(slab, slot);
        quarantine_retain(thread_heap, slab, slot);
        return;
    }
    (void)harden_slack(slab, pointer);
    retire(slab, pointer, slot);
}

void harden_free_sized(void *pointer, struct span *slab, size_t size_bytes, size_t alignment_bytes,
                       void (*slow)(void *, size_t, size_t))
{
    unsigned slot = (unsigned)slab_slot(slab, pointer);
    if (unlikely(slab_is_void(slab) || !slab_shows_live(slab, slot) ||
                 !canary_shows(pointer, slab->size_bytes, size_bytes))) {
        slow(pointer, size_bytes, alignment_bytes); /* of another size, or damaged */
        return;
    }
    retire(slab, pointer, slot);
}
