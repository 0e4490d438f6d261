/* Dumps of the profile: text, written with the system calls of os/ alone, from any context.
 *
 *   cairn-profile 1             the format's version
 *   library 0.2.0
 *   process PID NAME
 *   reason WHY
 *   time MS                     monotonic, as the samples' times
 *   interval BYTES
 *   lost STACKS BLOCKS          samples that found no room
 *   site ID SAMPLES OBJECTS BYTES LIVE-SAMPLES LIVE-OBJECTS LIVE-BYTES FRAME…
 *   block ADDRESS SITE ASKED OBJECTS BYTES THREAD TIME
 *   map START END OFFSET BUILD-ID FILE
 *   end                         else it was cut
 *
 * OBJECTS are in units of 1 / 65536; addresses, frames (return addresses, innermost first) and the
 * numbers of maps are hexadecimal. Two sites may have one stack: they are to be added up. BUILD-ID
 * is - where there is none. docs/PROFILING.md describes it for readers.
 */
#include "base/bits.h"
#include "base/check.h"
#include "cairn/api.h"
#include "os/os.h"
#include "watch/profile_maps.h"
#include "watch/profile_state.h"
#include "watch/profile_writer.h"
#include "watch/watch.h"

#include <errno.h>

enum { PATH_BYTES = 256, NUMBERED_BYTES = PATH_BYTES + 32, DUMPS_MOST = 16, NUMBERS_MOST = 1000 };

static struct {
    char path[PATH_BYTES]; /* who claims, read without: empty: nowhere */
    uint32_t process;      /* who claims: whose `number` and `count` these are */
    uint32_t number;       /* who claims: of the next file */
    uint32_t count;        /* who claims: written */
    bool failed;           /* who claims: it was said */
} places;

static void write_head(struct profile_writer *writer, const char *reason)
{
    const struct profile_table *table = profile_state.table;
    profile_write(writer, "cairn-profile 1\nlibrary %s\nprocess %u %s\n", CAIRN_VERSION,
                  os_process_id(), os_program_name());
    profile_write(writer, "reason %s\ntime %zu\ninterval %zu\nlost %zu %zu\n", reason,
                  (size_t)os_now_ms(), (size_t)load_relaxed(&profile_state.interval_bytes),
                  (size_t)load_relaxed(&table->stacks_lost),
                  (size_t)load_relaxed(&table->blocks_lost));
}

static void write_sums(struct profile_writer *writer, const struct profile_sums *sums)
{
    profile_write(writer, " %zu %zu %zu", (size_t)load_relaxed(&sums->samples),
                  (size_t)load_relaxed(&sums->objects), (size_t)load_relaxed(&sums->bytes));
}

static void write_sites(struct profile_writer *writer)
{
    const struct profile_table *table = profile_state.table;
    for (uint32_t i = 0; i < PROFILE_SITES; i++) {
        const struct profile_site *site = &table->sites[i];
        uint32_t ready = load_acquire(&site->ready); /* pairs with the release in fill_site */
        if (ready == 0 ||
            (load_relaxed(&site->allocated.samples) == 0 && load_relaxed(&site->live.samples) == 0))
            continue;
        profile_write(writer, "site %u", i);
        write_sums(writer, &site->allocated);
        write_sums(writer, &site->live);
        for (uint32_t frame = 0; frame + 1 < ready; frame++)
            profile_write(writer, " %p", (void *)table->frames[site->first_frame + frame]);
        profile_write(writer, "\n");
    }
}

/* Other threads go on: a block that changes meanwhile is left out. */
static void write_blocks(struct profile_writer *writer)
{
    const struct profile_table *table = profile_state.table;
    for (uint32_t i = 0; i < PROFILE_BLOCKS; i++) {
        const struct profile_block *place = &table->blocks[i];
        uintptr_t block = load_acquire(&place->block); /* pairs with the release in keep */
        if (block <= BLOCK_BUSY)
            continue;
        /* Acquire: pairs with keep, and the look at `block` below comes after these. */
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

static int dump(int file, const char *reason)
{
    struct profile_scratch *scratch = &profile_state.table->scratch;
    struct profile_writer *writer = &scratch->writer; /* for the stack may be small */
    *writer = (struct profile_writer){.file = file};
    write_head(writer, reason);
    write_sites(writer);
    write_blocks(writer);
    profile_write_maps(writer, &scratch->maps);
    profile_write(writer, "end\n");
    return profile_write_out(writer);
}

int profile_dump(const char *path, const char *reason)
{
    if (load_acquire(&profile_state.table) == NULL)
        return -ENODATA;
    if (!profile_claim())
        return -EBUSY;
    int file = os_file_open(path, OS_FILE_CREATE_SECRET);
    int error = file < 0 ? file : os_file_truncate(file, 0);
    if (error == 0)
        error = dump(file, reason);
    os_file_close(file < 0 ? -1 : file);
    profile_unclaim();
    return error;
}

int profile_dump_to(const char *path, size_t length_bytes, uint64_t growth_bytes)
{
    if (!profile_claim())
        return -EBUSY;
    size_t length = smaller_of(length_bytes, sizeof places.path - 1);
    for (size_t i = 0; i < length; i++)
        store_relaxed(&places.path[i], path[i]);
    store_relaxed(&places.path[length], '\0');
    places.process = 0; /* counts afresh */
    places.failed = false;
    store_relaxed(&profile_state.growth_mark, growth_bytes);
    store_relaxed(&profile_state.growth_bytes, growth_bytes);
    profile_unclaim();
    return 0;
}

bool profile_dumps(void) { return load_relaxed(&places.path[0]) != '\0'; }

static int open_next(char *path)
{
    int file = -EEXIST;
    while (file == -EEXIST && places.number < NUMBERS_MOST) {
        (void)format_text(path, NUMBERED_BYTES, "%s.%u.%u", places.path, places.process,
                          places.number++);
        file = os_file_open(path, OS_FILE_NEW_SECRET);
    }
    return file;
}

at_process_end void profile_dump_next(const char *reason)
{
    if (!profile_dumps() || load_acquire(&profile_state.table) == NULL || !profile_claim())
        return;
    uint32_t process = os_process_id();
    if (places.process != process) {
        places.process = process; /* the child of a fork */
        places.number = places.count = 0;
    }
    bool last = reason[0] == 'e'; /* the one at the end is always written */
    if (last || places.count < DUMPS_MOST) {
        char path[NUMBERED_BYTES];
        places.count++;
        int file = open_next(path);
        int error = file < 0 ? file : dump(file, reason);
        os_file_close(file < 0 ? -1 : file);
        if (error != 0 && !places.failed)
            report("no profile in %s: error %d", path, -error);
        places.failed = places.failed || error != 0;
    }
    profile_unclaim();
}
