// Reads the records of the sampling profiler (src/watch/profile_table.h): the live samples, and the
// stacks of their sites.
#include "look.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t table_of(struct look *look)
{
    const struct profile_layout *profile = &look->library->profile;
    uint64_t table = 0;
    (void)read_field(look->target, address_of(profile->state), profile->state_table, &table);
    return table;
}

static void read_block(struct look *look, uint64_t place, struct samples *samples)
{
    enum { ADDRESS_LEAST = 4096 }; // a smaller value is a state of the entry
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
    sort(samples->list, samples->count, sizeof *samples->list, by_block);
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
    if (table == 0 || site == 0 || // site 0 has no stack
        !read_field(look->target, place, profile->site_ready, &ready) ||
        !read_field(look->target, place, profile->site_first_frame, &first) || ready == 0 ||
        ready - 1 > profile->depth || first + ready - 1 > profile->frame_count ||
        !read_small(look->target, table + profile->frames_at + 8 * first, frames, 8 * (ready - 1)))
        return 0;
    return ready - 1;
}

bool *no_names(const struct target *target)
{
    return memset(take_memory(NULL, target->mapping_count + 1), 0, target->mapping_count + 1);
}

// Marks the mapping of the file that contains the code.
static void note_mapping(const struct target *target, uint64_t frame, bool *is_named)
{
    const struct mapping *mapping = mapping_of(target, frame - 1);
    if (mapping && mapping->path[0] != '\0')
        is_named[mapping - target->mappings] = true;
}

void print_frames(struct look *look, uint32_t site, bool *is_named)
{
    uint64_t frames[FRAMES_MOST];
    size_t depth = read_frames(look, site, frames);
    printf("frames=");
    for (size_t i = 0; i < depth; i++) {
        printf(",%#" PRIx64, frames[i]);
        note_mapping(look->target, frames[i], is_named);
    }
}

static void print_mapping(struct target *target, const struct mapping *mapping)
{
    unsigned char id[BUILD_ID_MAX];
    size_t bytes = read_build_id(target, mapping, id);
    printf("map\tstart=%#" PRIx64 "\tend=%#" PRIx64 "\toffset=%#" PRIx64 "\tbuild_id=x",
           mapping->start, mapping->end, mapping->file_offset);
    for (size_t i = 0; i < bytes; i++)
        printf("%02x", id[i]);
    printf("\tpath=");
    print_clean(mapping->path);
    putchar('\n');
}

void print_mappings(struct target *target, const bool *is_named)
{
    for (size_t i = 0; i < target->mapping_count; i++)
        if (is_named[i])
            print_mapping(target, &target->mappings[i]);
}
