/* The text of dumps: the writer, /proc/self/maps with build ids, and the table of libraries: see
 * profile_writer.h. */
#include "watch/profile_writer.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/text.h"
#include "os/file.h"
#include "os/module.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

int profile_write_out(struct profile_writer *writer)
{
    if (writer->error == 0 && writer->held > 0)
        writer->error = os_file_write(writer->file, writer->text, writer->held, writer->offset);
    writer->offset += writer->held;
    writer->held = 0;
    return writer->error;
}

void profile_write_text(struct profile_writer *writer, const char *text, size_t length_bytes)
{
    while (length_bytes > 0) {
        if (writer->held == PROFILE_BUFFER_BYTES)
            (void)profile_write_out(writer);
        size_t part = smaller_of(length_bytes, PROFILE_BUFFER_BYTES - writer->held);
        memcpy(writer->text + writer->held, text, part);
        writer->held += part;
        text += part;
        length_bytes -= part;
    }
}

void profile_write(struct profile_writer *writer, const char *format, ...)
{
    if (writer->held + PROFILE_PIECE_MAX > PROFILE_BUFFER_BYTES)
        (void)profile_write_out(writer);
    va_list arguments;
    va_start(arguments, format);
    writer->held +=
        format_text_list(writer->text + writer->held, PROFILE_PIECE_MAX, format, arguments);
    va_end(arguments);
}

enum { HEADS_MAX = 32 };

/* A line of /proc/self/maps. */
struct map {
    uint64_t start, end, offset;
    bool executable;
    const char *path; /* not ended by a zero byte */
    size_t path_bytes;
};

/* Reads a hexadecimal number and moves `at` behind it. */
static uint64_t profile_maps_read_hex(const char **at, const char *end)
{
    uint64_t value = 0;
    for (; *at < end; ++*at) {
        char c = **at;
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                : 16u;
        if (digit > 15)
            break;
        value = value << 4 | digit;
    }
    return value;
}

/* Reads a line of /proc/self/maps: START-END PERM OFFSET DEVICE INODE PATH.
 *
 * Returns: false if it has no path. */
static bool profile_maps_parse_map(const char *line, const char *end, struct map *map)
{
    const char *at = line;
    map->start = profile_maps_read_hex(&at, end);
    if (end - at < 8 || *at++ != '-')
        return false;
    map->end = profile_maps_read_hex(&at, end);
    if (end - at < 6)
        return false;
    map->executable = at[3] == 'x';
    at += 6;
    map->offset = profile_maps_read_hex(&at, end);
    while (at < end && *at != '/' && *at != '[')
        at++;
    map->path = at;
    map->path_bytes = (size_t)(end - at);
    return at < end;
}

/* Writes a build id in hexadecimal, and a space; "-" if there is none. */
static void profile_write_id(struct profile_writer *writer, const unsigned char *id, size_t bytes)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes; i++) {
        profile_write_text(writer, &digits[id[i] >> 4], 1);
        profile_write_text(writer, &digits[id[i] & 15], 1);
    }
    profile_write(writer, bytes == 0 ? "- " : " ");
}

/* Reads the build id of the object whose first page is at maps->start. `*id` gets its first byte.
 *
 * Returns: the length; 0 if it has none or cannot be read. */
static size_t profile_maps_read_build_id(int memory, struct profile_maps *maps,
                                         const unsigned char **id)
{
    uint64_t start = maps->start;
    unsigned char *notes = maps->notes;
    Elf64_Ehdr head;
    Elf64_Phdr heads[HEADS_MAX];
    if (memory < 0 || os_file_read(memory, &head, sizeof head, start) != 0 ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof heads[0])
        return 0;
    size_t count = smaller_of(head.e_phnum, HEADS_MAX);
    if (os_file_read(memory, heads, count * sizeof heads[0], start + head.e_phoff) != 0)
        return 0;
    uint64_t first = 0;
    for (size_t i = count; i-- > 0;)
        if (heads[i].p_type == PT_LOAD)
            first = heads[i].p_vaddr & ~(uint64_t)4095;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = smaller_of(heads[i].p_filesz, sizeof maps->notes);
        size_t length = 0;
        if (heads[i].p_type == PT_NOTE &&
            os_file_read(memory, notes, bytes, start + heads[i].p_vaddr - first) == 0)
            length = os_build_id_of_notes(notes, bytes, id);
        if (length != 0)
            return length;
    }
    return 0;
}

/* Writes the line of a mapping, if it is executable. */
static void profile_maps_see_line(struct profile_writer *writer, int memory,
                                  struct profile_maps *maps, const char *line, const char *end)
{
    struct map map;
    if (!profile_maps_parse_map(line, end, &map) || map.path_bytes > sizeof maps->path)
        return;
    bool same =
        map.path_bytes == maps->path_bytes && memcmp(map.path, maps->path, map.path_bytes) == 0;
    if (!same || map.offset == 0) {
        memcpy(maps->path, map.path, map.path_bytes);
        maps->path_bytes = map.path_bytes;
        maps->start = map.offset == 0 ? map.start : 0;
    }
    if (!map.executable)
        return;
    const unsigned char *id = NULL;
    size_t id_bytes = maps->start != 0 ? profile_maps_read_build_id(memory, maps, &id) : 0;
    profile_write(writer, "map %p %p %p ", (void *)map.start, (void *)map.end, (void *)map.offset);
    profile_write_id(writer, id, id_bytes);
    profile_write_text(writer, map.path, map.path_bytes);
    profile_write_text(writer, "\n", 1);
}

