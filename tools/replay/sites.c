// Sites on Cairn's allocators, through its public headers. docs/TRACING.md documents each verdict.
//
// The allocator of a site belongs to a site_local of each thread. The thread makes it at its first
// block; other threads reach it only through a block that was handed to them. A site_local remains
// after the end of its thread. A block that a thread other than the owner resizes moves to malloc,
// which the slot's entry in `ways` records.
#include "sites.h"

#include "site_local.h"

#include <cairn/pool.h>
#include <cairn/private_heap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Returns: the alignment of a pool for objects of this size: no type of the size needs more.
static size_t pool_alignment(uint64_t size)
{
    uint64_t divisor = size & -size;
    return divisor < 16 ? divisor : 16;
}

static bool is_by_malloc(const struct player *player, uint64_t policy)
{
    const struct player_options *options = &player->options;
    return options->sites_by_malloc || (options->site && options->site != policy + 1);
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
    if (player->options.site > header->policies)
        player_fail("--site %u: no such policy", player->options.site);
    if (!cairn_private_heap_new)
        player_fail("%s needs a preloaded library with Cairn's allocators", player->options.path);
    for (uint64_t number = 0; number < header->policies; number++) {
        const struct program_policy *policy = &player->policies[number];
        struct site_shared *shared = &sites->shared[number];
        cairn_pool_options options = {.shared = header->threads > 1};
        if (policy->kind >= POLICY_KINDS)
            player_damaged(player, "it has a policy of an unknown kind");
        if (policy->kind == POLICY_RESERVE && !sites->growths)
            sites->growths = player_memory(header->slots * sizeof *sites->growths);
        if (is_by_malloc(player, number))
            continue; // a program without the change does not create the allocator either
        if (policy->kind == POLICY_HEAP && !(shared->heap = cairn_private_heap_new(NULL)))
            player_fail("out of memory for the heap of policy %s", policy->name);
        if (policy->kind == POLICY_POOL &&
            !(shared->pool =
                  cairn_pool_new(policy->argument, pool_alignment(policy->argument), &options)))
            player_fail("policy %s: cannot create a pool of objects of %llu bytes", policy->name,
                        (unsigned long long)policy->argument);
    }
    return sites;
}

