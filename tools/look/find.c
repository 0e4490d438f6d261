// Finds the Cairn library in a target, and its description (src/base/layout.h). The library may be
// shared or part of the program, with symbols or without.
//
// The ELF header of a file is at the start of the file's first mapping, and leads to the note of
// the library. A core file may lack that page. Then only the place of the note is taken from the
// file on this machine, or the pages in the core file are searched for the description.
#include "look.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEADERS_MOST = 64,
    NOTES_BYTES_MOST = 64 << 10,
    SEARCH_BYTES_MOST = 64 << 20,
    CLASSES_MOST = 256
};

// Source of an ELF file's headers: the target's memory, or the file itself.
struct image {
    struct target *target;
    int file;       // -1: the target's memory
    uint64_t start; // address of the mapping of its start
};

struct found { // remembered for the error message
    uint32_t other_version;
    const char *path;
};

uint64_t address_of(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

uint64_t field(const void *bytes, struct layout_field place)
{
    uint64_t value = 0; // little-endian: the low bytes are first
    memcpy(&value, (const char *)bytes + place.offset, place.bytes < 8 ? place.bytes : 8);
    return value;
}

bool read_field(struct target *target, uint64_t address, struct layout_field place, uint64_t *value)
{
    *value = 0;
    return place.bytes <= 8 && read_small(target, address + place.offset, value, place.bytes);
}

static bool read_image(const struct image *image, uint64_t offset, void *buffer, size_t bytes)
{
    if (image->file < 0)
        return read_small(image->target, image->start + offset, buffer, bytes);
    return pread(image->file, buffer, bytes, (off_t)offset) == (ssize_t)bytes;
}

// Finds the place and the length of the contents of a note. Returns: false when there is none.
static bool find_note(const struct image *image, const Elf64_Phdr *entry, uint32_t type,
                      const char *wanted, uint64_t *place, uint64_t *bytes)
{
    char text[32];
    size_t name_bytes = strlen(wanted) + 1;
    if (entry->p_filesz > NOTES_BYTES_MOST)
        return false;
    for (uint64_t at = 0; at + sizeof(Elf64_Nhdr) < entry->p_filesz;) {
        Elf64_Nhdr note;
        spend(image->target, STEPS_OF_WORD);
        if (!read_image(image, entry->p_offset + at, &note, sizeof note))
            return false;
        uint64_t align = entry->p_align == 8 ? 7 : 3;
        uint64_t name = at + sizeof note;
        uint64_t contents = name + ((note.n_namesz + align) & ~align);
        *place = entry->p_offset + contents;
        *bytes = note.n_descsz;
        if (note.n_type == type && note.n_namesz == name_bytes && name_bytes <= sizeof text &&
            read_image(image, entry->p_offset + name, text, name_bytes) &&
            memcmp(text, wanted, name_bytes) == 0)
            return true;
        at = contents + ((note.n_descsz + align) & ~align);
    }
    return false;
}

// Returns: the address of the description that a note segment leads to; 0 when there is none.
static uint64_t look_in_notes(const struct image *image, const Elf64_Phdr *entry, uint64_t bias)
{
    uint64_t place, bytes;
    int64_t distance;
    if (!find_note(image, entry, LAYOUT_NOTE, LAYOUT_NOTE_NAME, &place, &bytes) || bytes != 8 ||
        !read_image(image, place, &distance, sizeof distance))
        return 0;
    return bias + entry->p_vaddr + (place - entry->p_offset) + (uint64_t)distance;
}

// Reads the program headers. Returns: their number; 0 when no ELF file begins there.
static size_t read_heads(const struct image *image, Elf64_Phdr entries[HEADERS_MOST])
{
    Elf64_Ehdr header;
    spend(image->target, STEPS_OF_WORD);
    if (!read_image(image, 0, &header, sizeof header) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        header.e_phentsize != sizeof *entries)
        return 0;
    size_t count = header.e_phnum < HEADERS_MOST ? header.e_phnum : HEADERS_MOST;
    return read_image(image, header.e_phoff, entries, count * sizeof *entries) ? count : 0;
}

static uint64_t look_in_image(const struct image *image)
{
    Elf64_Phdr entries[HEADERS_MOST];
    size_t count = read_heads(image, entries);
    uint64_t bias = image->start;
    for (size_t i = 0; i < count; i++)
        if (entries[i].p_type == PT_LOAD && entries[i].p_offset == 0 && entries[i].p_filesz > 0)
            bias -= entries[i].p_vaddr;
    for (size_t i = 0; i < count; i++)
        if (entries[i].p_type == PT_NOTE) {
            uint64_t at = look_in_notes(image, &entries[i], bias);
            if (at != 0)
                return at;
        }
    return 0;
}

static size_t read_image_id(const struct image *image, unsigned char *id)
{
    Elf64_Phdr entries[HEADERS_MOST];
    size_t count = read_heads(image, entries);
    for (size_t i = 0; i < count; i++) {
        uint64_t place, bytes;
        if (entries[i].p_type == PT_NOTE &&
            find_note(image, &entries[i], NT_GNU_BUILD_ID, ELF_NOTE_GNU, &place, &bytes) &&
            bytes <= BUILD_ID_MAX && read_image(image, place, id, bytes))
            return bytes;
    }
    return 0;
}

size_t read_build_id(struct target *target, const struct mapping *mapping, unsigned char *id)
{
    const struct mapping *first = mapping;
    while (first > target->mappings && first->file_offset != 0 &&
           strcmp(first[-1].path, mapping->path) == 0) {
        spend(target, STEPS_OF_WORD);
        first--;
    }
    struct image image = {target, -1, first->start};
    return first->file_offset == 0 ? read_image_id(&image, id) : 0;
}

// Reads a part of the description. Returns: false when its length is not the expected one.
static bool read_part(struct target *target, const void *from, uint32_t bytes, void *part,
                      size_t expected)
{
    return bytes == expected && read_large(target, address_of(from), part, expected);
}

bool class_fits(uint64_t size_bytes, uint64_t pages, uint64_t capacity)
{
    enum { SIZE_MOST = 1 << 20, CAPACITY_MOST = 255 };
    return size_bytes > 0 && size_bytes <= SIZE_MOST && capacity <= CAPACITY_MOST &&
           pages <= SLAB_PAGES_MAX && size_bytes * capacity <= pages * SLAB_PAGE_BYTES;
}

static bool read_classes(struct target *target, struct library *library)
{
    const struct heap_layout *heap = &library->heap;
    unsigned char bytes[64];
    if (heap->class_count > CLASSES_MOST || heap->size_class_bytes > sizeof bytes)
        return false;
    for (uint32_t i = 0; i < heap->class_count; i++) {
        uint64_t at = address_of(heap->size_classes) + (uint64_t)i * heap->size_class_bytes;
        if (!read_small(target, at, bytes, heap->size_class_bytes)) {
            memset(library->class_bytes, 0, sizeof library->class_bytes);
            return target->core_missing > 0; // headers.c learns the classes from slabs
        }
        library->class_bytes[i] = field(bytes, heap->class_size_bytes);
        library->class_pages[i] = field(bytes, heap->class_pages);
        library->class_capacity[i] = field(bytes, heap->class_capacity);
        if (!class_fits(library->class_bytes[i], library->class_pages[i],
                        library->class_capacity[i]))
            return false;
    }
    return true;
}

static bool is_inside(struct layout_field place, uint32_t bytes)
{
    return place.bytes > 0 && place.bytes <= 64 && (uint32_t)place.offset + place.bytes <= bytes;
}

// Returns: whether all fields that are copied out of larger reads are inside these reads.
static bool fields_are_inside(const struct library *library)
{
    const struct page_layout *page = &library->page;
    const struct heap_layout *heap = &library->heap;
    const struct layout_field of_span[] = {
        page->span_owner,    page->span_base,        page->span_fresh_slot, page->span_size_bytes,
        page->span_pages,    page->span_dirty_pages, page->span_tag,        page->span_side_units,
        page->span_capacity, page->span_next};
    const struct layout_field of_class[] = {heap->class_size_bytes, heap->class_pages,
                                            heap->class_capacity};
    const struct profile_layout *profile = &library->profile;
    const struct layout_field of_site[] = {profile->site_ready, profile->site_first_frame};
    const struct layout_field of_block[] = {profile->block_address, profile->block_site,
                                            profile->block_objects};
    bool inside = true;
    for (size_t i = 0; i < sizeof of_span / sizeof *of_span; i++)
        inside &= is_inside(of_span[i], page->span_bytes);
    for (size_t i = 0; i < sizeof of_class / sizeof *of_class; i++)
        inside &= is_inside(of_class[i], heap->size_class_bytes);
    inside &= is_inside(heap->cold_use, heap->cold_area_bytes);
    for (size_t i = 0; i < sizeof of_site / sizeof *of_site; i++)
        inside &= is_inside(of_site[i], profile->site_bytes);
    for (size_t i = 0; i < sizeof of_block / sizeof *of_block; i++)
        inside &= is_inside(of_block[i], profile->block_bytes);
    return inside;
}

// Returns: whether packed slabs, if the library has them, fit the buffers of slab.c.
static bool packed_fits(const struct heap_layout *heap)
{
    enum { WORDS_MOST = 512 };
    uint64_t slots = (uint64_t)heap->packed_words * 64;
    return heap->packed_class == UINT32_MAX ||
           (heap->packed_bytes > 0 && heap->packed_words <= WORDS_MOST &&
            heap->packed_pages <= SLAB_PAGES_MAX &&
            slots * heap->packed_bytes <= (uint64_t)heap->packed_pages * SLAB_PAGE_BYTES);
}

// Returns: whether the library fits the limits of this program's tables and buffers.
static bool is_sound(const struct library *library)
{
    const struct page_layout *page = &library->page;
    const struct heap_layout *heap = &library->heap;
    const struct profile_layout *profile = &library->profile;
    return page->page_shift == 12 && page->address_bits <= 48 && page->region_shift > 24 &&
           page->region_shift < 40 && page->region_count <= 1 << 20 &&
           page->region_count % 8192 == 0 &&
           (uint64_t)page->region_count << page->region_shift <= (uint64_t)1 << 48 &&
           page->tag_slab > 0 && // so that UINT32_MAX is the number of no class
           page->span_bytes <= 256 && page->arena_bytes <= 256 && page->arena_limit <= 1 << 16 &&
           heap->kept_places <= 1024 && heap->links_at <= 64 && heap->heap_bytes <= 1 << 16 &&
           heap->cold_area_bytes <= 64 && packed_fits(heap) &&
           library->guarded.slot_count <= 1 << 16 && profile->site_count <= 1 << 20 &&
           profile->block_count <= 1 << 20 && profile->frame_count <= 1 << 24 &&
           profile->depth <= FRAMES_MOST && profile->site_bytes <= 256 &&
           profile->block_bytes <= 256 && profile->weight_shift < 32;
}

static bool load(struct target *target, uint64_t at, struct library *library, struct found *found)
{
    struct library_layout *root = &library->root;
    if (!read_large(target, at, root, sizeof *root) ||
        memcmp(root->magic, LAYOUT_MAGIC, sizeof root->magic) != 0)
        return false;
    if (root->version != LAYOUT_VERSION || root->bytes != sizeof *root) {
        found->other_version = root->version;
        return false;
    }
    if (!read_part(target, root->page, root->page_bytes, &library->page, sizeof library->page) ||
        !read_part(target, root->heap, root->heap_bytes, &library->heap, sizeof library->heap) ||
        !read_part(target, root->guarded, root->guarded_bytes, &library->guarded,
                   sizeof library->guarded) ||
        !read_part(target, root->profile, root->profile_bytes, &library->profile,
                   sizeof library->profile) ||
        !is_sound(library) || !fields_are_inside(library) || !read_classes(target, library))
        return false;
    library->at = at;
    memcpy(library->version, root->library_version, sizeof root->library_version);
    // A core file that lacks it counts as a process that was not forked.
    return read_small(target, address_of(library->heap.heap_generation), &library->generation,
                      sizeof library->generation) ||
           target->core_missing > 0;
}

// Returns: the committed pages of the library plus 1. If several libraries are loaded, the largest
// serves the target.
static uint64_t weight(struct target *target, const struct library *library)
{
    uint64_t pages = 0;
    (void)read_field(target, address_of(library->page.state), library->page.state_committed_pages,
                     &pages);
    return pages + 1;
}

// Takes a description as the best when it outweighs the previous one.
static void consider(struct target *target, uint64_t at, const char *path, struct library *best,
                     struct found *found)
{
    struct library *library = take_memory(NULL, sizeof *library);
    memset(library, 0, sizeof *library);
    spend(target, at != 0 ? sizeof *library : 1);
    if (at != 0 && at != best->at && load(target, at, library, found)) {
        library->path = path;
        size_t others = best->others + (best->at != 0);
        if (best->at == 0 || weight(target, library) > weight(target, best))
            *best = *library;
        best->others = others;
    }
    free(library);
}

// Opens a file that the target names. Returns: -1 for none, and for what is no regular file:
// opening a device may act on it.
static int open_image(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode)
               ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
               : -1;
}

