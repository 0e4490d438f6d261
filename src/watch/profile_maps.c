/* /proc/self/maps with build ids: see profile_maps.h. */
#include "watch/profile_maps.h"

#include "base/bits.h"
#include "base/text.h"
#include "os/os.h"

#include <elf.h>
#include <errno.h>
#include <string.h>

enum { HEADS_MOST = 32, BUILD_ID_MOST = 64 };

struct map {
    uint64_t start, end, offset;
    bool executable;
    const char *path; /* not ended by a zero byte */
    size_t path_bytes;
};

static uint64_t read_hex(const char **at, const char *end)
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

/* START-END PERM OFFSET DEVICE INODE   PATH */
static bool parse_map(const char *line, const char *end, struct map *map)
{
    const char *at = line;
    map->start = read_hex(&at, end);
    if (end - at < 8 || *at++ != '-')
        return false;
    map->end = read_hex(&at, end);
    if (end - at < 6)
        return false;
    map->executable = at[3] == 'x';
    at += 6;
    map->offset = read_hex(&at, end);
    while (at < end && *at != '/' && *at != '[')
        at++;
    map->path = at;
    map->path_bytes = (size_t)(end - at);
    return at < end;
}

static bool id_of_note(const unsigned char *notes, size_t bytes, char *id)
{
    static const char digits[] = "0123456789abcdef";
    size_t at = 0;
    Elf64_Nhdr head;
    while (at + sizeof head <= bytes) {
        memcpy(&head, notes + at, sizeof head);
        size_t name = at + sizeof head;
        size_t text = name + align_up(head.n_namesz, 4);
        if (head.n_namesz > bytes || head.n_descsz > bytes || text + head.n_descsz > bytes)
            return false;
        if (head.n_type == NT_GNU_BUILD_ID && head.n_namesz == 4 &&
            memcmp(notes + name, "GNU", 4) == 0 && head.n_descsz * 2 < BUILD_ID_MOST) {
            for (size_t i = 0; i < head.n_descsz; i++) {
                *id++ = digits[notes[text + i] >> 4];
                *id++ = digits[notes[text + i] & 15];
            }
            *id = '\0';
            return head.n_descsz > 0;
        }
        at = text + align_up(head.n_descsz, 4);
    }
    return false;
}

/* Of the object whose first page lies at `start`. */
static bool read_build_id(int memory, struct profile_maps *maps, char *id)
{
    uint64_t start = maps->start;
    unsigned char *notes = maps->notes;
    Elf64_Ehdr head;
    Elf64_Phdr heads[HEADS_MOST];
    if (memory < 0 || os_file_read(memory, &head, sizeof head, start) != 0 ||
        memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_phentsize != sizeof heads[0])
        return false;
    size_t count = smaller_of(head.e_phnum, HEADS_MOST);
    if (os_file_read(memory, heads, count * sizeof heads[0], start + head.e_phoff) != 0)
        return false;
    uint64_t first = 0;
    for (size_t i = count; i-- > 0;)
        if (heads[i].p_type == PT_LOAD)
            first = heads[i].p_vaddr & ~(uint64_t)4095;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = smaller_of(heads[i].p_filesz, sizeof maps->notes);
        if (heads[i].p_type == PT_NOTE &&
            os_file_read(memory, notes, bytes, start + heads[i].p_vaddr - first) == 0 &&
            id_of_note(notes, bytes, id))
            return true;
    }
    return false;
}

static void see_line(struct profile_writer *writer, int memory, struct profile_maps *maps,
                     const char *line, const char *end)
{
    struct map map;
    if (!parse_map(line, end, &map) || map.path_bytes > sizeof maps->path)
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
    char id[BUILD_ID_MOST] = "-";
    if (maps->start != 0 && !read_build_id(memory, maps, id))
        memcpy(id, "-", 2);
    profile_write(writer, "map %p %p %p %s ", (void *)map.start, (void *)map.end,
                  (void *)map.offset, id);
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
            see_line(writer, memory, maps, line, end);
        offset += (uint64_t)(line - maps->text);
        if (line == maps->text)
            break; /* a line longer than any */
    }
    os_file_close(file < 0 ? -1 : file);
    os_file_close(memory < 0 ? -1 : memory);
}
