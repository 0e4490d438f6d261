// Prints the profiler's tables as the dump that the process would write now: the lines that
// src/watch/profile_dump.c describes, read from outside. The reason is `memory` or `core`. Before
// the end there are three lines that no other dump has: `torn`, `unreadable` and `others`, each
// with a number.
//
// The sums and some fields of a sample are not part of the layout description: their structs are
// shared with the library (src/watch/profile_table.h). A target whose description contradicts these
// structs is refused.
//
// The target may run. Samples are read twice, and a sample that changed in between is left out, as
// in a dump. Sites are read after the samples, so that each sample's site exists. Frames of a site
// do not change once it is ready, and its sums are single words, as in a dump.
#include "look.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <watch/profile_table.h>

static struct profile_site sites[PROFILE_SITES];
static struct profile_block entries[PROFILE_BLOCKS], again[PROFILE_BLOCKS];
static uint64_t frames[PROFILE_FRAMES];
static struct profile_modules modules;

static bool is_at(struct layout_field place, size_t offset, size_t bytes)
{
    return place.offset == offset && place.bytes == bytes;
}

#define IS_AT(place, type, name)                                                                   \
    is_at(place, offsetof(struct type, name), sizeof(((struct type *)NULL)->name))

static bool form_is_known(const struct profile_layout *it)
{
    return it->site_count == PROFILE_SITES && it->block_count == PROFILE_BLOCKS &&
           it->frame_count == PROFILE_FRAMES && it->weight_shift == PROFILE_WEIGHT_SHIFT &&
           it->modules_bytes == sizeof modules && it->site_bytes == sizeof *sites &&
           it->block_bytes == sizeof *entries && IS_AT(it->site_ready, profile_site, ready) &&
           IS_AT(it->site_first_frame, profile_site, first_frame) &&
           IS_AT(it->block_address, profile_block, block) &&
           IS_AT(it->block_site, profile_block, site) &&
           IS_AT(it->block_thread, profile_block, thread) &&
           IS_AT(it->block_asked_bytes, profile_block, asked_bytes) &&
           IS_AT(it->block_objects, profile_block, objects) &&
           IS_AT(it->block_time_ms, profile_block, time_ms);
}

// Reads an array of the table. A core file may lack pieces of it, which read as zero.
static void read_array(struct look *look, uint64_t address, void *array, size_t bytes)
{
    enum { PIECE = 4096 };
    char *to = array;
    if (read_large(look->target, address, array, bytes))
        return;
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        if (!read_large(look->target, address + at, to + at, piece)) {
            memset(to + at, 0, piece);
            look->unreadable++;
        }
    }
}

static void read_blocks(struct look *look, uint64_t place)
{
    read_array(look, place, entries, sizeof entries);
    if (look->target->pid)
        read_array(look, place, again, sizeof again);
    for (size_t i = 0; look->target->pid && i < PROFILE_BLOCKS; i++)
        if (entries[i].block > BLOCK_BUSY && memcmp(&entries[i], &again[i], sizeof *entries) != 0) {
            entries[i].block = BLOCK_BUSY;
            look->torn++;
        }
}

// Returns: the time of the dump: now; for a core file, the time of its newest sample.
static uint64_t time_of(const struct target *target)
{
    struct timespec now;
    uint64_t newest = 0;
    if (target->pid && clock_gettime(CLOCK_MONOTONIC_COARSE, &now) == 0)
        return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    for (size_t i = 0; i < PROFILE_BLOCKS; i++)
        if (entries[i].block > BLOCK_BUSY && entries[i].time_ms > newest)
            newest = entries[i].time_ms;
    return newest;
}

// Resets the sums as profile_table_after_fork does, which a child calls only at its first sample.
static void forget_parent(struct look *look, uint64_t is_forked_at)
{
    uint64_t is_forked = 0;
    look->unreadable += !read_small(look->target, is_forked_at, &is_forked, 4);
    for (size_t i = 0; is_forked && i < PROFILE_SITES; i++)
        sites[i].allocated = (struct profile_sums){0};
}

static void print_head(struct look *look, uint64_t table)
{
    const struct target *target = look->target;
    const struct profile_layout *profile = &look->library->profile;
    uint64_t interval = 0, stacks_lost = 0, blocks_lost = 0;
    bool read = read_field(look->target, address_of(profile->state), profile->state_interval_bytes,
                           &interval) &&
                read_small(look->target, table + profile->stacks_lost_at, &stacks_lost, 8) &&
                read_small(look->target, table + profile->blocks_lost_at, &blocks_lost, 8);
    look->unreadable += !read;
    printf("cairn-profile 1\nlibrary ");
    print_clean(look->library->version);
    printf("\nprocess %d ", target->pid ? target->pid : target->core_pid);
    print_clean(target->program);
    printf("\nreason %s\ntime %" PRIu64 "\ninterval %" PRIu64 "\nlost %" PRIu64 " %" PRIu64 "\n",
           target->pid ? "memory" : "core", time_of(target), interval, stacks_lost, blocks_lost);
}

