/* The pool of guarded blocks: a fixed number of slots, each a few pages between inaccessible ones.
 *
 * After GWP-ASan (Serebryany et al., "GWP-ASan: Sampling-Based Detection of Memory-Safety Bugs in
 * Production", ICSE-SEIP 2024) and Electric Fence before it. What a slot holds, and how it is
 * freed, stands in guarded_blocks.h. The slot that was freed first is used first.
 *
 *   pool: | guard | data of slot 0 | guard | data of slot 1 | … | guard |
 *
 * The page map leads from a slot's guard and data pages to its span; so every pointer into the pool
 * but the last guard page is told.
 *
 * Slots lie in metadata of their own, beside no block. States: FREE -> BUSY -> LIVE -> BUSY ->
 * FREE, changed by compare and swap; whoever made it BUSY writes the other fields, and publishes
 * them with the next state. No lock, so fork needs nothing: a slot that another thread had BUSY
 * stays so in the child and is lost to it.
 *
 * Any thread; all of it may run together.
 */
#ifndef CAIRN_WATCH_GUARDED_SLOTS_H
#define CAIRN_WATCH_GUARDED_SLOTS_H

#include "heap/heap.h"
#include "os/os.h"

enum {
    SLOT_COUNT = 256, /* memory: at most as many times 32 KiB, and two mappings each */
    SLOT_BLOCK_MAX = MEDIUM_MOST,
    STACK_FRAMES = 16,
};

enum slot_state { SLOT_FREE, SLOT_BUSY, SLOT_LIVE };

struct call_stack {
    uint32_t thread;
    uint32_t depth;
    uintptr_t frames[STACK_FRAMES];
};

struct guarded_slot {
    struct span span;            /* base and size_bytes: of the block, holder of BUSY; else const */
    uint32_t state;              /* atomic: see above */
    uint64_t turn;               /* atomic, holder of BUSY: when it was freed; 0: never used */
    struct call_stack allocated; /* holder of BUSY */
    struct call_stack freed;     /* holder of BUSY */
};
static_check(offsetof(struct guarded_slot, span) == 0, "from the span to its slot");

struct guarded_pool {
    char *start;                /* const after guarded_start; NULL: there is none */
    size_t page_bytes;          /* const after guarded_start */
    size_t slot_bytes;          /* const after guarded_start: guard and data */
    struct guarded_slot *slots; /* const after guarded_start */
    uint64_t turns;             /* atomic: counts frees */
};
extern hidden_data struct guarded_pool guarded_pool;

int guarded_start(void); /* 0 or a negative errno */

/* The free slot that was freed first, now BUSY; NULL when there is none. */
struct guarded_slot *guarded_take(void);

/* The live blocks and their bytes. */
void guarded_count(size_t *blocks, size_t *bytes);

/* The end of the pages that hold the slot's block; a guard page follows. */
inline_always char *guarded_slot_end(const struct guarded_slot *slot)
{
    size_t index = (size_t)(slot - guarded_pool.slots);
    return guarded_pool.start + (index + 1) * guarded_pool.slot_bytes;
}

/* Where in the pool an address lies. */
struct guarded_place {
    struct guarded_slot *slot; /* that the address is in, or nearest to; NULL: not in the pool */
    ptrdiff_t offset;          /* from the start of the slot's block */
};
struct guarded_place guarded_find(const void *address);

/* Whether the slot has ever held a block: then base, size_bytes and the stacks tell of the last
 * one. */
inline_always bool slot_was_used(const struct guarded_slot *slot)
{
    return load_relaxed(&slot->turn) != 0 || load_acquire(&slot->state) == SLOT_LIVE;
}

#endif
