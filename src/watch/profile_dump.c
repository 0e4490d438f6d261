/* Dumps of the profile: a text, written with the system calls of os/ alone.
 * docs/dev/PROFILE-FORMAT.md describes the format.
 *
 * Threads: any; async-signal-safe. The state is in the table, because the stack may be small. */
#include "base/bits.h"
#include "base/check.h"
#include "base/text.h"
#include "cairn/api.h"
#include "os/file.h"
#include "os/process.h"
#include "watch/profile_table.h"
#include "watch/profile_writer.h"
#include "watch/watch.h"

#include <errno.h>

enum { PATH_BYTES = 256, NUMBERED_BYTES = PATH_BYTES + 32, DUMPS_MAX = 16, TRIES_MAX = 1000 };

static struct {
    char path[PATH_BYTES]; /* atomic, written by the claiming thread; empty: none */
    uint32_t process;      /* claiming thread: process of `number` and `count` */
    uint32_t number;       /* claiming thread: number of the next file */
    uint32_t count;        /* claiming thread: dumps written */
    bool failed;           /* claiming thread: a failure was reported */
} places;

static void profile_dump_write_head(struct profile_writer *writer, const char *reason)
{
    const struct profile_table *table = profile_state.table;
    profile_write(writer, "cairn-profile 1\nlibrary %s\nprocess %u %s\n", CAIRN_VERSION,
                  os_process_id(), os_program_name());
    profile_write(writer, "reason %s\ntime %zu\ninterval %zu\nlost %zu %zu\n", reason,
                  (size_t)os_now_ms(), (size_t)load_relaxed(&profile_state.interval_bytes),
                  (size_t)load_relaxed(&table->stacks_lost),
                  (size_t)load_relaxed(&table->blocks_lost));
}

static void profile_dump_write_sums(struct profile_writer *writer, const struct profile_sums *sums)
{
    profile_write(writer, " %zu %zu %zu", (size_t)load_relaxed(&sums->samples),
                  (size_t)load_relaxed(&sums->objects), (size_t)load_relaxed(&sums->bytes));
}

static void profile_dump_write_sites(struct profile_writer *writer)
{
    const struct profile_table *table = profile_state.table;
    for (uint32_t i = 0; i < PROFILE_SITES; i++) {
        const struct profile_site *site = &table->sites[i];
        uint32_t ready = load_acquire(&site->ready); /* pairs with profile_table_fill_site */
        if (ready == 0 ||
            (load_relaxed(&site->allocated.samples) == 0 && load_relaxed(&site->live.samples) == 0))
            continue;
        profile_write(writer, "site %u", i);
        profile_dump_write_sums(writer, &site->allocated);
        profile_dump_write_sums(writer, &site->live);
        for (uint32_t frame = 0; frame + 1 < ready; frame++)
            profile_write(writer, " %p", (void *)table->frames[site->first_frame + frame]);
        profile_write(writer, "\n");
    }
}

/* Writes a line for each sample in use. Other threads continue: a sample that changes meanwhile is
 * left out. */
static void profile_dump_write_blocks(struct profile_writer *writer)
{
    const struct profile_table *table = profile_state.table;
    for (uint32_t i = 0; i < PROFILE_BLOCKS; i++) {
        const struct profile_block *place = &table->blocks[i];
        uintptr_t block = load_acquire(&place->block); /* pairs with profile_table_keep */
        if (block <= BLOCK_BUSY)
            continue;
        /* Acquire: pairs with profile_table_keep, and the second look at `block` is after these
         * loads. */
        struct profile_block copy = {
            .site = load_acquire(&place->site),
            .thread = load_acquire(&place->thread),
            .asked_bytes = load_acquire(&place->asked_bytes),
            .objects = load_acquire(&place->objects),
            .bytes = load_acquire(&place->bytes),
            .time_ms = load_acquire(&place->time_ms),
        };
        if (load_acquire(&place->block) != block)
            continue;
        profile_write(writer, "block %p %u %zu %zu %zu %u %zu\n", (void *)block, copy.site,
                      (size_t)copy.asked_bytes, (size_t)copy.objects, (size_t)copy.bytes,
                      copy.thread, (size_t)copy.time_ms);
    }
}

