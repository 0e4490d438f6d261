/* The profiler's tables: see profile_table.h. */
#include "watch/profile_table.h"

#include "base/bits.h"
#include "heap/heap.h"

#include <string.h>

enum { SITE_PROBES = 64 };

struct profile_table *profile_table_make(void)
{
    struct profile_table *table = meta_take(META_COLD, sizeof *table);
    if (table) {
        table->sites[0].hash = 1;
        table->sites[0].ready = 1;
    }
    return table;
}

/* 1 / (1 - exp(-x)) for x = size / interval, in integers: a program may trap what is inexact in
 * floating point. For a small x by the series 1/x + 1/2 + x/12 - x^3/720 + ..., in units of 2^-32;
 * it is off by less than 2^-24 up to 1/4. */
static unsigned __int128 weight_of_small(uint64_t size_bytes, uint64_t interval_bytes)
{
    const unsigned __int128 one = (unsigned __int128)1 << 32;
    uint64_t x = (uint64_t)(size_bytes * one / interval_bytes);
    uint64_t cube = (uint64_t)((unsigned __int128)(x * x >> 32) * x >> 32);
    unsigned __int128 weight = interval_bytes * one / size_bytes + one / 2 + x / 12 - cube / 720;
    return (weight + (1 << (31 - PROFILE_WEIGHT_SHIFT))) >> (32 - PROFILE_WEIGHT_SHIFT);
}

/* For a larger one 1 - exp(-x), in units of 2^-62: of a part of x by its series, then doubled: with
 * m of y, that of 2 y is m (2 - m). */
static unsigned __int128 weight_of_large(uint64_t size_bytes, uint64_t interval_bytes)
{
    const unsigned __int128 one = (unsigned __int128)1 << 62;
    unsigned doublings = 0;
    unsigned __int128 whole = interval_bytes;
    for (; size_bytes > whole / 4; doublings++)
        whole *= 2;
    unsigned __int128 x = size_bytes * one / whole;
    unsigned __int128 term = x;
    unsigned __int128 sum = x;
    for (unsigned i = 2; i < 14; i++) {
        term = (term * x >> 62) / i;
        sum = i % 2 == 0 ? sum - term : sum + term;
    }
    for (; doublings > 0; doublings--)
        sum = sum * (2 * one - sum) >> 62;
    return ((one << PROFILE_WEIGHT_SHIFT) + sum / 2) / sum;
}

uint64_t profile_weight(uint64_t size_bytes, uint64_t interval_bytes)
{
    const uint64_t most = (uint64_t)1 << 60;
    if (size_bytes / 50 >= interval_bytes)
        return (uint64_t)1 << PROFILE_WEIGHT_SHIFT;
    unsigned __int128 weight = size_bytes <= interval_bytes / 4
                                   ? weight_of_small(size_bytes, interval_bytes)
                                   : weight_of_large(size_bytes, interval_bytes);
    return weight < most ? (uint64_t)weight : most;
}

static uint64_t mix(uint64_t word)
{
    word *= 0x9e3779b97f4a7c15u;
    return word ^ word >> 32;
}

static uint64_t hash_of(const uintptr_t *frames, unsigned depth)
{
    uint64_t hash = depth;
    for (unsigned i = 0; i < depth; i++)
        hash = mix(hash ^ frames[i]);
    return hash | 1; /* 0 is a free site */
}

static bool has_frames(const struct profile_table *table, const struct profile_site *site,
                       const uintptr_t *frames, unsigned depth)
{
    return load_acquire(&site->ready) == 1 + depth && /* pairs with fill_site */
           memcmp(&table->frames[site->first_frame], frames, depth * sizeof *frames) == 0;
}

/* False when there is no room for the frames. */
static bool fill_site(struct profile_table *table, struct profile_site *site,
                      const uintptr_t *frames, unsigned depth)
{
    uint64_t first = fetch_add_relaxed(&table->frames_taken, (uint64_t)depth);
    if (first + depth > PROFILE_FRAMES) {
        fetch_sub_relaxed(&table->frames_taken, (uint64_t)depth);
        return false;
    }
    memcpy(&table->frames[first], frames, depth * sizeof *frames);
    site->first_frame = (uint32_t)first;
    store_release(&site->ready, 1 + depth); /* pairs with has_frames, and who dumps */
    return true;
}

/* The number of the stack's site, made if need be; 0 when there is no room. */
static uint32_t find_site(struct profile_table *table, const uintptr_t *frames, unsigned depth)
{
    if (depth == 0)
        return 0;
    uint64_t hash = hash_of(frames, depth);
    for (unsigned probe = 0; probe < SITE_PROBES; probe++) {
        uint32_t number = (uint32_t)(mix(hash) + probe) % PROFILE_SITES;
        struct profile_site *site = &table->sites[number];
        uint64_t seen = load_relaxed(&site->hash);
        if (seen == 0 && compare_swap_acq_rel(&site->hash, &seen, hash)) {
            if (fill_site(table, site, frames, depth))
                return number;
            store_relaxed(&site->hash, (uint64_t)0);
            break;
        }
        if (seen == hash && has_frames(table, site, frames, depth))
            return number;
    }
    fetch_add_relaxed(&table->stacks_lost, (uint64_t)1);
    return 0;
}

