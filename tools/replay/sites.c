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
        local->policy = &sites->player->policies[block->policy];
        if (local->policy->kind == POLICY_POOL && sites->player->header.threads > 1)
            local->magazine = cairn_pool_attach(sites->shared[block->policy].pool);
        local_make(local);
    }
    return local;
}

static void *from_malloc(struct site_slot *slot, const struct site_block *block)
{
    void *pointer = NULL;
    slot->way = WAY_MALLOC;
    if (block->align_log2 > 4) {
        if (posix_memalign(&pointer, (size_t)1 << block->align_log2, block->size) != 0)
            return NULL;
        if (block->zero)
            memset(pointer, 0, block->size);
        return pointer;
    }
    return block->zero ? calloc(1, block->size) : malloc(block->size);
}

static size_t alignment_of(const struct site_block *block)
{
    return block->align_log2 > 4 ? (size_t)1 << block->align_log2 : 16;
}

static void *from_pool(struct site_shared *shared, struct site_local *local,
                       const struct site_block *block)
{
    if (block->size > local->policy->argument || alignment_of(block) > 16)
        return NULL;
    if (local->by_malloc)
        return malloc(block->size);
    return local->magazine ? cairn_pool_magazine_get(local->magazine)
                           : cairn_pool_get(shared->pool);
}

static void *reserved(struct site_local *local, struct site_slot *slot,
                      const struct site_block *block)
{
    if (alignment_of(block) > 16)
        return NULL;
    uint64_t size = block->size;
    bool more = !local->by_malloc && local->policy->argument > size;
    slot->number = more ? local->policy->argument : size;
    return malloc(slot->number);
}

static void *temporary(struct site_local *local, const struct site_block *block)
{
    // Pairs with the release of another thread's free.
    if (alignment_of(block) > 16 || atomic_load_explicit(&local->live, memory_order_acquire))
        return NULL;
    if (local->buffer_bytes < block->size || !local->buffer) {
        free(local->buffer);
        local->buffer = malloc(block->size);
        local->buffer_bytes = block->size;
    }
    if (!local->buffer)
        return NULL;
    void *pointer = local->by_malloc ? malloc(block->size) : local->buffer;
    if (pointer)
        atomic_store_explicit(&local->live, 1, memory_order_relaxed);
    return pointer;
}

void *sites_allocate(struct site_state *sites, const struct site_block *block)
{
    struct site_shared *shared = &sites->shared[block->policy];
    struct site_slot *slot = &sites->slots[block->slot];
    struct site_local *local = own_local(sites, block);
    size_t align = alignment_of(block);
    void *pointer = NULL;
    slot->way = WAY_SITE;
    switch ((enum policy_kind)local->policy->kind) {
    case POLICY_HEAP:
        if (!local->by_malloc)
            pointer = align > 16 ? cairn_heap_alloc_aligned(shared->heap, block->size, align)
                                 : cairn_heap_alloc(shared->heap, block->size);
        else if (align == 16)
            pointer = malloc(block->size);
        break;
    case POLICY_POOL:
        pointer = from_pool(shared, local, block);
        break;
    case POLICY_RESERVE:
        pointer = reserved(local, slot, block);
        break;
    case POLICY_TEMPORARY:
        pointer = temporary(local, block);
        break;
    default:
        pointer = local_allocate(local, slot, block->size, align);
        break;
    }
    if (!pointer) {
        local->elsewhere++;
        return from_malloc(slot, block);
    }
    local->served++;
    return block->zero ? memset(pointer, 0, block->size) : pointer;
}

void sites_free(struct site_state *sites, const struct site_block *block, void *pointer)
{
    struct site_slot *slot = &sites->slots[block->slot];
    struct site_shared *shared = &sites->shared[block->policy];
    struct site_local *owner = &sites->threads[block->owner][block->policy];
    if (slot->way == WAY_MALLOC) {
        free(pointer);
        return;
    }
    switch ((enum policy_kind)owner->policy->kind) {
    case POLICY_HEAP:
        if (owner->by_malloc)
            free(pointer);
        else
            cairn_heap_free(shared->heap, pointer);
        break;
    case POLICY_POOL: {
        cairn_pool_magazine *magazine = own_local(sites, block)->magazine;
        if (owner->by_malloc)
            free(pointer);
        else if (magazine)
            cairn_pool_magazine_put(magazine, pointer);
        else
            cairn_pool_put(shared->pool, pointer);
        break;
    }
    case POLICY_RESERVE:
        free(pointer);
        break;
    case POLICY_TEMPORARY:
        if (owner->by_malloc)
            free(pointer);
        // Pairs with the acquire in temporary().
        atomic_store_explicit(&owner->live, 0, memory_order_release);
        break;
    default:
        local_free(owner, slot, pointer, block->owner == block->thread);
        break;
    }
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
    struct site_slot *slot = &sites->slots[block->slot];
    if (slot->way == WAY_MALLOC || sites->player->options.sites_by_malloc)
        return realloc(pointer, block->size ? block->size : 1);
    void *moved = resize_in_site(sites, block, pointer, before);
    if (moved)
        return moved;
    moved = malloc(block->size);
    if (!moved)
        return NULL;
    memcpy(moved, pointer, before < block->size ? before : block->size);
    sites_free(sites, block, pointer);
    slot->way = WAY_MALLOC;
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
