// Sites on allocators for known lifetimes, which serve one thread each. sites.c describes the
// protocol.
#define _GNU_SOURCE // MAP_NORESERVE
#include "site_local.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ENTRIES_MOST = 1 << 22, FRAMES_MOST = 1 << 14 };

// Returns: address space whose memory is allocated when it is written.
static void *reserve(uint64_t bytes, const char *policy)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        player_fail("out of address space for the blocks of policy %s", policy);
    return memory;
}

void local_make(struct site_local *local)
{
    enum policy_kind kind = (enum policy_kind)local->policy->kind;
    cairn_fifo_options options = {.any_thread_free = !local->alone};
    bool good = true;
    if (kind == POLICY_STACK)
        local->entries = reserve(ENTRIES_MOST * sizeof *local->entries, local->policy->name);
    if (kind == POLICY_RING)
        local->frames = reserve(FRAMES_MOST * sizeof *local->frames, local->policy->name);
    if (local->by_malloc)
        return; // a program without the change does not create the allocator either
    if (kind == POLICY_STACK || kind == POLICY_SCOPE)
        good = (local->stack = cairn_stack_new(NULL)) != NULL;
    if (kind == POLICY_FIFO)
        good = (local->fifo = cairn_fifo_new(&options)) != NULL;
    if (kind == POLICY_RING)
        good = (local->ring = cairn_ring_new(NULL)) != NULL;
    if (!good)
        player_fail("out of memory for the allocator of policy %s", local->policy->name);
}

static void count_up(const struct site_local *local, _Atomic uint64_t *count)
{
    if (local->alone)
        atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + 1,
                              memory_order_relaxed);
    else
        atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
}

// Returns: whether the count is 0 now. The thread that brings it to 0 sees all that other threads
// did before.
static bool count_down(const struct site_local *local, _Atomic uint64_t *count)
{
    if (!local->alone)
        return atomic_fetch_sub_explicit(count, 1, memory_order_acq_rel) == 1;
    uint64_t left = atomic_load_explicit(count, memory_order_relaxed) - 1;
    atomic_store_explicit(count, left, memory_order_relaxed);
    return left == 0;
}

// ---- stack -------------------------------------------------------------------------------------

static ALWAYS_INLINE void push(struct site_local *local, cairn_mark *mark, bool by_malloc)
{
    if (!by_malloc && !cairn_stack_push_inline(local->stack, mark))
        *mark = cairn_stack_push(local->stack);
}

static ALWAYS_INLINE void pop(struct site_local *local, cairn_mark mark, bool by_malloc)
{
    if (!by_malloc && !cairn_stack_pop_inline(local->stack, mark))
        cairn_stack_pop(local->stack, mark);
}

// Allocates with a constant alignment where possible, as a program does.
static ALWAYS_INLINE void *from_stack(const struct site_local *local, uint64_t size, size_t align,
                                      bool by_malloc)
{
    if (align != 16)
        return by_malloc ? NULL : cairn_stack_alloc(local->stack, size, align);
    if (by_malloc)
        return malloc(size);
    void *block = cairn_stack_alloc_inline(local->stack, size, 16);
    return block ? block : cairn_stack_alloc(local->stack, size, 16);
}

// Pops the frames at the top whose blocks are freed.
static ALWAYS_INLINE void pop_dead(struct site_local *local, bool by_malloc)
{
    while (local->entry_count) {
        struct site_entry *top = &local->entries[local->entry_count - 1];
        // Pairs with the release in stack_give by another thread.
        if (!atomic_load_explicit(&top->dead, memory_order_acquire))
            return;
        pop(local, top->mark, by_malloc);
        local->entry_count--;
    }
}

static ALWAYS_INLINE void *stack_take(struct site_local *local, struct site_slot *slot,
                                      uint64_t size, size_t align, bool by_malloc)
{
    pop_dead(local, by_malloc);
    if (local->entry_count == ENTRIES_MOST)
        return NULL;
    struct site_entry *entry = &local->entries[local->entry_count];
    push(local, &entry->mark, by_malloc);
    void *block = from_stack(local, size, align, by_malloc);
    if (!block) {
        pop(local, entry->mark, by_malloc);
        return NULL;
    }
    atomic_store_explicit(&entry->dead, 0, memory_order_relaxed);
    slot->number = local->entry_count++;
    return block;
}

static ALWAYS_INLINE void stack_give(struct site_local *local, const struct site_slot *slot,
                                     void *block, bool own, bool by_malloc)
{
    if (by_malloc)
        free(block);
    atomic_store_explicit(&local->entries[slot->number].dead, 1, memory_order_release);
    if (own)
        pop_dead(local, by_malloc);
}

SITE_CALLS(, stack);

static void *resize_on_stack(struct site_local *local, struct site_slot *slot, void *pointer,
                             uint64_t before, uint64_t size)
{
    if (slot->number + 1 == local->entry_count)
        return cairn_stack_realloc(local->stack, pointer, before, size, 16);
    struct site_entry *old = &local->entries[slot->number];
    void *moved = stack_take(local, slot, size, 16, false);
    if (!moved)
        return NULL;
    memcpy(moved, pointer, before < size ? before : size);
    atomic_store_explicit(&old->dead, 1, memory_order_relaxed);
    return moved;
}

// ---- scope -------------------------------------------------------------------------------------