static void print_sums(const struct profile_sums *sums)
{
    printf(" %" PRIu64 " %" PRIu64 " %" PRIu64, sums->samples, sums->objects, sums->bytes);
}

// Marks the mapping of a frame as code. The core file of a debugger has no segment for unchanged
// code, so the file itself does not say which mappings are code.
static void mark_code(struct target *target, uint64_t frame)
{
    const struct mapping *mapping = mapping_of(target, frame - 1);
    if (mapping)
        target->mappings[mapping - target->mappings].executable = true;
}

static void print_sites(struct look *look)
{
    for (uint32_t number = 0; number < PROFILE_SITES; number++) {
        const struct profile_site *site = &sites[number];
        if (site->ready == 0 || (site->allocated.samples == 0 && site->live.samples == 0))
            continue;
        uint64_t depth = site->ready - 1;
        if (depth > PROFILE_DEPTH || site->first_frame + depth > PROFILE_FRAMES) {
            look->unreadable++;
            continue;
        }
        printf("site %u", number);
        print_sums(&site->allocated);
        print_sums(&site->live);
        for (uint64_t i = site->first_frame; i < site->first_frame + depth; i++) {
            printf(" 0x%" PRIx64, frames[i]);
            mark_code(look->target, frames[i]);
        }
        putchar('\n');
    }
}

static void print_blocks(void)
{
    for (size_t i = 0; i < PROFILE_BLOCKS; i++) {
        const struct profile_block *it = &entries[i];
        if (it->block > BLOCK_BUSY)
            printf("block 0x%" PRIx64 " %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %u %" PRIu64 "\n",
                   (uint64_t)it->block, it->site, it->asked_bytes, it->objects, it->bytes,
                   it->thread, it->time_ms);
    }
}

static bool is_in_text(uint64_t at, uint64_t bytes)
{
    return at <= PROFILE_MODULE_TEXT && bytes <= PROFILE_MODULE_TEXT - at;
}

static void print_modules(void)
{
    for (size_t i = 0; i < PROFILE_MODULES; i++) {
        const struct profile_module *it = &modules.modules[i];
        char path[PROFILE_MODULE_TEXT + 1];
        if (!it->ready || !is_in_text(it->path, it->path_bytes) ||
            !is_in_text(it->build_id, it->build_id_size))
            continue;
        printf("module 0x%" PRIxPTR " 0x%" PRIxPTR " 0x%" PRIxPTR " %s", it->start, it->end,
               it->base, it->build_id_size ? "" : "-");
        for (size_t j = 0; j < it->build_id_size; j++)
            printf("%02x", (unsigned char)modules.text[it->build_id + j]);
        memcpy(path, modules.text + it->path, it->path_bytes);
        path[it->path_bytes] = '\0';
        putchar(' ');
        print_clean(path);
        putchar('\n');
    }
}

static void print_maps(struct target *target)
{
    for (size_t i = 0; i < target->mapping_count; i++) {
        const struct mapping *mapping = &target->mappings[i];
        unsigned char id[BUILD_ID_MAX];
        if (!mapping->executable || mapping->path[0] == '\0')
            continue;
        size_t bytes = read_build_id(target, mapping, id);
        printf("map 0x%" PRIx64 " 0x%" PRIx64 " 0x%" PRIx64 " %s", mapping->start, mapping->end,
               mapping->file_offset, bytes ? "" : "-");
        for (size_t j = 0; j < bytes; j++)
            printf("%02x", id[j]);
        putchar(' ');
        print_clean(mapping->path);
        putchar('\n');
    }
}

void profile(struct look *look)
{
    const struct profile_layout *layout = &look->library->profile;
    struct target *target = look->target;
    uint64_t table = 0;
    if (!form_is_known(layout))
        fail("%s: its Cairn library has another profile format: use the tools of that library",
             target->name);
    if (!read_field(target, address_of(layout->state), layout->state_table, &table)) {
        check_alive(target);
        fail("%s: the memory of its heap profiler is missing or cannot be read", target->name);
    }
    if (table == 0)
        fail("%s: its heap profiler was never started: use CAIRN_OPTIONS=profile:on or cairn "
             "profile start",
             target->name);
    read_blocks(look, table + layout->blocks_at);
    read_array(look, table + layout->sites_at, sites, sizeof sites);
    read_array(look, table + layout->frames_at, frames, sizeof frames);
    read_array(look, table + layout->modules_at, &modules, sizeof modules);
    forget_parent(look, table + layout->is_forked_at);
    check_alive(target);
    print_head(look, table);
    print_sites(look);
    print_blocks();
    print_maps(target);
    print_modules();
    printf("torn %" PRIu64 "\nunreadable %" PRIu64 "\nothers %zu\n", look->torn, look->unreadable,
           look->library->others);
    if (look->unreadable == 0)
        printf("end\n");
}
