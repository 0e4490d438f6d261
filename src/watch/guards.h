/* Guarded blocks: each is alone in the pages of a slot, between inaccessible guard pages. So an
 * access beyond these pages or after the free traps.
 *
 * The design is that of GWP-ASan (Serebryany et al., "GWP-ASan: Sampling-Based Detection of
 * Memory-Safety Bugs in Production", ICSE-SEIP 2024) and of Electric Fence before it.
 * heap/hooks.h chooses the requests.
 *
 * Pool: a fixed number of slots, in address space of its own. The descriptions of the slots are in
 * a separate mapping between inaccessible pages, away from all blocks.
 *
 *   pool: | guard | data of slot 0 | guard | data of slot 1 | … | guard |
 *
 * The page map leads from the guard and data pages of a slot to its span. So a wrong free of any
 * pointer into the pool is reported with its block, except for pointers into the last guard
 * page.
 *
 * Place: a block ends as near to the right end of its slot's pages as its alignment allows. One in
 * a few begins at the start of a page instead, so that underflows trap, too. The rest of its
 * accessible pages is filled with a pattern that is checked when the block is freed. A freed slot
 * is inaccessible and keeps the stacks of its allocation and its free until it is used again. The
 * slot that was freed first is used first.
 *
 * States: FREE -> BUSY -> LIVE -> BUSY -> FREE, each step a compare-and-swap or a release store.
 * The thread that made a slot BUSY writes its other fields and publishes them with the next state.
 * There is no lock, so fork needs no handler: a slot that another thread had made BUSY stays BUSY
 * in the child and is lost to it.
 *
 * Threads: any; all functions but guarded_start may run at the same time.
 * Cost: guarded_allocate and guarded_free make system calls and walk the stack, which takes
 * microseconds. */
#ifndef CAIRN_WATCH_GUARDS_H
#define CAIRN_WATCH_GUARDS_H

#include "base/compiler.h"
#include "heap/heap.h"
#include "os/process.h"

enum {
    SLOT_COUNT = 256, /* each costs at most 32 KiB of memory, and two mappings */
    SLOT_BLOCK_MAX = MEDIUM_REQUEST_MAX,
    STACK_FRAMES = 16,
};

enum slot_state { SLOT_FREE, SLOT_BUSY, SLOT_LIVE };

/* The stack of an allocation or a free. */
struct call_stack {
    uint32_t thread;
    uint32_t depth;
    uintptr_t frames[STACK_FRAMES];
};

struct guarded_slot {
    struct span span;            /* base, size_bytes: of the block, as below; else const */
    uint32_t state;              /* atomic: enum slot_state */
    uint64_t turn;               /* atomic: count of frees at its last free; 0: never freed */
    struct call_stack allocated; /* thread that made it BUSY */
    struct call_stack freed;     /* thread that made it BUSY */
};
static_check(offsetof(struct guarded_slot, span) == 0, "from the span to its slot");

struct guarded_pool {
    char *start;                /* const after guarded_start; NULL: no block is guarded */
    size_t page_bytes;          /* const after guarded_start */
    size_t slot_bytes;          /* const after guarded_start: a guard page and the data pages */
    struct guarded_slot *slots; /* const after guarded_start */
    uint64_t turns;             /* atomic: counts frees */
};
extern hidden_data struct guarded_pool guarded_pool;

/* Reserves the pool and enters its slots in the page map.
 *
 * Threads: one, once, before there are others.
 * Returns: 0 or a negative errno. */
int guarded_start(void);

/* Takes the free slot that was freed first and makes it BUSY.
 *
 * Returns: NULL when no slot is free. */
struct guarded_slot *guarded_take(void);

/* Counts the guarded blocks in use and their bytes. */
void guarded_count(size_t *blocks, size_t *bytes);

/* Returns the end of the data pages of a slot; a guard page follows. */
inline_always char *guarded_slot_end(const struct guarded_slot *slot)
{
    size_t index = (size_t)(slot - guarded_pool.slots);
    return guarded_pool.start + (index + 1) * guarded_pool.slot_bytes;
}

/* The slot of an address in the pool. */
struct guarded_place {
    struct guarded_slot *slot; /* the slot with or nearest to the address; NULL: not in the pool */
    ptrdiff_t offset;          /* from the start of the slot's block, in bytes */
};

/* Finds the slot of an address. In a guard page, it is the slot whose block is nearer.
 *
 * Returns: a slot that was used, or NULL in `slot`. */
struct guarded_place guarded_find(const void *address);

/* Whether the slot has ever held a block. Its base, size_bytes and stacks then describe the last
 * block. */
inline_always bool slot_was_used(const struct guarded_slot *slot)
{
    /* Acquire: pairs with guarded_allocate. */
    return load_relaxed(&slot->turn) != 0 || load_acquire(&slot->state) == SLOT_LIVE;
}

/* Reports the misuse of a guarded block: one line, the stacks of its allocation and its free, and
 * the stack of this thread. The text is formatted on the stack and written at once, without memory
 * or a lock. One thread reports at a time; others wait for it, but for a bounded time. The number
 * of these reports has no limit.
 *
 * Threads: any; async-signal-safe.
 * Returns: only as misuse_reported (heap/misuse_report.h) does. */
void report_guarded(const char *operation, const struct guarded_slot *slot, const char *format, ...)
    print_like(3, 4) cold;

/* Reports an access to a guarded slot that trapped: the handler for os_catch_faults.
 *
 * Threads: any; async-signal-safe.
 * Returns: false if the address is in no slot that was used; then nothing is reported. */
bool report_fault(const struct os_fault *fault);

struct span;

/* Allocates a guarded block that reads zero: the callback `allocate` of struct heap_guard
 * (heap/hooks.h).
 *
 * Returns: NULL if the block is too large, every slot is in use, memory is out, or this thread is
 * already in this module. */
void *guarded_allocate(size_t size_bytes, size_t alignment_bytes);

/* Frees a guarded block and makes its pages inaccessible: the callback `free` of struct heap_guard.
 * Misuse and a damaged pattern are reported. */
void guarded_free(void *pointer, struct span *span);

/* Checks that `pointer` is a guarded block in use: the callback `check` of struct heap_guard. If
 * not, that is reported.
 *
 * Returns: false if it is not, and the report has returned. */
bool guarded_check(const void *pointer, const struct span *span, const char *operation);

#endif
