// Sites on Cairn's allocators, by its public headers: see sites.h, and docs/REPLAYING.md for what
// each verdict means.
//
// What serves a site lies in a local of each thread, which its thread makes at its first block and
// others only reach through a block that they were handed. A local stays after its thread's end.
// What another thread than the owner resizes goes to malloc: `way` of the slot says so.
#include "sites.h"

#include "site_local.h"

#include <cairn/heaps.h>
#include <cairn/pool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// No type of that size needs more.
static size_t pool_alignment(uint64_t size)
{
    uint64_t divisor = size & -size;
    return divisor < 16 ? divisor : 16;
}

struct site_state *sites_make(const struct player *player)
{
    const struct program_header *header = &player->header;
    struct site_state *sites = player_memory(sizeof *sites);
    sites->player = player;
    sites->slots = player_memory(header->slots * sizeof *sites->slots);
    sites->ways = player_memory(header->slots * sizeof *sites->ways);
    sites->shared = player_memory(header->policies * sizeof *sites->shared);
    sites->threads = player_memory(header->threads * sizeof *sites->threads);
    for (uint64_t number = 0; number < header->policies; number++) {
        const struct program_policy *policy = &player->policies[number];
        struct site_shared *shared = &sites->shared[number];
        cairn_pool_options options = {.shared = header->threads > 1};
        if (policy->kind >= POLICY_KINDS)
            player_damaged(player, "a policy of an unknown kind");
        if (policy->kind == POLICY_HEAP && !(shared->heap = cairn_heap_new(NULL)))
            player_fail("no memory for a heap");
        if (policy->kind == POLICY_POOL &&
            !(shared->pool =
                  cairn_pool_new(policy->argument, pool_alignment(policy->argument), &options)))
            player_fail("policy %s: a pool of objects of %llu bytes is not possible", policy->name,
                        (unsigned long long)policy->argument);
    }
    return sites;
}

void sites_end(struct player *player)
{
    struct site_state *sites = player->sites;
    for (uint64_t number = 0; number < player->header.policies; number++) {
        // Buffers that were in use when their threads ended.
        for (uint32_t thread = 0; thread < player->header.threads; thread++)
            if (sites->threads[thread])
                free(sites->threads[thread][number].buffer);
        cairn_heap_delete(sites->shared[number].heap);
        cairn_pool_delete(sites->shared[number].pool);
    }
}

// ---- each kind of policy -----------------------------------------------------------------------

static ALWAYS_INLINE void *heap_take(struct site_local *local, struct site_slot *slot,
                                     uint64_t size, size_t align, bool by_malloc)
{
    (void)slot;
    if (by_malloc)
        return align == 16 ? malloc(size) : NULL;
    return align == 16 ? cairn_heap_alloc(local->heap, size)
                       : cairn_heap_alloc_aligned(local->heap, size, align);
}

static ALWAYS_INLINE void heap_give(struct site_local *local, const struct site_slot *slot,
                                    void *block, bool own, bool by_malloc)
{
    (void)slot, (void)own;
    if (by_malloc)
        free(block);
    else
        cairn_heap_free(local->heap, block);
}

SITE_CALLS(static, heap);

static ALWAYS_INLINE void *pool_take(struct site_local *local, struct site_slot *slot,
                                     uint64_t size, size_t align, bool by_malloc)
{
    (void)slot;
    if (size > local->policy->argument || align > 16)
        return NULL;
    if (by_malloc)
        return malloc(size);
    return cairn_pool_get(local->pool);
}

static ALWAYS_INLINE void pool_give(struct site_local *local, const struct site_slot *slot,
                                    void *block, bool own, bool by_malloc)
{
    (void)slot, (void)own;
    if (by_malloc)
        free(block);
    else
        cairn_pool_put(local->pool, block);
}

SITE_CALLS(static, pool);

// A pool that threads share.
static ALWAYS_INLINE void *magazine_take(struct site_local *local, struct site_slot *slot,
                                         uint64_t size, size_t align, bool by_malloc)
{
    (void)slot;
    if (size > local->policy->argument || align > 16)
        return NULL;
    return by_malloc ? malloc(size) : cairn_pool_magazine_get(local->magazine);
}

static ALWAYS_INLINE void magazine_give(struct site_local *local, const struct site_slot *slot,
                                        void *block, bool own, bool by_malloc)
{
    (void)slot, (void)own;
    if (by_malloc)
        free(block);
    else
        cairn_pool_magazine_put(local->magazine, block);
}

