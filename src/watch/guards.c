/* The pool of guarded slots, reports of misuse, the blocks in the slots, and the connection with
 * the heap: see guards.h. */
#include "watch/guards.h"

#include "base/bits.h"
#include "base/check.h"
#include "heap/heap.h"
#include "os/memory.h"
#include "os/module.h"
#include "os/process.h"
#include "unwind/unwind.h"
#include "watch/watch.h"

#include <errno.h>
#include <string.h>

struct guarded_pool guarded_pool;

/* Maps the descriptions of the slots between inaccessible pages.
 *
 * Returns: NULL when out of memory. */
static struct guarded_slot *guard_map_slots(void)
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
    struct guarded_slot *slots = page_map_cover(start, bytes) == 0 ? guard_map_slots() : NULL;
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
        if (load_acquire(&slot->state) != SLOT_LIVE) /* pairs with guarded_allocate */
            continue;
        ++*blocks;
        *bytes += slot->span.size_bytes;
    }
}

/* Returns the number of bytes between an address and the block of a slot; 0 within the block. */
static size_t guard_distance(const struct guarded_slot *slot, const char *address)
{
    const char *end = slot->span.base + slot->span.size_bytes;
    if (address < slot->span.base)
        return (size_t)(slot->span.base - address);
    return address < end ? 0 : (size_t)(address - end);
}

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
    if (before && (here == NULL || guard_distance(before, address) < guard_distance(here, address)))
        place.slot = before;
    if (place.slot)
        place.offset = address - place.slot->span.base;
    return place;
}

enum { WAIT_MS = 10, WAITS_MAX = 500 };

/* atomic: the thread that reports, and the number of its process in the upper half; 0: none */
static uint64_t reporter;

/* A thread's claim to report. WITHIN: it reports already, for a signal handler interrupted it, or
 * the report itself has met a fault. */
enum report_claim { NOT_CLAIMED, CLAIMED, CLAIMED_WITHIN };

/* Makes this thread the one that reports. Waits while another thread does, but not for ever: that
 * thread usually ends the process.
 *
 * Returns: NOT_CLAIMED if the other thread has not finished in that time. */
static enum report_claim guard_claim_report(void)
{
    uint64_t self = (uint64_t)heap_generation << 32 | os_thread_id();
    for (unsigned i = 0; i < WAITS_MAX; i++) {
        uint64_t seen = load_relaxed(&reporter);
        if (seen == self)
            return CLAIMED_WITHIN;
        bool is_free = seen == 0 || seen >> 32 != heap_generation; /* another process's: fork */
        /* Acquire: pairs with guard_end_report. */
        if (is_free && compare_swap_acq_rel(&reporter, &seen, self))
            return CLAIMED;
        os_sleep_ms(WAIT_MS);
    }
    return NOT_CLAIMED;
}

/* Ends a report, so that another thread may report. */
static void guard_end_report(enum report_claim claim)
{
    if (claim == CLAIMED)
        store_release(&reporter, (uint64_t)0); /* pairs with guard_claim_report */
}

/* Prints a stack: each address, and its file and offset if they are known. */
static void guard_print_stack(const char *what, const struct call_stack *stack)
{
    report_error("  %s by thread %u:", what, stack->thread);
    for (unsigned i = 0; i < stack->depth && i < STACK_FRAMES; i++) {
        uintptr_t base = 0;
        const char *file = os_locate(stack->frames[i], &base);
        if (file)
            report_error("    %p %s+%p", (void *)stack->frames[i], file,
                         (void *)(stack->frames[i] - base));
        else
            report_error("    %p", (void *)stack->frames[i]);
    }
}

/* Prints the stacks of a slot and then that of this thread. The thread's own stack is last because
 * a walk over a broken stack may end the process. */