static void look_in_mappings(struct target *target, struct library *best, struct found *found)
{
    for (size_t i = 0; i < target->mapping_count; i++) {
        const struct mapping *mapping = &target->mappings[i];
        if (mapping->file_offset != 0 || !mapping->readable || mapping->path[0] != '/')
            continue;
        struct image image = {target, -1, mapping->start};
        uint64_t at = look_in_image(&image);
        unsigned char byte;
        if (at == 0 && target->pid == 0 && !read_small(target, mapping->start, &byte, 1)) {
            image.file = open_image(mapping->path);
            if (image.file >= 0) {
                at = look_in_image(&image);
                (void)close(image.file);
            }
        }
        consider(target, at, mapping->path, best, found);
    }
}

static void search_segment(struct target *target, const struct segment *segment,
                           struct library *best, struct found *found)
{
    enum { STEP = 64 << 10 };
    static unsigned char piece[STEP];
    for (uint64_t at = 0; at < segment->bytes && at < SEARCH_BYTES_MOST; at += STEP) {
        size_t bytes = segment->bytes - at < STEP ? (size_t)(segment->bytes - at) : STEP;
        if (!read_large(target, segment->start + at, piece, bytes))
            return;
        for (size_t i = 0; i + sizeof LAYOUT_MAGIC <= bytes; i += 8)
            if (memcmp(piece + i, LAYOUT_MAGIC, sizeof LAYOUT_MAGIC) == 0)
                consider(target, segment->start + at + i, "", best, found);
    }
}