SITE_CALLS(static, magazine);

static ALWAYS_INLINE void *reserve_take(struct site_local *local, struct site_slot *slot,
                                        uint64_t size, size_t align, bool by_malloc)
{
    if (align > 16)
        return NULL;
    bool more = !by_malloc && local->policy->argument > size;
    slot->number = more ? local->policy->argument : size;
    return malloc(slot->number);
}

static ALWAYS_INLINE void reserve_give(struct site_local *local, const struct site_slot *slot,
                                       void *block, bool own, bool by_malloc)
{
    (void)local, (void)slot, (void)own, (void)by_malloc;
    free(block);
}

SITE_CALLS(static, reserve);

static ALWAYS_INLINE void *temporary_take(struct site_local *local, struct site_slot *slot,
                                          uint64_t size, size_t align, bool by_malloc)
{
    (void)slot;
    // Pairs with the release of another thread's free.
    if (align > 16 || atomic_load_explicit(&local->live, memory_order_acquire))
        return NULL;
    if (!by_malloc && (local->buffer_bytes < size || !local->buffer)) {
        free(local->buffer);
        local->buffer = malloc(size);
        local->buffer_bytes = size;
    }
    void *block = by_malloc ? malloc(size) : local->buffer;
    if (block)
        atomic_store_explicit(&local->live, 1, memory_order_relaxed);
    return block;
}

static ALWAYS_INLINE void temporary_give(struct site_local *local, const struct site_slot *slot,
                                         void *block, bool own, bool by_malloc)
{
    (void)slot, (void)own;
    if (by_malloc)
        free(block);
    // Pairs with the acquire in temporary_take.
    atomic_store_explicit(&local->live, 0, memory_order_release);
}

SITE_CALLS(static, temporary);

static const struct site_calls *const calls_of[POLICY_KINDS] = {
    [POLICY_HEAP] = heap_calls,       [POLICY_STACK] = stack_calls,
    [POLICY_SCOPE] = scope_calls,     [POLICY_FIFO] = fifo_calls,
    [POLICY_RING] = ring_calls,       [POLICY_POOL] = pool_calls,
    [POLICY_RESERVE] = reserve_calls, [POLICY_TEMPORARY] = temporary_calls,
};

// ---- all ---------------------------------------------------------------------------------------

// The calling thread's local for the policy.
static struct site_local *own_local(struct site_state *sites, const struct site_block *block)
{
    struct site_local *locals = sites->threads[block->thread];
    if (__builtin_expect(!locals, 0)) {
        locals = player_memory(sites->player->header.policies * sizeof *locals);
        sites->threads[block->thread] = locals;
    }
    struct site_local *local = &locals[block->policy];
    if (__builtin_expect(!local->made, 0)) {
        local->made = true;
        local->alone = sites->player->header.threads == 1;
        local->by_malloc = sites->player->options.sites_by_malloc;
        local->touch = sites->player->options.touch;
        local->policy = &sites->player->policies[block->policy];
        local->calls = &calls_of[local->policy->kind][local->by_malloc];
        local->heap = sites->shared[block->policy].heap;
        local->pool = sites->shared[block->policy].pool;
        if (local->policy->kind == POLICY_POOL && sites->player->header.threads > 1)
            local->magazine = cairn_pool_attach(local->pool);
        if (local->magazine)
            local->calls = &magazine_calls[local->by_malloc];
        local_make(local);
    }
    return local;
}

static size_t alignment_of(const struct site_block *block)
{
    return block->align_log2 > 4 ? (size_t)1 << block->align_log2 : 16;
}

static bool allocate_elsewhere(struct site_local *local, uint8_t *way,
                               const struct site_block *block, void **place)
{
    void *pointer = NULL;
    *way = WAY_MALLOC;
    local->elsewhere++;
    if (block->align_log2 > 4) {
        if (posix_memalign(&pointer, alignment_of(block), block->size) == 0)
            *place = site_touched(local, pointer, block->size, block->zero);
        return pointer != NULL;
    }
    pointer = block->zero ? calloc(1, block->size) : malloc(block->size);
    if (pointer)
        touch_block(local->touch, pointer, 0, block->size, block->zero);
    *place = pointer;
    return pointer != NULL;
}