static void guard_print_stacks(const struct guarded_slot *slot, uintptr_t instruction)
{
    guard_print_stack("allocated", &slot->allocated);
    /* Acquire: pairs with guarded_free. */
    if (load_relaxed(&slot->turn) != 0 && load_acquire(&slot->state) == SLOT_FREE)
        guard_print_stack("freed", &slot->freed);
    struct call_stack now = {.thread = os_thread_id()};
    now.depth = unwind_stack(now.frames, STACK_FRAMES, instruction);
    guard_print_stack("misused", &now);
}

void report_guarded(const char *operation, const struct guarded_slot *slot, const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    format_text_list(line, sizeof line, format, arguments);
    va_end(arguments);
    enum report_claim claim = guard_claim_report();
    if (claim != NOT_CLAIMED) {
        report_error("%s", line);
        guard_print_stacks(slot, 0);
    }
    misuse_reported(operation);
    guard_end_report(claim);
}

bool report_fault(const struct os_fault *fault)
{
    static const char *const accesses[] = {"read", "write", "access"};
    struct guarded_place place = guarded_find(fault->address);
    if (place.slot == NULL)
        return false;
    enum report_claim claim = guard_claim_report();
    if (claim == NOT_CLAIMED)
        return true;
    const char *access = accesses[fault->kind];
    const struct span *span = &place.slot->span;
    size_t size = span->size_bytes;
    void *block = span->base;
    ptrdiff_t behind = place.offset - (ptrdiff_t)size;
    if (load_acquire(&place.slot->state) != SLOT_LIVE) /* pairs with guarded_free */
        report_error("use after free: %s of %p (%zu-byte block at %p)", access, fault->address,
                     size, block);
    else if (place.offset < 0)
        report_error("underflow: %s of %p, %zu bytes before a %zu-byte block at %p", access,
                     fault->address, (size_t)-place.offset, size, block);
    else
        report_error("overflow: %s of %p, %zu bytes behind a %zu-byte block at %p", access,
                     fault->address, (size_t)behind, size, block);
    guard_print_stacks(place.slot, fault->instruction);
    /* The fault usually ends the process next, but a handler of the program may continue. */
    guard_end_report(claim);
    return true;
}

enum {
    FILLER = 0xcb,
    LEFT_ONE_IN = 4, /* overflows are more common than underflows */
};

/* Owner thread: set while this thread walks its stack here. The unwinder may allocate, in a process
 * with unwind tables of its own; the heap itself serves these requests. */
static thread_local_word bool inside;

/* Returns the first byte of the accessible pages of a slot. */
static char *guard_slot_pages(const struct guarded_slot *slot)
{
    return (char *)align_down((uintptr_t)slot->span.base, guarded_pool.page_bytes);
}

/* Records this thread's stack. */
static void guard_record(struct call_stack *stack)
{
    stack->thread = os_thread_id();
    stack->depth = unwind_stack(stack->frames, STACK_FRAMES, 0);
}

/* Fills the accessible bytes around the block with the pattern. */
static void guard_fill_around(const struct guarded_slot *slot)
{
    char *block = slot->span.base;
    char *behind = block + slot->span.size_bytes;
    char *pages = guard_slot_pages(slot);
    memset(pages, FILLER, (size_t)(block - pages));
    memset(behind, FILLER, (size_t)(guarded_slot_end(slot) - behind));
}

/* Whether all bytes of a range have the pattern. */
static bool guard_is_filler(const char *start, const char *end)
{
    size_t bytes = (size_t)(end - start);
    return bytes == 0 || (*start == (char)FILLER && memcmp(start, start + 1, bytes - 1) == 0);
}

/* Finds a byte next to the block that was overwritten, the nearest one behind it, else the nearest
 * one before it.
 *
 * Returns: NULL if the pattern is intact. */
static const char *guard_find_damage(const struct guarded_slot *slot)
{
    const char *block = slot->span.base;
    const char *behind = block + slot->span.size_bytes;
    if (!guard_is_filler(behind, guarded_slot_end(slot))) {
        while (*behind == (char)FILLER)
            behind++;
        return behind;
    }
    if (guard_is_filler(guard_slot_pages(slot), block))
        return NULL;
    do
        block--;
    while (*block == (char)FILLER);
    return block;
}