/* Writes all lines of a dump.
 *
 * Locking: profile_state.busy claimed. */
static int profile_dump_dump(int file, const char *reason)
{
    struct profile_scratch *scratch = &profile_state.table->scratch;
    struct profile_writer *writer = &scratch->writer;
    *writer = (struct profile_writer){.file = file};
    profile_table_after_fork(profile_state.table);
    profile_dump_write_head(writer, reason);
    profile_dump_write_sites(writer);
    profile_dump_write_blocks(writer);
    profile_write_maps(writer, &scratch->maps);
    profile_write_modules(writer, &profile_state.table->modules);
    profile_write(writer, "end\n");
    return profile_write_out(writer);
}

int profile_dump(const char *path, const char *reason)
{
    if (load_acquire(&profile_state.table) == NULL) /* pairs with profile_make_table */
        return -ENODATA;
    if (!os_claim(&profile_state.busy, 0))
        return -EBUSY;
    int file = os_file_open(path, OS_FILE_CREATE_SECRET);
    int error = file < 0 ? file : os_file_truncate(file, 0);
    if (error == 0)
        error = profile_dump_dump(file, reason);
    os_file_close(file < 0 ? -1 : file);
    os_unclaim(&profile_state.busy);
    return error;
}

int profile_dump_to(const char *path, size_t length_bytes, uint64_t growth_bytes)
{
    if (!os_claim(&profile_state.busy, 0))
        return -EBUSY;
    size_t length = smaller_of(length_bytes, sizeof places.path - 1);
    for (size_t i = 0; i < length; i++)
        store_relaxed(&places.path[i], path[i]);
    store_relaxed(&places.path[length], '\0');
    places.process = 0; /* the counts start again */
    places.failed = false;
    store_relaxed(&profile_state.growth_mark, growth_bytes);
    store_relaxed(&profile_state.growth_bytes, growth_bytes);
    os_unclaim(&profile_state.busy);
    return 0;
}

bool profile_dumps(void) { return load_relaxed(&places.path[0]) != '\0'; }

/* Makes the next file whose name is free.
 *
 * Returns: a descriptor or a negative errno. */
static int profile_dump_open_next(char *path)
{
    int file = -EEXIST;
    for (unsigned tries = 0; file == -EEXIST && tries < TRIES_MAX; tries++) {
        (void)format_text(path, NUMBERED_BYTES, "%s.%u.%u", places.path, places.process,
                          places.number++);
        file = os_file_open(path, OS_FILE_NEW_SECRET);
    }
    return file;
}

at_process_end int profile_dump_next(const char *reason)
{
    /* Acquire: pairs with profile_make_table. */
    if (!profile_dumps() || load_acquire(&profile_state.table) == NULL)
        return -ENODATA;
    bool is_last = reason[0] == 'e'; /* "end": the exit would cut a dump of another thread */
    if (!os_claim(&profile_state.busy, is_last ? OS_CLAIM_MS : 0))
        return -EBUSY;
    uint32_t process = os_process_id();
    if (places.process != process) {
        places.process = process; /* also in the child of a fork */
        places.number = places.count = 0;
    }
    /* Dumps on request ("call") and at the end of the process ("end") are always written. */
    bool is_wanted = is_last || reason[0] == 'c';
    int error = 0;
    if (is_wanted || places.count < DUMPS_MAX) {
        char path[NUMBERED_BYTES];
        places.count++;
        int file = profile_dump_open_next(path);
        error = file < 0 ? file : profile_dump_dump(file, reason);
        os_file_close(file < 0 ? -1 : file);
        if (error != 0 && !places.failed)
            report("cannot write profile %s: %s", path, text_of_error(-error));
        places.failed = places.failed || error != 0;
    }
    os_unclaim(&profile_state.busy);
    return error;
}
