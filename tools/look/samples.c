// The records of the sampling profiler (src/watch/profile_table.h): the samples in use, and the
// stacks of their sites.
#include "look.h"

#include <stdlib.h>

static uint64_t table_of(struct look *look)
{
    const struct profile_layout *profile = &look->library->profile;
    uint64_t table = 0;
    (void)read_field(look->target, address_of(profile->state), profile->state_table, &table);
    return table;
}

static void read_block(struct look *look, uint64_t place, struct samples *samples)
{
    enum { ADDRESS_LEAST = 4096 }; // what is less is a state of the entry
    const struct profile_layout *profile = &look->library->profile;
    unsigned char bytes[256];
    if (!read_small(look->target, place, bytes, profile->block_bytes)) {
        look->unreadable++;
        return;
    }
    uint64_t block = field(bytes, profile->block_address);
    uint64_t site = field(bytes, profile->block_site);
    uint64_t objects = field(bytes, profile->block_objects);
    double weight = (double)objects / (double)((uint64_t)1 << profile->weight_shift);
    if (block < ADDRESS_LEAST || site >= profile->site_count || weight < 1)
        return;
    samples->list = with_room(samples->list, samples->count, &samples->most, sizeof *samples->list);
    samples->list[samples->count++] = (struct sample){block, (uint32_t)site, weight};
}

static int by_block(const void *left, const void *right)
{
    const struct sample *a = left, *b = right;
    return a->block < b->block ? -1 : a->block > b->block;
}

void read_samples(struct look *look, struct samples *samples)
{
    const struct profile_layout *profile = &look->library->profile;
    uint64_t table = table_of(look), state = address_of(profile->state);
    *samples = (struct samples){0};
    (void)read_field(look->target, state, profile->state_interval_bytes, &samples->interval_bytes);
    if (table == 0)
        return;
    (void)read_small(look->target, table + profile->stacks_lost_at, &samples->stacks_lost, 8);
    (void)read_small(look->target, table + profile->blocks_lost_at, &samples->blocks_lost, 8);
    for (uint32_t i = 0; i < profile->block_count; i++)
        read_block(look, table + profile->blocks_at + (uint64_t)i * profile->block_bytes, samples);
    if (samples->count != 0)
        qsort(samples->list, samples->count, sizeof *samples->list, by_block);
}

size_t first_sample(const struct samples *samples, uint64_t address)
{
    size_t low = 0, high = samples->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (samples->list[middle].block < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t read_frames(struct look *look, uint32_t site, uint64_t frames[FRAMES_MOST])
{
    const struct profile_layout *profile = &look->library->profile;
    uint64_t table = table_of(look), ready, first;
    uint64_t place = table + profile->sites_at + (uint64_t)site * profile->site_bytes;
    if (table == 0 || site == 0 || // the first is that without a stack
        !read_field(look->target, place, profile->site_ready, &ready) ||
        !read_field(look->target, place, profile->site_first_frame, &first) || ready == 0 ||
        ready - 1 > profile->depth || first + ready - 1 > profile->frame_count ||
        !read_small(look->target, table + profile->frames_at + 8 * first, frames, 8 * (ready - 1)))
        return 0;
    return ready - 1;
}
