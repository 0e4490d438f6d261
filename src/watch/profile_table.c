/* The operations on the profiler's tables and state: see profile_table.h. */
#include "watch/profile_table.h"

#include "base/atomic.h"
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

/* Returns 1 / (1 - exp(-x)) for x = size / interval, at most 1/4. The value is computed in
 * integers, because a program may trap inexact floating-point operations. The series is 1/x + 1/2 +
 * x/12 - x^3/720 + ..., in units of 2^-32; the error is less than 2^-24. */
static unsigned __int128 profile_table_weight_of_small(uint64_t size_bytes, uint64_t interval_bytes)
{
    const unsigned __int128 one = (unsigned __int128)1 << 32;
    uint64_t x = (uint64_t)(size_bytes * one / interval_bytes);
    uint64_t cube = (uint64_t)((unsigned __int128)(x * x >> 32) * x >> 32);
    unsigned __int128 weight = interval_bytes * one / size_bytes + one / 2 + x / 12 - cube / 720;
    return (weight + (1 << (31 - PROFILE_WEIGHT_SHIFT))) >> (32 - PROFILE_WEIGHT_SHIFT);
}

/* Returns 1 / (1 - exp(-x)) for x = size / interval above 1/4. The loop halves x until the series
 * of m = 1 - exp(-x) is exact enough, in units of 2^-62, and then doubles x again: if m belongs to
 * y, then m (2 - m) belongs to 2 y. */
static unsigned __int128 profile_table_weight_of_large(uint64_t size_bytes, uint64_t interval_bytes)
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
                                   ? profile_table_weight_of_small(size_bytes, interval_bytes)
                                   : profile_table_weight_of_large(size_bytes, interval_bytes);
    return weight < most ? (uint64_t)weight : most;
}

static uint64_t profile_table_mix(uint64_t word)
{
    word *= 0x9e3779b97f4a7c15u;
    return word ^ word >> 32;
}

static uint64_t profile_table_hash_of(const uintptr_t *frames, unsigned depth)
{
    uint64_t hash = depth;
    for (unsigned i = 0; i < depth; i++)
        hash = profile_table_mix(hash ^ frames[i]);
    return hash | 1; /* 0 marks a free site */
}

static bool profile_table_has_frames(const struct profile_table *table,
                                     const struct profile_site *site, const uintptr_t *frames,
                                     unsigned depth)
{
    return load_acquire(&site->ready) == 1 + depth && /* pairs with profile_table_fill_site */
           memcmp(&table->frames[site->first_frame], frames, depth * sizeof *frames) == 0;
}

/* Writes the frames of a site and publishes it.
 *
 * Returns: false if there is no room for the frames. */
static bool profile_table_fill_site(struct profile_table *table, struct profile_site *site,
                                    const uintptr_t *frames, unsigned depth)
{
    uint64_t first = fetch_add_relaxed(&table->frames_taken, (uint64_t)depth);
    if (first + depth > PROFILE_FRAMES) {
        fetch_sub_relaxed(&table->frames_taken, (uint64_t)depth);
        return false;
    }
    memcpy(&table->frames[first], frames, depth * sizeof *frames);
    site->first_frame = (uint32_t)first;
    /* Release: pairs with profile_table_has_frames and profile_dump_write_sites. */
    store_release(&site->ready, 1 + depth);
    return true;
}

/* Finds the site of a stack, or makes it.
 *
 * Returns: its number; 0 if there is no room. */
static uint32_t profile_table_find_site(struct profile_table *table, const uintptr_t *frames,
                                        unsigned depth)
{
    if (depth == 0)
        return 0;
    uint64_t hash = profile_table_hash_of(frames, depth);
    for (unsigned probe = 0; probe < SITE_PROBES; probe++) {
        uint32_t number = (uint32_t)(profile_table_mix(hash) + probe) % PROFILE_SITES;
        struct profile_site *site = &table->sites[number];
        uint64_t seen = load_relaxed(&site->hash);
        if (seen == 0 && compare_swap_acq_rel(&site->hash, &seen, hash)) {
            if (profile_table_fill_site(table, site, frames, depth)) {
                profile_modules_see(&table->modules, frames, depth);
                return number;
            }
            store_relaxed(&site->hash, (uint64_t)0);
            break;
        }
        if (seen == hash && profile_table_has_frames(table, site, frames, depth))
            return number;
    }
    fetch_add_relaxed(&table->stacks_lost, (uint64_t)1);
    return 0;
}

static void profile_table_add_to(struct profile_sums *sums, uint64_t samples, uint64_t objects,
                                 uint64_t bytes)
{
    fetch_add_relaxed(&sums->samples, samples);
    fetch_add_relaxed(&sums->objects, objects);
    fetch_add_relaxed(&sums->bytes, bytes);
}

static void profile_table_subtract(struct profile_sums *sums, const struct profile_block *block)
{
    profile_table_add_to(sums, 0 - (uint64_t)1, 0 - block->objects, 0 - block->bytes);
}

/* Returns the first entry of a block's set. */
static struct profile_block *profile_table_set_of(struct profile_table *table, uintptr_t block)
{
    uint64_t set = profile_table_mix(block >> 3) % (PROFILE_BLOCKS / PROFILE_SET_BLOCKS);
    return &table->blocks[set * PROFILE_SET_BLOCKS];
}