// Takes the description of a core file that lacks it from the library's file. If the core file has
// the library's first page, the file must have its build id.
static void look_in_files(struct target *target, struct library *best, struct found *found)
{
    for (size_t i = 0; i < target->mapping_count && best->at == 0; i++) {
        const struct mapping *mapping = &target->mappings[i];
        unsigned char theirs[BUILD_ID_MAX], ours[BUILD_ID_MAX];
        if (mapping->file_offset != 0 || mapping->path[0] != '/')
            continue;
        struct image image = {target, open_image(mapping->path), mapping->start};
        if (image.file < 0)
            continue;
        uint64_t at = look_in_image(&image);
        size_t known = read_build_id(target, mapping, theirs);
        size_t there = read_image_id(&image, ours);
        (void)close(image.file);
        if (at == 0 || (known != 0 && (known != there || memcmp(theirs, ours, known) != 0)) ||
            !take_constants(target, mapping))
            continue;
        consider(target, at, mapping->path, best, found);
        best->is_from_file = best->at != 0;
    }
}

void find_library(struct target *target, struct library *library)
{
    struct found found = {0, NULL};
    look_in_mappings(target, library, &found);
    for (size_t i = 0; library->at == 0 && i < target->segment_count; i++) {
        struct image image = {target, -1, target->segments[i].start};
        consider(target, look_in_image(&image), "", library, &found);
    }
    for (size_t i = 0; library->at == 0 && i < target->segment_count; i++)
        search_segment(target, &target->segments[i], library, &found);
    if (library->at == 0 && target->core_missing > 0)
        look_in_files(target, library, &found);
    if (library->at != 0)
        return;
    check_alive(target);
    if (found.other_version != 0)
        fail("%s: its Cairn library has layout version %u, this tool reads version %u: use the "
             "tools of that library",
             target->name, found.other_version, LAYOUT_VERSION);
    if (target->core_missing > 0)
        fail("%s: no Cairn library found in the truncated core file: %llu of %llu bytes are "
             "missing",
             target->name, (unsigned long long)target->core_missing,
             (unsigned long long)target->core_bytes);
    const char *other = other_malloc(target);
    fail("%s: no Cairn library found: its memory belongs to another allocator%s%s", target->name,
         other ? ": " : "", other ? other : "");
}