bool sites_allocate(struct site_state *sites, const struct site_block *block, void **place)
{
    struct site_slot *slot = &sites->slots[block->slot];
    struct site_local *local = own_local(sites, block);
    bool is_filled = local->touch == TOUCH_FILL && block->size - 1 < PAGE && !block->zero;
    sites->ways[block->slot] = WAY_SITE;
    bool served = is_filled && block->align_log2 <= 4
                      ? local->calls->allocate(local, slot, place, block->size)
                      : local->calls->allocate_other(local, slot, place, block->size,
                                                     alignment_of(block), block->zero);
    if (!served)
        return allocate_elsewhere(local, &sites->ways[block->slot], block, place);
    local->served++;
    return true;
}

void sites_free(struct site_state *sites, const struct site_block *block, void **place)
{
    struct site_slot *slot = &sites->slots[block->slot];
    struct site_local *local = &sites->threads[block->owner][block->policy];
    touch_last(local->touch, *place, block->size);
    if (sites->ways[block->slot] == WAY_MALLOC) {
        free(*place);
        *place = NULL;
        return;
    }
    if (local->magazine)
        local = own_local(sites, block);
    local->calls->end(local, slot, place, block->owner == block->thread);
}

// The block at its new size where it is, or moved by its own allocator; NULL: neither.
static void *resize_in_site(struct site_state *sites, const struct site_block *block, void *pointer,
                            uint64_t before)
{
    struct site_slot *slot = &sites->slots[block->slot];
    struct site_local *owner = &sites->threads[block->owner][block->policy];
    bool own = block->owner == block->thread;
    switch ((enum policy_kind)owner->policy->kind) {
    case POLICY_HEAP:
        return cairn_heap_realloc(sites->shared[block->policy].heap, pointer, block->size);
    case POLICY_POOL:
        return block->size <= owner->policy->argument ? pointer : NULL;
    case POLICY_RESERVE:
        if (block->size <= slot->number)
            return pointer;
        slot->number = block->size;
        return realloc(pointer, block->size);
    case POLICY_TEMPORARY:
        if (!own)
            return NULL;
        if (block->size > owner->buffer_bytes) {
            owner->buffer = realloc(pointer, block->size);
            owner->buffer_bytes = block->size;
        }
        return owner->buffer;
    default:
        return own ? local_resize(owner, slot, pointer, before, block->size) : NULL;
    }
}

void *sites_resize(struct site_state *sites, const struct site_block *block, void *pointer,
                   uint64_t before)
{
    uint8_t *way = &sites->ways[block->slot];
    if (*way == WAY_MALLOC || sites->player->options.sites_by_malloc)
        return realloc(pointer, block->size ? block->size : 1);
    void *moved = resize_in_site(sites, block, pointer, before);
    if (moved)
        return moved;
    moved = malloc(block->size);
    if (!moved)
        return NULL;
    memcpy(moved, pointer, before < block->size ? before : block->size);
    struct site_block old = *block;
    old.size = 0; // it was looked at already
    sites_free(sites, &old, &pointer);
    *way = WAY_MALLOC;
    own_local(sites, block)->elsewhere++;
    return moved;
}

void sites_end_thread(struct site_state *sites, uint32_t thread)
{
    struct site_local *locals = sites->threads[thread];
    for (uint64_t number = 0; locals && number < sites->player->header.policies; number++) {
        struct site_local *local = &locals[number];
        if (!local->made)
            continue;
        cairn_pool_detach(local->magazine);
        if (!atomic_load_explicit(&local->live, memory_order_acquire) &&
            local->policy->kind == POLICY_TEMPORARY) {
            free(local->buffer);
            local->buffer = NULL;
        }
        local_end(local);
    }
}

void sites_print(const struct player *player)
{
    const struct site_state *sites = player->sites;
    for (uint64_t number = 0; sites && number < player->header.policies; number++) {
        uint64_t served = 0, elsewhere = 0;
        for (uint32_t thread = 0; thread < player->header.threads; thread++) {
            const struct site_local *locals = sites->threads[thread];
            served += locals ? locals[number].served : 0;
            elsewhere += locals ? locals[number].elsewhere : 0;
        }
        dprintf(1, "site %s %llu %llu\n", player->policies[number].name, (unsigned long long)served,
                (unsigned long long)elsewhere);
    }
}
