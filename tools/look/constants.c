// Takes the constants of the program or library that contains Cairn from its file, for a core file
// that was truncated before these pages. Constants are the segments that are never written, and the
// memory that becomes read-only after the dynamic linker has relocated it (RELRO); it is relocated
// here in the same way.
#include "look.h"

#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADERS_MOST = 64, FILE_BYTES_MOST = 1 << 30 };

struct image {
    unsigned char *bytes;
    size_t length;
    const Elf64_Phdr *entries;
    size_t count;
    uint64_t bias;
};

static bool is_inside(const struct image *image, uint64_t offset, uint64_t bytes)
{
    return offset <= image->length && bytes <= image->length - offset;
}

static bool read_image(struct target *target, const char *path, struct image *image)
{
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return false;
    bool is_whole = fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                    status.st_size >= (off_t)sizeof(Elf64_Ehdr) &&
                    status.st_size <= FILE_BYTES_MOST;
    if (is_whole) {
        image->length = (size_t)status.st_size;
        spend(target, image->length / 1024);
        image->bytes = take_memory(NULL, image->length);
        is_whole = read(file, image->bytes, image->length) == (ssize_t)image->length;
    }
    (void)close(file);
    if (!is_whole)
        return false;
    const Elf64_Ehdr *header = (const void *)image->bytes;
    image->count = header->e_phnum;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
        header->e_phentsize != sizeof(Elf64_Phdr) || image->count > HEADERS_MOST ||
        header->e_phoff % 8 != 0 ||
        !is_inside(image, header->e_phoff, image->count * sizeof(Elf64_Phdr)))
        return false;
    image->entries = (const void *)(image->bytes + header->e_phoff);
    return true;
}

// Returns: the place in the file of an address of the file, or NULL when the file has no data for
// it.
static unsigned char *at_address(const struct image *image, uint64_t address, uint64_t bytes)
{
    for (size_t i = 0; i < image->count; i++) {
        const Elf64_Phdr *entry = &image->entries[i];
        if (entry->p_type == PT_LOAD && address >= entry->p_vaddr &&
            address - entry->p_vaddr <= entry->p_filesz &&
            bytes <= entry->p_filesz - (address - entry->p_vaddr) &&
            is_inside(image, entry->p_offset + (address - entry->p_vaddr), bytes))
            return image->bytes + entry->p_offset + (address - entry->p_vaddr);
    }
    return NULL;
}

static void relocate_word(const struct image *image, uint64_t address, const uint64_t *addend)
{
    unsigned char *place = at_address(image, address, 8);
    uint64_t value;
    if (place == NULL)
        return;
    memcpy(&value, addend ? (const void *)addend : place, sizeof value);
    value += image->bias;
    memcpy(place, &value, sizeof value);
}

static void relocate_table(const struct image *image, const unsigned char *table, uint64_t bytes)
{
    for (uint64_t at = 0; table && at + sizeof(Elf64_Rela) <= bytes; at += sizeof(Elf64_Rela)) {
        Elf64_Rela entry;
        memcpy(&entry, table + at, sizeof entry);
        uint64_t type = ELF64_R_TYPE(entry.r_info), addend = (uint64_t)entry.r_addend;
        if (type == R_X86_64_RELATIVE || type == R_AARCH64_RELATIVE)
            relocate_word(image, entry.r_offset, &addend);
    }
}

// Applies packed relocations (DT_RELR). An even word is an address; an odd word has one bit for
// each of the 63 words after it.
static void relocate_packed(const struct image *image, const unsigned char *table, uint64_t bytes)
{
    uint64_t next = 0, word;
    for (uint64_t at = 0; table && at + 8 <= bytes; at += 8) {
        memcpy(&word, table + at, sizeof word);
        if ((word & 1) == 0) {
            relocate_word(image, word, NULL);
            next = word + 8;
            continue;
        }
        for (unsigned bit = 1; bit < 64; bit++)
            if (word >> bit & 1)
                relocate_word(image, next + 8 * (bit - 1), NULL);
        next += (uint64_t)63 * 8;
    }
}

static void relocate(const struct image *image, const Elf64_Phdr *dynamic)
{
    enum { TAGS = 64 };
    uint64_t values[TAGS] = {0};
    if (!is_inside(image, dynamic->p_offset, dynamic->p_filesz))
        return;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic->p_filesz; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn entry;
        memcpy(&entry, image->bytes + dynamic->p_offset + at, sizeof entry);
        if (entry.d_tag >= 0 && entry.d_tag < TAGS)
            values[entry.d_tag] = entry.d_un.d_val;
    }
    enum { RELR_BYTES = 35, RELR = 36 }; // DT_RELRSZ and DT_RELR, which older headers lack
    relocate_table(image, at_address(image, values[DT_RELA], values[DT_RELASZ]), values[DT_RELASZ]);
    relocate_packed(image, at_address(image, values[RELR], values[RELR_BYTES]), values[RELR_BYTES]);
}

static void keep(struct target *target, const struct image *image, const Elf64_Phdr *entry)
{
    unsigned char *contents = at_address(image, entry->p_vaddr, entry->p_filesz);
    if (contents && target->constants_count < CONSTANTS_MOST)
        target->constants[target->constants_count++] =
            (struct constants){image->bias + entry->p_vaddr, entry->p_filesz, contents};
}

bool take_constants(struct target *target, const struct mapping *mapping)
{
    struct image image = {.bytes = NULL};
    bool is_there = read_image(target, mapping->path, &image);
    size_t before = target->constants_count;
    image.bias = mapping->start;
    for (size_t i = 0; i < image.count && is_there; i++)
        if (image.entries[i].p_type == PT_LOAD && image.entries[i].p_offset == 0 &&
            image.entries[i].p_filesz > 0)
            image.bias -= image.entries[i].p_vaddr;
    for (size_t i = 0; i < image.count && is_there; i++)
        if (image.entries[i].p_type == PT_DYNAMIC)
            relocate(&image, &image.entries[i]);
    for (size_t i = 0; i < image.count && is_there; i++) {
        const Elf64_Phdr *entry = &image.entries[i];
        if (entry->p_type == PT_GNU_RELRO ||
            (entry->p_type == PT_LOAD && (entry->p_flags & PF_W) == 0))
            keep(target, &image, entry);
    }
    if (target->constants_count == before)
        free(image.bytes);
    return target->constants_count > before;
}