void profile_write_maps(struct profile_writer *writer, struct profile_maps *maps)
{
    int file = os_file_open("/proc/self/maps", OS_FILE_READ);
    int memory = os_file_open("/proc/self/mem", OS_FILE_READ);
    maps->path_bytes = 0;
    maps->start = 0;
    uint64_t offset = 0;
    for (int error = 0; file >= 0 && error == 0;) {
        memset(maps->text, 0, sizeof maps->text); /* the file has no zero byte: one ends the text */
        error = os_file_read(file, maps->text, sizeof maps->text - 1, offset);
        const char *line = maps->text;
        for (const char *end; *(end = line + text_until(line, '\n')) != '\0'; line = end + 1)
            profile_maps_see_line(writer, memory, maps, line, end);
        offset += (uint64_t)(line - maps->text);
        if (line == maps->text)
            break; /* a line that is longer than the buffer */
    }
    os_file_close(file < 0 ? -1 : file);
    os_file_close(memory < 0 ? -1 : memory);
}

/* Whether an entry describes a library. */
static bool profile_modules_is_same(const struct profile_modules *modules,
                                    const struct profile_module *one,
                                    const struct os_module *module, size_t path_bytes)
{
    return one->start == module->start && one->end == module->end && one->base == module->base &&
           one->path_bytes == path_bytes &&
           memcmp(modules->text + one->path, module->path, path_bytes) == 0;
}

/* Whether a library has an entry. */
static bool profile_modules_is_known(const struct profile_modules *modules,
                                     const struct os_module *module, size_t path_bytes)
{
    uint32_t count = (uint32_t)smaller_of(load_relaxed(&modules->module_count), PROFILE_MODULES);
    for (uint32_t i = 0; i < count; i++)
        if (load_acquire(&modules->modules[i].ready) && /* pairs with profile_modules_note */
            profile_modules_is_same(modules, &modules->modules[i], module, path_bytes))
            return true;
    return false;
}

/* Takes room in the text.
 *
 * Returns: its offset; PROFILE_MODULE_TEXT if there is no room. */
static uint32_t profile_modules_take_text(struct profile_modules *modules, size_t bytes)
{
    if (load_relaxed(&modules->text_bytes) + bytes > PROFILE_MODULE_TEXT)
        return PROFILE_MODULE_TEXT;
    uint32_t at = fetch_add_relaxed(&modules->text_bytes, (uint32_t)bytes);
    return at + bytes <= PROFILE_MODULE_TEXT ? at : PROFILE_MODULE_TEXT;
}

/* Makes an entry for a library, if there is room. */
static void profile_modules_note(struct profile_modules *modules, const struct os_module *module,
                                 size_t path_bytes)
{
    const unsigned char *id = NULL;
    size_t id_bytes = os_module_build_id(module, &id);
    if (load_relaxed(&modules->module_count) >= PROFILE_MODULES || path_bytes > PROFILE_MODULE_TEXT)
        return;
    uint32_t at = profile_modules_take_text(modules, path_bytes + id_bytes);
    uint32_t number = fetch_add_relaxed(&modules->module_count, 1u);
    if (at == PROFILE_MODULE_TEXT || number >= PROFILE_MODULES)
        return;
    struct profile_module *entry = &modules->modules[number];
    entry->start = module->start;
    entry->end = module->end;
    entry->base = module->base;
    entry->path = at;
    entry->path_bytes = (uint32_t)path_bytes;
    entry->build_id = at + (uint32_t)path_bytes;
    entry->build_id_size = (uint16_t)id_bytes;
    memcpy(modules->text + at, module->path, path_bytes);
    if (id_bytes > 0)
        memcpy(modules->text + at + path_bytes, id, id_bytes);
    /* Release: pairs with profile_modules_is_known and profile_write_modules. */
    store_release(&entry->ready, (uint16_t)1);
}

void profile_modules_see(struct profile_modules *modules, const uintptr_t *frames, unsigned depth)
{
    for (unsigned i = 0; i < depth; i++) {
        struct os_module module;
        if (!os_module_of(frames[i] - 1, &module) || module.is_program)
            continue;
        size_t path_bytes = text_length(module.path);
        if (!profile_modules_is_known(modules, &module, path_bytes))
            profile_modules_note(modules, &module, path_bytes);
    }
}

void profile_write_modules(struct profile_writer *writer, const struct profile_modules *modules)
{
    for (uint32_t i = 0; i < PROFILE_MODULES; i++) {
        const struct profile_module *entry = &modules->modules[i];
        if (!load_acquire(&entry->ready)) /* pairs with profile_modules_note */
            continue;
        profile_write(writer, "module %p %p %p ", (void *)entry->start, (void *)entry->end,
                      (void *)entry->base);
        profile_write_id(writer, (const unsigned char *)modules->text + entry->build_id,
                         entry->build_id_size);
        profile_write_text(writer, modules->text + entry->path, entry->path_bytes);
        profile_write_text(writer, "\n", 1);
    }
}
