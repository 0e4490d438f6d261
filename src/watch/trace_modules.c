/* Text in a trace: see trace_modules.h. It goes to a file in memory first, since its length is not
 * known, and from there to chunks. */
#include "watch/trace_modules.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "base/text.h"
#include "cairn/api.h"
#include "os/os.h"
#include "watch/profile_maps.h"
#include "watch/profile_writer.h"
#include "watch/trace_encode.h"
#include "watch/trace_file.h"

#include <errno.h>

enum { KNOWN_MOST = 256, CHUNK_ROOM = TRACE_CHUNK_BYTES - (int)sizeof(struct trace_chunk) };

static struct scratch {
    struct profile_writer writer;
    struct profile_maps maps;
} *scratch; /* const after make; what it points to: who is busy */

static uint32_t busy; /* atomic: 1 while somebody writes */

/* Files that were seen, by where they lie and where their name does. known_count is raised after.
 */
static struct {
    uintptr_t base; /* atomic, who is busy writes */
    uintptr_t name; /* likewise */
} known[KNOWN_MOST];
static uint32_t known_count; /* atomic: all that there were; the last KNOWN_MOST stand */

int trace_modules_make(void)
{
    if (scratch == NULL)
        scratch = os_map(align_up(sizeof *scratch, os_page_size()));
    return scratch ? 0 : -ENOMEM;
}

/* From the file in memory to chunks of text. */
static void copy_text(int file, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        uint64_t first_order;
        struct trace_chunk *chunk = trace_file_chunk(&first_order);
        if (chunk == NULL)
            return;
        size_t part = smaller_of(bytes - done, CHUNK_ROOM);
        int error = os_file_read(file, chunk + 1, part, done);
        encode_text(chunk, first_order, error == 0 ? (uint32_t)part : 0);
        trace_file_unmap(chunk);
        done += part;
    }
}

/* 0: what was run; else the mappings, for stacks of this number on. */
static void write_text(uint32_t stack)
{
    int file = os_file_in_memory("cairn: modules");
    if (file < 0)
        return;
    struct profile_writer *writer = &scratch->writer;
    writer->file = file;
    writer->error = 0;
    writer->held = 0;
    writer->offset = 0;
    if (stack == 0) {
        profile_write(writer, "library %s\nprogram ", CAIRN_VERSION);
        const char *name = os_program_name();
        profile_write_text(writer, name, text_length(name));
        profile_write(writer, "\n");
    } else {
        profile_write(writer, "maps %u\n", stack);
        profile_write_maps(writer, &scratch->maps);
    }
    if (profile_write_out(writer) == 0)
        copy_text(file, writer->offset);
    os_file_close(file);
}

static bool is_known(uintptr_t base, uintptr_t name)
{
    uint32_t count = (uint32_t)smaller_of(load_acquire(&known_count), KNOWN_MOST);
    for (uint32_t i = 0; i < count; i++)
        if (load_relaxed(&known[i].base) == base && load_relaxed(&known[i].name) == name)
            return true;
    return false;
}

/* Whoever is busy. Whether there was one to add. */
static bool add_new(const uintptr_t *frames, unsigned depth)
{
    bool any = false;
    for (unsigned i = 0; i < depth; i++) {
        uintptr_t base = 0;
        uintptr_t name = (uintptr_t)os_locate(frames[i] - 1, &base);
        if (name == 0 || is_known(base, name))
            continue;
        uint32_t count = load_relaxed(&known_count);
        store_relaxed(&known[count % KNOWN_MOST].base, base);
        store_relaxed(&known[count % KNOWN_MOST].name, name);
        store_release(&known_count, count + 1); /* pairs with is_known */
        any = true;
    }
    return any;
}

static bool is_new(const uintptr_t *frames, unsigned depth)
{
    for (unsigned i = 0; i < depth; i++) {
        uintptr_t base = 0;
        uintptr_t name = (uintptr_t)os_locate(frames[i] - 1, &base);
        if (name != 0 && !is_known(base, name))
            return true;
    }
    return false;
}

static bool claim(void)
{
    uint32_t free = 0;
    return compare_swap_acq_rel(&busy, &free, 1u); /* pairs with unclaim */
}

static void unclaim(void) { store_release(&busy, 0u); } /* pairs with claim */

void trace_modules_begin(void)
{
    store_relaxed(&busy, 1u);
    store_relaxed(&known_count, 0u);
    write_text(0);
    unclaim();
}

bool trace_modules_see(const uintptr_t *frames, unsigned depth, const uint32_t *stacks)
{
    if (likely(!is_new(frames, depth)))
        return true;
    if (!claim())
        return false;
    if (add_new(frames, depth))
        write_text(load_relaxed(stacks) + 1);
    unclaim();
    return true;
}