/* Returns the entry number `i` of the places for a block: its own set and the next one. */
static struct profile_block *profile_table_place_of(struct profile_table *table, uintptr_t block,
                                                    unsigned i)
{
    struct profile_block *first = profile_table_set_of(table, block);
    return &table->blocks[(size_t)(first - table->blocks + i) % PROFILE_BLOCKS];
}

/* Puts a sample in a free place.
 *
 * Returns: false if there is none. */
static bool profile_table_keep(struct profile_table *table, const struct profile_block *taken)
{
    for (unsigned i = 0; i < 2 * PROFILE_SET_BLOCKS; i++) {
        struct profile_block *place = profile_table_place_of(table, taken->block, i);
        uintptr_t seen = BLOCK_FREE;
        /* Acquire: pairs with profile_table_release_place. */
        if (load_relaxed(&place->block) != BLOCK_FREE ||
            !compare_swap_acq_rel(&place->block, &seen, (uintptr_t)BLOCK_BUSY))
            continue;
        /* A dump may be reading the fields of the former sample. If it reads one of these values,
         * its second look at `block` sees BUSY or a later value. */
        store_release(&place->site, taken->site);
        store_release(&place->thread, taken->thread);
        store_release(&place->asked_bytes, taken->asked_bytes);
        store_release(&place->objects, taken->objects);
        store_release(&place->bytes, taken->bytes);
        store_release(&place->time_ms, taken->time_ms);
        /* Release: pairs with the swap in profile_table_release_place. */
        store_release(&place->block, taken->block);
        return true;
    }
    return false;
}

bool profile_table_add(struct profile_table *table, const struct profile_block *taken,
                       uint64_t size_bytes, const uintptr_t *frames, unsigned depth)
{
    struct profile_block block = *taken;
    block.site = profile_table_find_site(table, frames, depth);
    block.bytes = profile_weighted_bytes(block.objects, size_bytes);
    struct profile_site *site = &table->sites[block.site];
    profile_table_add_to(&site->allocated, 1, block.objects, block.bytes);
    profile_table_add_to(&table->allocated, 1, block.objects, block.bytes);
    profile_table_add_to(&site->live, 1, block.objects, block.bytes);
    profile_table_add_to(&table->live, 1, block.objects, block.bytes);
    if (profile_table_keep(table, &block))
        return true;
    profile_table_subtract(&site->live, &block);
    profile_table_subtract(&table->live, &block);
    fetch_add_relaxed(&table->blocks_lost, (uint64_t)1);
    return false;
}

/* Frees the place of a sample and subtracts its weight.
 *
 * Returns: false if another thread has done so. */
static bool profile_table_release_place(struct profile_table *table, struct profile_block *place,
                                        uintptr_t block)
{
    /* Acquire: pairs with profile_table_keep. */
    if (!compare_swap_acq_rel(&place->block, &block, (uintptr_t)BLOCK_BUSY))
        return false;
    profile_table_subtract(&table->sites[place->site].live, place);
    profile_table_subtract(&table->live, place);
    store_release(&place->block, (uintptr_t)BLOCK_FREE); /* pairs with profile_table_keep */
    return true;
}

bool profile_table_remove(struct profile_table *table, const void *block)
{
    for (unsigned i = 0; i < 2 * PROFILE_SET_BLOCKS; i++) {
        struct profile_block *place = profile_table_place_of(table, (uintptr_t)block, i);
        if (load_relaxed(&place->block) == (uintptr_t)block &&
            profile_table_release_place(table, place, (uintptr_t)block))
            return true;
    }
    return false;
}

bool profile_table_rename(struct profile_table *table, const void *from, const void *to)
{
    static_check(sizeof(uintptr_t) == 8, "set_of leaves three bits out");
    for (unsigned i = 0; i < 2 * PROFILE_SET_BLOCKS; i++) {
        struct profile_block *place = profile_table_place_of(table, (uintptr_t)from, i);
        uintptr_t block = (uintptr_t)from;
        if (load_relaxed(&place->block) == block &&
            compare_swap_acq_rel(&place->block, &block, (uintptr_t)to))
            return true;
    }
    return false;
}

static void profile_table_clear(struct profile_sums *sums)
{
    store_relaxed(&sums->samples, (uint64_t)0);
    store_relaxed(&sums->objects, (uint64_t)0);
    store_relaxed(&sums->bytes, (uint64_t)0);
}

static void profile_table_clear_allocated(struct profile_table *table)
{
    for (size_t i = 0; i < PROFILE_SITES; i++)
        if (load_relaxed(&table->sites[i].allocated.samples) != 0) /* a write unshares the page */
            profile_table_clear(&table->sites[i].allocated);
    profile_table_clear(&table->allocated);
}

void profile_table_after_fork(struct profile_table *table)
{
    if (unlikely(load_relaxed(&table->is_forked) != 0) &&
        exchange_acq_rel(&table->is_forked, 0u) != 0)
        profile_table_clear_allocated(table);
}

void profile_table_reset(struct profile_table *table)
{
    for (size_t i = 0; i < PROFILE_BLOCKS; i++) {
        uintptr_t block = load_relaxed(&table->blocks[i].block);
        if (block > BLOCK_BUSY)
            (void)profile_table_release_place(table, &table->blocks[i], block);
    }
    profile_table_clear_allocated(table);
    store_relaxed(&table->stacks_lost, (uint64_t)0);
    store_relaxed(&table->blocks_lost, (uint64_t)0);
}

struct profile_state profile_state;
