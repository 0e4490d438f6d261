/* The pool of guarded slots: see guarded_slots.h. */
#include "watch/guarded_slots.h"

#include "base/bits.h"
#include "base/check.h"
#include "heap/heap.h"
#include "watch/fault_report.h"

#include <errno.h>
#include <string.h>

enum {
    FILLER = 0xcb,
    LEFT_ONE_IN = 4, /* overflows are more common than underflows */
};

struct guarded_pool guarded_pool;

/* The unwinder may allocate after all, in a process with unwind tables of its own. */
static thread_local_word bool inside;

static char *slot_start(const struct guarded_slot *slot)
{
    return guarded_pool.start + (size_t)(slot - guarded_pool.slots) * guarded_pool.slot_bytes;
}
static char *slot_end(const struct guarded_slot *slot)
{
    return slot_start(slot) + guarded_pool.slot_bytes;
}

/* First byte of the pages that hold the slot's block. */
static char *slot_pages(const struct guarded_slot *slot)
{
    return (char *)align_down((uintptr_t)slot->span.base, guarded_pool.page_bytes);
}

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

/* The free slot that was freed first, now BUSY; NULL when there is none. */
static struct guarded_slot *take_slot(void)
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

static void record(struct call_stack *stack)
{
    stack->thread = os_thread_id();
    stack->depth = os_stack(stack->frames, STACK_FRAMES, 0);
}

static void fill_around(const struct guarded_slot *slot)
{
    char *block = slot->span.base;
    char *behind = block + slot->span.size_bytes;
    char *pages = slot_pages(slot);
    memset(pages, FILLER, (size_t)(block - pages));
    memset(behind, FILLER, (size_t)(slot_end(slot) - behind));
}

static bool is_filler(const char *start, const char *end)
{
    size_t bytes = (size_t)(end - start);
    return bytes == 0 || (*start == (char)FILLER && memcmp(start, start + 1, bytes - 1) == 0);
}

/* The byte beside the block that was written, the nearest to it; NULL if none. */
static const char *find_damage(const struct guarded_slot *slot)
{
    const char *block = slot->span.base;
    const char *behind = block + slot->span.size_bytes;
    if (!is_filler(behind, slot_end(slot))) {
        while (*behind == (char)FILLER)
            behind++;
        return behind;
    }
    if (is_filler(slot_pages(slot), block))
        return NULL;
    do
        block--;
    while (*block == (char)FILLER);
    return block;
}

/* Makes the slot's block; the slot is BUSY. */
static bool make_block(struct guarded_slot *slot, size_t size_bytes, size_t alignment_bytes)
{
    char *end = slot_end(slot);
    char *start = end - larger_of(size_bytes, 1);
    bool left = os_entropy() % LEFT_ONE_IN == 0;
    start = (char *)align_down((uintptr_t)start, left ? guarded_pool.page_bytes : alignment_bytes);
    char *pages = (char *)align_down((uintptr_t)start, guarded_pool.page_bytes);
    if (os_protect(pages, (size_t)(end - pages), OS_WRITE) != 0)
        return false;
    slot->span.base = start;
    slot->span.size_bytes = (uint32_t)size_bytes;
    memset(start, 0, size_bytes); /* pages that could not be purged hold a former block */
    fill_around(slot);
    record(&slot->allocated);
    return true;
}

void *guarded_allocate(size_t size_bytes, size_t alignment_bytes)
{
    alignment_bytes = larger_of(alignment_bytes, 16);
    if (size_bytes > SLOT_BLOCK_MAX || alignment_bytes > guarded_pool.page_bytes || inside)
        return NULL;
    struct guarded_slot *slot = take_slot();
    if (slot == NULL)
        return NULL;
    inside = true;
    bool made = make_block(slot, size_bytes, alignment_bytes);
    inside = false;
    /* Release: pairs with load_acquire wherever the state is read. */
    store_release(&slot->state, made ? (uint32_t)SLOT_LIVE : (uint32_t)SLOT_FREE);
    return made ? slot->span.base : NULL;
}

bool guarded_check(const void *pointer, const struct span *span, const char *operation)
{
    const struct guarded_slot *slot = (const struct guarded_slot *)(const void *)span;
    if (!slot_was_used(slot))
        refuse(operation, "%s of %p, which is not a Cairn block", operation, pointer);
    else if (pointer != span->base)
        refuse_guarded(operation, slot, "%s of interior pointer %p (%u-byte block at %p)",
                       operation, pointer, span->size_bytes, (void *)span->base);
    else if (load_acquire(&slot->state) != SLOT_LIVE) /* pairs with the one in guarded_allocate */
        refuse_guarded(operation, slot,
                       operation[0] == 'f' ? "double %s of %p (%u-byte block)"
                                           : "%s of freed block %p (%u-byte block)",
                       operation, pointer, span->size_bytes);
    else
        return true;
    return false;
}

void guarded_free(void *pointer, struct span *span)
{
    struct guarded_slot *slot = (struct guarded_slot *)(void *)span;
    if (!guarded_check(pointer, span, "free"))
        return;
    uint32_t expected = SLOT_LIVE;
    if (!compare_swap_acq_rel(&slot->state, &expected, (uint32_t)SLOT_BUSY)) {
        refuse_guarded("free", slot, "double free of %p (%u-byte block)", pointer,
                       span->size_bytes);
        return;
    }
    const char *damage = find_damage(slot);
    if (damage)
        refuse_guarded("overflow", slot, "%s of %p (%u-byte block): %p was written, found by free",
                       damage < span->base ? "underflow" : "overflow", pointer, span->size_bytes,
                       (const void *)damage);
    inside = true;
    record(&slot->freed);
    inside = false;
    /* Refused, a use after free is not seen, or the memory stays; nothing else is harmed. */
    char *pages = slot_pages(slot);
    (void)os_protect(pages, (size_t)(slot_end(slot) - pages), OS_NONE);
    (void)os_purge(pages, (size_t)(slot_end(slot) - pages));
    store_relaxed(&slot->turn, fetch_add_relaxed(&guarded_pool.turns, (uint64_t)1) + 1);
    store_release(&slot->state, (uint32_t)SLOT_FREE); /* pairs with take_slot */
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
