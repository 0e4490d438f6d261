/* Blocks in guarded slots: see guarded_blocks.h. */
#include "watch/guarded_blocks.h"

#include "base/bits.h"
#include "watch/fault_report.h"
#include "watch/guarded_slots.h"

#include <string.h>

enum {
    FILLER = 0xcb,
    LEFT_ONE_IN = 4, /* overflows are more common than underflows */
};

/* The unwinder may allocate after all, in a process with unwind tables of its own. */
static thread_local_word bool inside;

/* First byte of the pages that hold the slot's block. */
static char *slot_pages(const struct guarded_slot *slot)
{
    return (char *)align_down((uintptr_t)slot->span.base, guarded_pool.page_bytes);
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
    memset(behind, FILLER, (size_t)(guarded_slot_end(slot) - behind));
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
    if (!is_filler(behind, guarded_slot_end(slot))) {
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
    char *end = guarded_slot_end(slot);
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
    struct guarded_slot *slot = guarded_take();
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
    (void)os_protect(pages, (size_t)(guarded_slot_end(slot) - pages), OS_NONE);
    (void)os_purge(pages, (size_t)(guarded_slot_end(slot) - pages));
    store_relaxed(&slot->turn, fetch_add_relaxed(&guarded_pool.turns, (uint64_t)1) + 1);
    store_release(&slot->state, (uint32_t)SLOT_FREE); /* pairs with guarded_take */
}
