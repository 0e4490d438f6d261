/* The pool of guarded slots: see guarded_slots.h. */
#include "watch/guarded_slots.h"

#include "base/bits.h"

#include <errno.h>

struct guarded_pool guarded_pool;

/* The slots, between inaccessible pages; NULL when memory is out. */
static struct guarded_slot *map_slots(void)
{
    size_t page = guarded_pool.page_bytes;
    size_t bytes = align_up(SLOT_COUNT * sizeof(struct guarded_slot), page);
    char *start = os_reserve(page + bytes + page);
    if (start == NULL)
        return NULL;
    if (os_commit(start + page, bytes) != 0) {
        (void)os_unmap(start, page + bytes + page);
        return NULL;
    }
    os_name(start + page, bytes, "cairn: metadata");
    return (struct guarded_slot *)(void *)(start + page);
}

int guarded_start(void)
{
    struct guarded_pool *pool = &guarded_pool;
    pool->page_bytes = os_page_size();
    pool->slot_bytes = pool->page_bytes + align_up(SLOT_BLOCK_MAX, pool->page_bytes);
    size_t bytes = SLOT_COUNT * pool->slot_bytes + pool->page_bytes;
    char *start = os_reserve(bytes);
    if (start == NULL)
        return -ENOMEM;
    struct guarded_slot *slots = page_map_cover(start, bytes) == 0 ? map_slots() : NULL;
    if (slots == NULL) {
        (void)os_unmap(start, bytes);
        return -ENOMEM;
    }
    os_name(start, bytes, "cairn: guarded blocks");
    pool->slots = slots;
    for (struct guarded_slot *slot = slots; slot < slots + SLOT_COUNT; slot++) {
        slot->span.tag = SPAN_GUARDED;
        page_map_set(start + (size_t)(slot - slots) * pool->slot_bytes,
                     pool->slot_bytes >> PAGE_SHIFT, &slot->span);
    }
    pool->start = start;
    return 0;
}

struct guarded_slot *guarded_take(void)
{
    for (unsigned attempt = 0; attempt < SLOT_COUNT; attempt++) {
        struct guarded_slot *oldest = NULL;
        for (unsigned i = 0; i < SLOT_COUNT; i++) {
            struct guarded_slot *slot = &guarded_pool.slots[i];
            if (load_relaxed(&slot->state) == SLOT_FREE &&
                (oldest == NULL || load_relaxed(&slot->turn) < load_relaxed(&oldest->turn)))
                oldest = slot;
        }
        uint32_t expected = SLOT_FREE;
        if (oldest == NULL)
            return NULL;
        /* Acquire: pairs with the release in guarded_free. */
        if (compare_swap_acq_rel(&oldest->state, &expected, (uint32_t)SLOT_BUSY))
            return oldest;
    }
    return NULL;
}

void guarded_count(size_t *blocks, size_t *bytes)
{
    *blocks = 0;
    *bytes = 0;
    for (unsigned i = 0; i < SLOT_COUNT; i++) {
        const struct guarded_slot *slot = &guarded_pool.slots[i];
        if (load_acquire(&slot->state) != SLOT_LIVE) /* pairs with the release in allocate */
            continue;
        ++*blocks;
        *bytes += slot->span.size_bytes;
    }
}

/* Bytes between the address and the slot's block, 0 within it. */
static size_t distance(const struct guarded_slot *slot, const char *address)
{
    const char *end = slot->span.base + slot->span.size_bytes;
    if (address < slot->span.base)
        return (size_t)(slot->span.base - address);
    return address < end ? 0 : (size_t)(address - end);
}

/* In a guard page the block before it and the one behind it are both near. */
struct guarded_place guarded_find(const void *pointer)
{
    const char *address = pointer;
    struct guarded_place place = {NULL, 0};
    size_t bytes = SLOT_COUNT * guarded_pool.slot_bytes + guarded_pool.page_bytes;
    if (guarded_pool.start == NULL || address < guarded_pool.start ||
        address >= guarded_pool.start + bytes)
        return place;
    size_t offset = (size_t)(address - guarded_pool.start);
    size_t index = offset / guarded_pool.slot_bytes;
    bool in_guard = offset % guarded_pool.slot_bytes < guarded_pool.page_bytes;
    struct guarded_slot *here = index < SLOT_COUNT ? &guarded_pool.slots[index] : NULL;
    struct guarded_slot *before = in_guard && index > 0 ? &guarded_pool.slots[index - 1] : NULL;
    if (here && !slot_was_used(here))
        here = NULL;
    if (before && !slot_was_used(before))
        before = NULL;
    place.slot = here;
    if (before && (here == NULL || distance(before, address) < distance(here, address)))
        place.slot = before;
    if (place.slot)
        place.offset = address - place.slot->span.base;
    return place;
}