static ALWAYS_INLINE void *scope_take(struct site_local *local, struct site_slot *slot,
                                      uint64_t size, size_t align, bool by_malloc)
{
    (void)slot;
    // Pairs with the release in scope_give by another thread.
    if (atomic_load_explicit(&local->live, memory_order_acquire) == 0) {
        if (local->open)
            pop(local, local->mark, by_malloc);
        push(local, &local->mark, by_malloc);
        local->open = true;
    }
    void *block = from_stack(local, size, align, by_malloc);
    if (block)
        count_up(local, &local->live);
    return block;
}

static ALWAYS_INLINE void scope_give(struct site_local *local, const struct site_slot *slot,
                                     void *block, bool own, bool by_malloc)
{
    (void)slot;
    if (by_malloc)
        free(block);
    if (count_down(local, &local->live) && own) {
        pop(local, local->mark, by_malloc);
        local->open = false;
    }
}

SITE_CALLS(, scope);

// ---- FIFO --------------------------------------------------------------------------------------

static ALWAYS_INLINE void *fifo_take(struct site_local *local, struct site_slot *slot,
                                     uint64_t size, size_t align, bool by_malloc)
{
    (void)slot;
    if (by_malloc)
        return align == 16 ? malloc(size) : NULL;
    return align == 16 ? cairn_fifo_alloc(local->fifo, size, 16)
                       : cairn_fifo_alloc(local->fifo, size, align);
}

static ALWAYS_INLINE void fifo_give(struct site_local *local, const struct site_slot *slot,
                                    void *block, bool own, bool by_malloc)
{
    (void)slot, (void)own;
    if (by_malloc)
        free(block);
    else
        cairn_fifo_free(local->fifo, block);
}

SITE_CALLS(, fifo);

// ---- ring --------------------------------------------------------------------------------------

// Releases one hold of a frame.
static ALWAYS_INLINE void drop_hold(const struct site_local *local, struct site_frame *frame,
                                    bool by_malloc)
{
    if (count_down(local, &frame->live) && !by_malloc)
        cairn_ring_release(frame->frame);
}

static void seal_frame(struct site_local *local)
{
    if (!local->by_malloc)
        cairn_ring_seal(local->ring);
    local->open = false;
    drop_hold(local, &local->frames[local->frame], local->by_malloc);
}

// Opens a frame. Returns: false when no frame is free or out of memory.
static bool open_frame(struct site_local *local)
{
    for (unsigned tried = 0; tried < FRAMES_MOST; tried++) {
        local->frame = (local->frame + 1) % FRAMES_MOST;
        struct site_frame *frame = &local->frames[local->frame];
        if (atomic_load_explicit(&frame->live, memory_order_acquire))
            continue;
        if (!local->by_malloc) {
            frame->frame = cairn_ring_open(local->ring);
            if (!frame->frame.chunk)
                return false;
        }
        atomic_store_explicit(&frame->live, 1, memory_order_relaxed);
        local->open = true;
        local->frame_blocks = 0;
        return true;
    }
    return false;
}

static ALWAYS_INLINE void *ring_take(struct site_local *local, struct site_slot *slot,
                                     uint64_t size, size_t align, bool by_malloc)
{
    uint64_t most = local->policy->argument;
    struct site_frame *frame = &local->frames[local->frame];
    if (local->open && (most ? local->frame_blocks >= most
                             : local->frame_blocks &&
                                   atomic_load_explicit(&frame->live, memory_order_relaxed) == 1))
        seal_frame(local);
    if (!local->open && !open_frame(local))
        return NULL;
    frame = &local->frames[local->frame];
    void *block;
    if (by_malloc)
        block = align == 16 ? malloc(size) : NULL;
    else
        block = align == 16 ? cairn_ring_alloc(local->ring, size, 16)
                            : cairn_ring_alloc(local->ring, size, align);
    if (!block)
        return NULL;
    local->frame_blocks++;
    count_up(local, &frame->live);
    slot->number = local->frame;
    return block;
}

static ALWAYS_INLINE void ring_give(struct site_local *local, const struct site_slot *slot,
                                    void *block, bool own, bool by_malloc)
{
    (void)own;
    if (by_malloc)
        free(block);
    drop_hold(local, &local->frames[slot->number], by_malloc);
}

SITE_CALLS(, ring);

// ---- all ---------------------------------------------------------------------------------------

void *local_resize(struct site_local *local, struct site_slot *slot, void *pointer, uint64_t before,
                   uint64_t size)
{
    switch ((enum policy_kind)local->policy->kind) {
    case POLICY_STACK:
        return resize_on_stack(local, slot, pointer, before, size);
    case POLICY_SCOPE:
        return cairn_stack_realloc(local->stack, pointer, before, size, 16);
    case POLICY_FIFO:
        return cairn_fifo_realloc(local->fifo, pointer, before, size, 16);
    case POLICY_RING: {
        struct site_frame *old = &local->frames[slot->number];
        void *moved = ring_take(local, slot, size, 16, false);
        if (!moved)
            return NULL;
        memcpy(moved, pointer, before < size ? before : size);
        drop_hold(local, old, false);
        return moved;
    }
    default:
        return NULL;
    }
}

void local_end(struct site_local *local)
{
    if (local->entries)
        pop_dead(local, local->by_malloc);
    uint64_t live = atomic_load_explicit(&local->live, memory_order_acquire);
    // A stack that other threads still use is kept.
    if (local->stack && !live && !local->entry_count)
        cairn_stack_delete(local->stack);
    cairn_fifo_close(local->fifo);
    if (local->open && local->ring)
        seal_frame(local);
    cairn_ring_close(local->ring);
}