static void add(struct profile_sums *sums, uint64_t samples, uint64_t objects, uint64_t bytes)
{
    fetch_add_relaxed(&sums->samples, samples);
    fetch_add_relaxed(&sums->objects, objects);
    fetch_add_relaxed(&sums->bytes, bytes);
}

static void subtract(struct profile_sums *sums, const struct profile_block *block)
{
    add(sums, 0 - (uint64_t)1, 0 - block->objects, 0 - block->bytes);
}

static struct profile_block *set_of(struct profile_table *table, uintptr_t block)
{
    uint64_t set = mix(block >> 3) % (PROFILE_BLOCKS / PROFILE_SET_BLOCKS);
    return &table->blocks[set * PROFILE_SET_BLOCKS];
}

/* In its own set, or in the next. */
static struct profile_block *place_of(struct profile_table *table, uintptr_t block, unsigned i)
{
    struct profile_block *first = set_of(table, block);
    return &table->blocks[(size_t)(first - table->blocks + i) % PROFILE_BLOCKS];
}

static bool keep(struct profile_table *table, const struct profile_block *taken)
{
    for (unsigned i = 0; i < 2 * PROFILE_SET_BLOCKS; i++) {
        struct profile_block *place = place_of(table, taken->block, i);
        uintptr_t seen = BLOCK_FREE;
        if (load_relaxed(&place->block) != BLOCK_FREE ||
            !compare_swap_acq_rel(&place->block, &seen, (uintptr_t)BLOCK_BUSY))
            continue;
        /* A dump may be reading what was here before: who sees one of these sees BUSY, too. */
        store_release(&place->site, taken->site);
        store_release(&place->thread, taken->thread);
        store_release(&place->asked_bytes, taken->asked_bytes);
        store_release(&place->objects, taken->objects);
        store_release(&place->bytes, taken->bytes);
        store_release(&place->time_ms, taken->time_ms);
        store_release(&place->block, taken->block); /* pairs with the swap in release_place */
        return true;
    }
    return false;
}

bool profile_table_add(struct profile_table *table, const struct profile_block *taken,
                       uint64_t size_bytes, const uintptr_t *frames, unsigned depth)
{
    struct profile_block block = *taken;
    block.site = find_site(table, frames, depth);
    block.bytes = profile_weighted_bytes(block.objects, size_bytes);
    struct profile_site *site = &table->sites[block.site];
    add(&site->allocated, 1, block.objects, block.bytes);
    add(&table->allocated, 1, block.objects, block.bytes);
    add(&site->live, 1, block.objects, block.bytes);
    add(&table->live, 1, block.objects, block.bytes);
    if (keep(table, &block))
        return true;
    subtract(&site->live, &block);
    subtract(&table->live, &block);
    fetch_add_relaxed(&table->blocks_lost, (uint64_t)1);
    return false;
}

/* Of two threads that release a place, one does. */
static bool release_place(struct profile_table *table, struct profile_block *place, uintptr_t block)
{
    if (!compare_swap_acq_rel(&place->block, &block, (uintptr_t)BLOCK_BUSY))
        return false;
    subtract(&table->sites[place->site].live, place);
    subtract(&table->live, place);
    store_release(&place->block, (uintptr_t)BLOCK_FREE); /* pairs with the swap in keep */
    return true;
}

bool profile_table_remove(struct profile_table *table, const void *block)
{
    for (unsigned i = 0; i < 2 * PROFILE_SET_BLOCKS; i++) {
        struct profile_block *place = place_of(table, (uintptr_t)block, i);
        if (load_relaxed(&place->block) == (uintptr_t)block &&
            release_place(table, place, (uintptr_t)block))
            return true;
    }
    return false;
}

bool profile_table_rename(struct profile_table *table, const void *from, const void *to)
{
    static_check(sizeof(uintptr_t) == 8, "set_of leaves three bits out");
    for (unsigned i = 0; i < 2 * PROFILE_SET_BLOCKS; i++) {
        struct profile_block *place = place_of(table, (uintptr_t)from, i);
        uintptr_t block = (uintptr_t)from;
        if (load_relaxed(&place->block) == block &&
            compare_swap_acq_rel(&place->block, &block, (uintptr_t)to))
            return true;
    }
    return false;
}

static void clear(struct profile_sums *sums)
{
    store_relaxed(&sums->samples, (uint64_t)0);
    store_relaxed(&sums->objects, (uint64_t)0);
    store_relaxed(&sums->bytes, (uint64_t)0);
}

void profile_table_reset(struct profile_table *table)
{
    for (size_t i = 0; i < PROFILE_BLOCKS; i++) {
        uintptr_t block = load_relaxed(&table->blocks[i].block);
        if (block > BLOCK_BUSY)
            (void)release_place(table, &table->blocks[i], block);
    }
    for (size_t i = 0; i < PROFILE_SITES; i++)
        if (load_relaxed(&table->sites[i].hash) != 0)
            clear(&table->sites[i].allocated);
    clear(&table->allocated);
    store_relaxed(&table->stacks_lost, (uint64_t)0);
    store_relaxed(&table->blocks_lost, (uint64_t)0);
}
