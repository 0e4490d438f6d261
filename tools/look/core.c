// Opens a core file as the target: ELF64, little-endian, of any machine, written by the kernel, by
// gdb's gcore or similar programs. Memory behind the end of a truncated file is missing, and so is
// memory that the kernel was configured not to write.
#include "look.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PROGRAM_HEADERS_MOST = 1 << 20, NOTE_BYTES_MOST = 16 << 20 };

static bool read_at(const struct target *target, uint64_t offset, void *buffer, size_t bytes)
{
    return offset <= INT64_MAX - bytes &&
           pread(target->file, buffer, bytes, (off_t)offset) == (ssize_t)bytes;
}

static void check_header(const char *path, const Elf64_Ehdr *header)
{
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0)
        fail("%s: not a core file", path);
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB)
        fail("%s: its machine is not 64-bit little-endian", path);
    if (header->e_type != ET_CORE)
        fail("%s: a program or a library, not a core file", path);
    if (header->e_phentsize != sizeof(Elf64_Phdr))
        fail("%s: its program headers have the wrong size for a core file", path);
}

// Returns: the number of program headers. A number above 65534 is stored in the first section
// header.
static size_t header_count(const struct target *target, const Elf64_Ehdr *header)
{
    size_t count = header->e_phnum;
    Elf64_Shdr section;
    if (count == PN_XNUM && read_at(target, header->e_shoff, &section, sizeof section))
        count = section.sh_info;
    if (count > PROGRAM_HEADERS_MOST)
        fail("%s: more program headers than a core file can have", target->name);
    return count;
}

static bool has_bytes(const Elf64_Phdr *entry)
{
    return (entry->p_type == PT_LOAD || entry->p_type == PT_NOTE) && entry->p_filesz > 0;
}

static int by_offset(const void *left, const void *right)
{
    const Elf64_Phdr *a = left, *b = right;
    return a->p_offset < b->p_offset ? -1 : a->p_offset > b->p_offset;
}

// Sorts the program headers by their places in the file. Refuses a file in which two of them name
// the same bytes: memory and work would no longer be bounded by its length.
static void check_places(const char *path, Elf64_Phdr *entries, size_t count)
{
    uint64_t end = 0;
    sort(entries, count, sizeof *entries, by_offset);
    for (size_t i = 0; i < count; i++) {
        if (!has_bytes(&entries[i]))
            continue;
        if (entries[i].p_offset < end || entries[i].p_offset + entries[i].p_filesz < end)
            fail("%s: damaged: two of its program headers name the same bytes", path);
        end = entries[i].p_offset + entries[i].p_filesz;
    }
}

static int by_start(const void *left, const void *right)
{
    const struct segment *a = left, *b = right;
    return a->start < b->start ? -1 : a->start > b->start;
}

static void add_segment(struct target *target, const Elf64_Phdr *entry, uint64_t file_bytes)
{
    uint64_t bytes = entry->p_filesz;
    if (entry->p_vaddr > INT64_MAX) // a mapping of the kernel (vsyscall), which has no pointers
        return;
    if (entry->p_vaddr + bytes < entry->p_vaddr || entry->p_offset + bytes < entry->p_offset)
        return;
    if (entry->p_offset + bytes > target->core_bytes)
        target->core_bytes = entry->p_offset + bytes;
    uint64_t there = entry->p_offset >= file_bytes ? 0 : file_bytes - entry->p_offset;
    if (bytes > there) {
        target->core_missing += bytes - there;
        bytes = there;
    }
    if (bytes > 0)
        target->segments[target->segment_count++] =
            (struct segment){entry->p_vaddr, bytes, entry->p_offset};
    if (entry->p_filesz == 0 && (entry->p_flags & PF_W) != 0)
        target->unwritten[target->unwritten_count++] =
            (struct segment){entry->p_vaddr, entry->p_memsz, 0};
}

// Reads NT_FILE: a count, the page size, three words for each mapping, then the names.
static void read_files(struct target *target, char *text, size_t bytes)
{
    uint64_t head[2];
    if (bytes < sizeof head)
        return;
    memcpy(head, text, sizeof head);
    size_t words = sizeof head + head[0] * 24;
    if (head[0] > bytes / 24 || words > bytes)
        return;
    const char *name = text + words;
    uint64_t lowest = 0;
    target->mappings = take_memory(NULL, (head[0] + 1) * sizeof *target->mappings);
    for (size_t i = 0; i < head[0]; i++) {
        const char *end = memchr(name, '\0', (size_t)(text + bytes - name));
        if (end == NULL)
            return;
        uint64_t range[3];
        const char *path = name;
        memcpy(range, text + sizeof head + 24 * i, sizeof range);
        name = end + 1;
        if (range[0] < lowest || range[1] <= range[0]) // damaged: they are sorted and disjoint
            continue;
        lowest = range[1];
        target->mappings[target->mapping_count++] = (struct mapping){
            .start = range[0],
            .end = range[1],
            .file_offset = range[2] * head[1],
            .path = path,
            .readable = true,
        };
    }
}

