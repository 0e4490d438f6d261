// Describes a block by its first word. In a C++ object with virtual functions this word points into
// the table of its class. The Itanium C++ ABI (2.9.5) puts two words before that place: the offset
// to the top of the object and the address of the type's description. The second word of the
// description is the address of the class's name.
#include "marks.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 32, NAME_MOST = 256, TOP_MOST = 1 << 20 };

static bool is_of_file(const struct target *target, uint64_t address)
{
    const struct mapping *mapping = mapping_of(target, address);
    return mapping && mapping->path[0] == '/';
}

// Reads the mangled name of a class: "5Order", "N3app5OrderE".
static bool read_name(struct target *target, uint64_t address, char *name)
{
    char first;
    if (!read_small(target, address, &first, 1))
        return false;
    address += first == '*'; // the class is local to its file
    for (size_t i = 0; i < NAME_MOST; i++) {
        if (!read_small(target, address + i, name + i, 1))
            return false;
        char sign = name[i];
        if (sign == '\0')
            return i > 1;
        if (!(sign >= '0' && sign <= '9') && !(sign >= 'A' && sign <= 'Z') &&
            !(sign >= 'a' && sign <= 'z') && sign != '_' && sign != '.')
            return false;
    }
    return false;
}

static bool read_class(struct target *target, uint64_t first, char *name)
{
    uint64_t before[2], type[2];
    if (first % 8 != 0 || !is_of_file(target, first) ||
        !read_small(target, first - sizeof before, before, sizeof before) ||
        (int64_t)before[0] > 0 || (int64_t)before[0] < -TOP_MOST || before[1] % 8 != 0 ||
        !is_of_file(target, before[1]) || !read_small(target, before[1], type, sizeof type) ||
        !is_of_file(target, type[0]) || !is_of_file(target, type[1]))
        return false;
    return read_name(target, type[1], name);
}

void print_contents(struct look *look, uint64_t address, uint64_t size)
{
    unsigned char text[TEXT_BYTES];
    char name[NAME_MOST];
    uint64_t first = 0;
    size_t bytes = size < sizeof text ? (size_t)size : sizeof text;
    printf("\tbegins=x");
    if (!read_small(look->target, address, text, bytes))
        return;
    for (size_t i = 0; i < bytes; i++)
        printf("%02x", text[i]);
    if (bytes >= sizeof first)
        memcpy(&first, text, sizeof first);
    if (is_of_file(look->target, first)) {
        const struct mapping *mapping = mapping_of(look->target, first);
        printf("\tpoints_to=");
        print_clean(mapping->path);
        printf("+%#" PRIx64, first - mapping->start + mapping->file_offset);
    }
    if (read_class(look->target, first, name))
        printf("\tclass=x%s", name);
}

uint64_t kind_of(struct look *look, uint64_t address, uint64_t size)
{
    unsigned char text[8];
    uint64_t first;
    if (size < sizeof text || !read_small(look->target, address, text, sizeof text))
        return KIND_IS_OTHER;
    memcpy(&first, text, sizeof first);
    if (is_of_file(look->target, first))
        return first;
    for (size_t i = 0; i < sizeof text; i++)
        if (text[i] == '\0' && i > 3)
            break;
        else if (text[i] < 32 || text[i] >= 127)
            return KIND_IS_OTHER;
    return KIND_IS_TEXT;
}