/* Makes the pages of a BUSY slot accessible and places its block in them.
 *
 * Returns: false if the kernel refuses. */
static bool guard_make_block(struct guarded_slot *slot, size_t size_bytes, size_t alignment_bytes)
{
    char *end = guarded_slot_end(slot);
    char *start = end - larger_of(size_bytes, 1);
    bool left = os_random() % LEFT_ONE_IN == 0;
    start = (char *)align_down((uintptr_t)start, left ? guarded_pool.page_bytes : alignment_bytes);
    char *pages = (char *)align_down((uintptr_t)start, guarded_pool.page_bytes);
    if (os_protect(pages, (size_t)(end - pages), OS_WRITE) != 0)
        return false;
    slot->span.base = start;
    slot->span.size_bytes = (uint32_t)size_bytes;
    memset(start, 0, size_bytes); /* pages that could not be purged hold a former block */
    guard_fill_around(slot);
    guard_record(&slot->allocated);
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
    bool made = guard_make_block(slot, size_bytes, alignment_bytes);
    inside = false;
    /* Release: pairs with each load_acquire of the state, and with the swap in guarded_free. */
    store_release(&slot->state, made ? (uint32_t)SLOT_LIVE : (uint32_t)SLOT_FREE);
    return made ? slot->span.base : NULL;
}

bool guarded_check(const void *pointer, const struct span *span, const char *operation)
{
    const struct guarded_slot *slot = (const struct guarded_slot *)(const void *)span;
    if (!slot_was_used(slot))
        report_misuse(operation, "%s of %p, which is not a Cairn block", operation, pointer);
    else if (pointer != span->base)
        report_guarded(operation, slot, "%s of interior pointer %p (%u-byte block at %p)",
                       operation, pointer, span->size_bytes, (void *)span->base);
    else if (load_acquire(&slot->state) != SLOT_LIVE) /* pairs with guarded_allocate */
        report_guarded(operation, slot,
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
    /* Acquire: pairs with guarded_allocate. */
    if (!compare_swap_acq_rel(&slot->state, &expected, (uint32_t)SLOT_BUSY)) {
        report_guarded("free", slot, "double free of %p (%u-byte block)", pointer,
                       span->size_bytes);
        return;
    }
    const char *damage = guard_find_damage(slot);
    if (damage)
        report_guarded("overflow", slot, "%s of %p (%u-byte block): %p was written, found by free",
                       damage < span->base ? "underflow" : "overflow", pointer, span->size_bytes,
                       (const void *)damage);
    inside = true;
    guard_record(&slot->freed);
    inside = false;
    /* If the kernel refuses one of these calls, a use after free is not detected, or the memory
     * stays resident. Nothing else depends on them. */
    char *pages = guard_slot_pages(slot);
    (void)os_protect(pages, (size_t)(guarded_slot_end(slot) - pages), OS_NONE);
    (void)os_purge(pages, (size_t)(guarded_slot_end(slot) - pages));
    store_relaxed(&slot->turn, fetch_add_relaxed(&guarded_pool.turns, (uint64_t)1) + 1);
    store_release(&slot->state, (uint32_t)SLOT_FREE); /* pairs with guarded_take */
}

static struct heap_guard guard = {
    .allocate = guarded_allocate,
    .free = guarded_free,
    .check = guarded_check,
    .count = guarded_count,
}; /* const after guards_start */

int guards_start(uint32_t interval)
{
    heap_start();
    unwind_prepare();
    int error = guarded_start();
    if (error == 0)
        error = os_catch_faults(report_fault);
    if (error != 0)
        return error;
    guard.interval = interval;
    heap_set_guard(&guard);
    return 0;
}