static void read_note(struct target *target, const Elf64_Nhdr *note, char *contents)
{
    enum { PID_AT = 24, NAME_AT = 40, NAME_BYTES = 16 }; // in elf_prpsinfo of 64-bit machines
    enum { REGISTERS_AT = 112, AFTER = 8 }; // pr_reg, and the bytes after it, in elf_prstatus
    if (note->n_type == NT_FILE && target->mappings == NULL)
        read_files(target, contents, note->n_descsz);
    if (note->n_type == NT_PRPSINFO && note->n_descsz >= NAME_AT + NAME_BYTES) {
        memcpy(&target->core_pid, contents + PID_AT, sizeof target->core_pid);
        memcpy(target->program, contents + NAME_AT, NAME_BYTES);
    }
    if (note->n_type == NT_PRSTATUS && note->n_descsz > REGISTERS_AT + AFTER)
        add_registers(target, contents + REGISTERS_AT, note->n_descsz - REGISTERS_AT - AFTER);
    if (note->n_type == NT_PRFPREG || note->n_type == NT_X86_XSTATE || note->n_type == NT_ARM_SVE)
        add_words(target, contents, note->n_descsz);
}

// Reads the notes of a segment. Their memory is kept, because names point into it.
static void read_notes(struct target *target, const Elf64_Phdr *entry)
{
    if (entry->p_filesz == 0 || entry->p_filesz > NOTE_BYTES_MOST)
        return;
    char *text = take_memory(NULL, entry->p_filesz);
    if (!read_at(target, entry->p_offset, text, entry->p_filesz)) {
        free(text);
        return;
    }
    size_t at = 0;
    while (at + sizeof(Elf64_Nhdr) <= entry->p_filesz) {
        Elf64_Nhdr note;
        memcpy(&note, text + at, sizeof note);
        size_t name = at + sizeof note;
        size_t contents = name + (((size_t)note.n_namesz + 3) & ~(size_t)3);
        size_t end = contents + (((size_t)note.n_descsz + 3) & ~(size_t)3);
        if (end > entry->p_filesz || note.n_namesz < 5)
            return;
        if (memcmp(text + name, "CORE", 5) == 0 || memcmp(text + name, "LINUX", 5) == 0)
            read_note(target, &note, text + contents);
        at = end;
    }
}

// Marks a mapping as code. The list of files has no access rights; segments have them, also those
// whose memory was not written.
static void mark_code(struct target *target, uint64_t start)
{
    const struct mapping *mapping = mapping_of(target, start);
    if (mapping)
        target->mappings[mapping - target->mappings].executable = true;
}

void open_core(struct target *target, const char *path)
{
    struct stat status;
    target->residence = -1;
    target->page_bytes = 4096;
    target->file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (target->file < 0 || fstat(target->file, &status) != 0)
        fail("%s: %s", path,
             errno == ENOENT ? "no such file, and no process has this number" : strerror(errno));
    if (!S_ISREG(status.st_mode))
        fail("%s: not a regular file, so not a core file", path);
    Elf64_Ehdr header;
    if (!read_at(target, 0, &header, sizeof header))
        fail("%s: too short for a core file", path);
    check_header(path, &header);
    size_t count = header_count(target, &header);
    uint64_t file_bytes = (uint64_t)status.st_size;
    if (count > file_bytes / sizeof(Elf64_Phdr))
        fail("%s: truncated before the end of its program headers", path);
    target->steps =
        STEPS_LEAST +
        (file_bytes < INT64_MAX / STEPS_OF_BYTE ? file_bytes * STEPS_OF_BYTE : INT64_MAX);
    Elf64_Phdr *entries = take_memory(NULL, (count + 1) * sizeof *entries);
    if (!read_at(target, header.e_phoff, entries, count * sizeof *entries))
        fail("%s: truncated before the end of its program headers", path);
    check_places(path, entries, count);
    target->segments = take_memory(NULL, (count + 1) * sizeof *target->segments);
    target->unwritten = take_memory(NULL, (count + 1) * sizeof *target->unwritten);
    for (size_t i = 0; i < count; i++) {
        if (entries[i].p_type == PT_LOAD)
            add_segment(target, &entries[i], file_bytes);
        else if (entries[i].p_type == PT_NOTE)
            read_notes(target, &entries[i]);
    }
    for (size_t i = 0; i < count; i++)
        if (entries[i].p_type == PT_LOAD && (entries[i].p_flags & PF_X))
            mark_code(target, entries[i].p_vaddr);
    free(entries);
    sort(target->segments, target->segment_count, sizeof *target->segments, by_start);
}