void sites_end(struct player *player)
{
    struct site_state *sites = player->sites;
    for (uint64_t number = 0; number < player->header.policies; number++) {
        // Frees the buffers that were in use when their threads ended.
        for (uint32_t thread = 0; thread < player->header.threads; thread++)
            if (sites->threads[thread])
                free(sites->threads[thread][number].buffer);
        cairn_private_heap_delete(sites->shared[number].heap);
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
    return align == 16 ? cairn_private_heap_alloc(local->heap, size)
                       : cairn_private_heap_alloc_aligned(local->heap, size, align);
}

static ALWAYS_INLINE void heap_give(struct site_local *local, const struct site_slot *slot,
                                    void *block, bool own, bool by_malloc)
{
    (void)slot, (void)own;
    if (by_malloc)
        free(block);
    else
        cairn_private_heap_free(local->heap, block);
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

// The calls of a pool that threads share, through a magazine of each thread.
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

static __attribute__((noinline)) void make_local(struct site_state *sites, struct site_local *local,
                                                 uint32_t policy)
{
    local->made = true;
    local->alone = sites->player->header.threads == 1;
    local->by_malloc = is_by_malloc(sites->player, policy);
    local->touch = sites->player->options.touch;
    local->policy = &sites->player->policies[policy];
    local->calls = &calls_of[local->policy->kind][local->by_malloc];
    local->heap = sites->shared[policy].heap;
    local->pool = sites->shared[policy].pool;
    local->is_shared_pool = local->policy->kind == POLICY_POOL && !local->alone;
    if (local->is_shared_pool && !local->by_malloc)
        local->is_shared_pool = (local->magazine = cairn_pool_attach(local->pool)) != NULL;
    if (local->is_shared_pool)
        local->calls = &magazine_calls[local->by_malloc];
    local_make(local);
}

// Returns: the calling thread's local for the policy.
static ALWAYS_INLINE struct site_local *own_local(struct site_state *sites,
                                                  struct site_record record)
{
    struct site_local *locals = sites->threads[record.thread];
    if (__builtin_expect(!locals, 0)) {
        locals = player_memory(sites->player->header.policies * sizeof *locals);
        sites->threads[record.thread] = locals;
    }
    struct site_local *local = &locals[site_policy(record.site)];
    if (__builtin_expect(!local->made, 0))
        make_local(sites, local, site_policy(record.site));
    return local;
}

static ALWAYS_INLINE struct site_local *owner_local(const struct site_state *sites,
                                                    struct site_record record)
{
    return &sites->threads[site_thread(record.site)][site_policy(record.site)];
}

static ALWAYS_INLINE bool is_own(struct site_record record)
{
    return site_thread(record.site) == record.thread;
}

static bool allocate_elsewhere(struct site_local *local, uint8_t *way, uint64_t site, uint64_t size,
                               void **place)
{
    void *pointer = NULL;
    unsigned align_log2 = site_align_log2(site);
    *way = WAY_MALLOC;
    local->elsewhere++;
    if (align_log2 > 4) {
        if (posix_memalign(&pointer, (size_t)1 << align_log2, size) == 0)
            *place = site_touched(local, pointer, size, site_zero(site));
        return pointer != NULL;
    }
    pointer = site_zero(site) ? calloc(1, size) : malloc(size);
    if (pointer)
        touch_block(local->touch, pointer, 0, size, site_zero(site));
    *place = pointer;
    return pointer != NULL;
}

bool sites_allocate(struct site_state *sites, struct site_record record, uint64_t size,
                    void **place)
{
    struct site_slot *slot = &sites->slots[record.slot];
    struct site_local *local = own_local(sites, record);
    unsigned align_log2 = site_align_log2(record.site);
    bool zero = site_zero(record.site);
    bool is_filled = local->touch == TOUCH_FILL && size - 1 < PAGE && !zero && align_log2 <= 4;
    sites->ways[record.slot] = WAY_SITE;
    bool served =
        is_filled
            ? local->calls->allocate(local, slot, place, size)
            : local->calls->allocate_other(local, slot, place, size,
                                           (size_t)1 << (align_log2 > 4 ? align_log2 : 4), zero);
    if (!served)
        return allocate_elsewhere(local, &sites->ways[record.slot], record.site, size, place);
    local->served++;
    return true;
}

// Writes the bytes that the block has grown by.
static void touch_grown(struct site_state *sites, struct site_record record, char *block)
{
    struct site_growth *growth = &sites->growths[record.slot];
    if (growth->to > growth->from)
        touch_more(sites->player->options.touch, block, growth->from, growth->to);
    *growth = (struct site_growth){0};
}

void sites_free(struct site_state *sites, struct site_record record, void **place)
{
    struct site_local *local = owner_local(sites, record);
    if (sites->growths)
        touch_grown(sites, record, *place);
    if (__builtin_expect(sites->ways[record.slot] == WAY_MALLOC, 0)) {
        free(*place);
        *place = NULL;
        return;
    }
    if (local->is_shared_pool)
        local = own_local(sites, record);
    local->calls->end(local, &sites->slots[record.slot], place, is_own(record));
}

// Grows a block within its reserve. A program with a reserve continues writing in the same place:
// its loop has no end here and no mispredicted branch. So the new bytes are written later, all at
// once, when the block ends or moves.
static bool grow_in_reserve(struct site_state *sites, struct site_record record, uint64_t size,
                            uint64_t before, void **place)
{
    struct site_slot *slot = &sites->slots[record.slot];
    struct site_growth *growth = &sites->growths[record.slot];
    if (size > slot->number) {
        touch_grown(sites, record, *place);
        slot->number = size;
        if (!(*place = realloc(*place, size)))
            return false;
    }
    if (growth->to == 0)
        growth->from = before;
    growth->to = size;
    return true;
}

// Returns: the block at its new size in place, or moved by its own allocator; NULL when neither is
// possible.
static void *resize_in_site(struct site_state *sites, struct site_record record, void *pointer,
                            uint64_t size, uint64_t before)
{
    struct site_slot *slot = &sites->slots[record.slot];
    struct site_local *owner = owner_local(sites, record);
    bool own = is_own(record);
    switch ((enum policy_kind)owner->policy->kind) {
    case POLICY_HEAP:
        return cairn_private_heap_realloc(owner->heap, pointer, size);
    case POLICY_POOL:
        return size <= owner->policy->argument ? pointer : NULL;
    case POLICY_TEMPORARY:
        if (!own)
            return NULL;
        if (size > owner->buffer_bytes) {
            owner->buffer = realloc(pointer, size);
            owner->buffer_bytes = size;
        }
        return owner->buffer;
    default:
        return own ? local_resize(owner, slot, pointer, before, size) : NULL;
    }
}

// Returns: the block at its new size, from its own allocator or from malloc; NULL when out of
// memory.
static void *resized(struct site_state *sites, struct site_record record, void *pointer,
                     uint64_t size, uint64_t before)
{
    uint8_t *way = &sites->ways[record.slot];
    if (*way == WAY_MALLOC || owner_local(sites, record)->by_malloc)
        return realloc(pointer, size ? size : 1);
    void *moved = resize_in_site(sites, record, pointer, size, before);
    if (moved)
        return moved;
    moved = malloc(size);
    if (!moved)
        return NULL;
    memcpy(moved, pointer, before < size ? before : size);
    sites_free(sites, record, &pointer);
    *way = WAY_MALLOC;
    own_local(sites, record)->elsewhere++;
    return moved;
}

bool sites_resize(struct site_state *sites, struct site_record record, uint64_t size,
                  uint64_t before, void **place)
{
    const struct site_local *owner = owner_local(sites, record);
    if (owner->policy->kind == POLICY_RESERVE && !owner->by_malloc &&
        sites->ways[record.slot] == WAY_SITE)
        return grow_in_reserve(sites, record, size, before, place);
    void *block = resized(sites, record, *place, size, before);
    if (block && size > before)
        touch_more(sites->player->options.touch, block, before, size);
    *place = block;
    return block != NULL;
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
