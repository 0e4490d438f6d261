/* Reading a file of sites: see site_list.h. Words are parted by spaces, lines by line feeds. */
#include "watch/site_list.h"

#include "base/check.h"

#include <string.h>

enum { REPORTED_MOST = 8, QUOTED_BYTES = 48 };

struct word {
    const char *start;
    size_t length;
};

struct reader {
    struct site_list *list;
    const char *path;
    const char *at, *end; /* of the line */
    unsigned line;
};

/* The line is left out. */
static bool refuse_line(const struct reader *reader, const char *why, struct word word)
{
    char quoted[QUOTED_BYTES];
    size_t length = word.length < QUOTED_BYTES ? word.length : QUOTED_BYTES - 1;
    memcpy(quoted, word.start, length);
    quoted[length] = '\0';
    for (size_t i = 0; i < length; i++)
        if (quoted[i] < ' ' || quoted[i] > '~')
            quoted[i] = '?';
    unsigned refused = reader->list->refused++;
    if (refused < REPORTED_MOST)
        report("sites: %s:%u: %s \"%s\", line ignored", reader->path, reader->line, why, quoted);
    else if (refused == REPORTED_MOST)
        report("sites: %s:%u: more lines are ignored", reader->path, reader->line);
    return false;
}

/* Of no bytes at the end of the line. */
static struct word next_word(struct reader *reader)
{
    while (reader->at < reader->end && (*reader->at == ' ' || *reader->at == '\t'))
        reader->at++;
    struct word word = {reader->at, 0};
    while (reader->at < reader->end && *reader->at != ' ' && *reader->at != '\t')
        reader->at++;
    word.length = (size_t)(reader->at - word.start);
    return word;
}

static bool word_is(struct word word, const char *text)
{
    size_t i = 0;
    while (i < word.length && text[i] != '\0' && text[i] == word.start[i])
        i++;
    return i == word.length && text[i] == '\0';
}

static unsigned digit_of(char c)
{
    return c >= '0' && c <= '9'   ? (unsigned)(c - '0')
           : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
           : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                  : 16u;
}

static bool number_of(struct word word, unsigned base, uint64_t *value)
{
    uint64_t number = 0;
    for (size_t i = 0; i < word.length; i++) {
        unsigned digit = digit_of(word.start[i]);
        if (digit >= base || __builtin_mul_overflow(number, (uint64_t)base, &number) ||
            __builtin_add_overflow(number, (uint64_t)digit, &number))
            return false;
    }
    *value = number;
    return word.length > 0;
}

/* A build id, or "-". */
static bool id_of(struct word word, struct site_module *module)
{
    module->id_bytes = 0;
    if (word_is(word, "-"))
        return true;
    if (word.length == 0 || word.length % 2 != 0 || word.length > 2 * (size_t)SITE_ID_MOST)
        return false;
    for (size_t i = 0; i < word.length; i += 2) {
        unsigned high = digit_of(word.start[i]);
        unsigned low = digit_of(word.start[i + 1]);
        if (high > 15 || low > 15)
            return false;
        module->id[i / 2] = (unsigned char)(high << 4 | low);
    }
    module->id_bytes = (uint8_t)(word.length / 2);
    return true;
}

static unsigned module_numbered(const struct site_list *list, uint64_t number)
{
    unsigned i = 0;
    while (i < list->modules_count && list->module_numbers[i] != number)
        i++;
    return i;
}

/* module NUMBER BUILD-ID PATH */
static bool read_module(struct reader *reader)
{
    struct site_list *list = reader->list;
    struct word number = next_word(reader);
    struct word id = next_word(reader);
    struct word path = next_word(reader);
    path.length = (size_t)(reader->end - path.start); /* it may have spaces */
    uint64_t value;
    if (list->modules_count == SITE_MODULES_MOST)
        return refuse_line(reader, "one module too many", number);
    if (!number_of(number, 10, &value) || value > UINT32_MAX)
        return refuse_line(reader, "no number of a module:", number);
    if (module_numbered(list, value) != list->modules_count)
        return refuse_line(reader, "a second module has the number", number);
    struct site_module *module = &list->modules[list->modules_count];
    if (!id_of(id, module))
        return refuse_line(reader, "no build id, nor -:", id);
    for (size_t i = path.length; i-- > 0;)
        if (path.start[i] == '/') {
            path.start += i + 1;
            path.length -= i + 1;
            break;
        }
    if (path.length == 0 || path.length >= sizeof module->name)
        return refuse_line(reader, "no name of a file, or a very long one:", path);
    memcpy(module->name, path.start, path.length);
    module->name[path.length] = '\0';
    list->module_numbers[list->modules_count++] = (uint32_t)value;
    return true;
}

/* MODULE+0xOFFSET */
static bool read_frame(struct reader *reader, struct word word, struct site_frame *frame)
{
    struct word number = {word.start, 0};
    while (number.length < word.length && word.start[number.length] != '+')
        number.length++;
    size_t skipped = number.length + 3; /* and "+0x" */
    struct word offset = {word.start, 0};
    if (skipped < word.length && offset.start[skipped - 2] == '0' &&
        offset.start[skipped - 1] == 'x')
        offset = (struct word){word.start + skipped, word.length - skipped};
    uint64_t value;
    if (!number_of(number, 10, &value) || !number_of(offset, 16, &frame->offset))
        return refuse_line(reader, "no frame, which is MODULE+0xOFFSET:", word);
    frame->module = module_numbered(reader->list, value);
    if (frame->module == reader->list->modules_count)
        return refuse_line(reader, "a module that no line before has:", word);
    return true;
}

/* The number of the group of this name, perhaps a new one; SITE_GROUPS_MOST where there is no room,
 * or no name. */
static unsigned group_named(struct site_list *list, struct word name)
{
    unsigned group = 0;
    if (name.length == 0 || name.length >= SITE_NAME_MOST)
        return SITE_GROUPS_MOST;
    while (group < list->groups_count && !word_is(name, list->groups[group]))
        group++;
    if (group == list->groups_count && group < SITE_GROUPS_MOST) {
        memcpy(list->groups[group], name.start, name.length);
        list->groups[group][name.length] = '\0';
        list->groups_count++;
    }
    return group;
}

static void link_site(struct site_list *list, unsigned number)
{
    uint64_t offset = list->frames[list->sites[number].first_frame].offset;
    uintptr_t place = offset & SITE_PAGE_MASK;
    list->places[place / 64] |= (uint64_t)1 << place % 64;
    uint16_t *link = &list->buckets[site_bucket((uintptr_t)offset)];
    while (*link != 0)
        link = &list->sites[*link - 1].next;
    *link = (uint16_t)(number + 1);
}

/* segregate GROUP FRAME... */
static bool read_segregate(struct reader *reader)
{
    struct site_list *list = reader->list;
    struct word name = next_word(reader);
    struct site site = {.first_frame = list->frames_count};
    if (list->sites_count == SITES_MOST)
        return refuse_line(reader, "one site too many, of group", name);
    for (struct word word = next_word(reader); word.length > 0; word = next_word(reader)) {
        unsigned number = list->frames_count + site.depth;
        if (site.depth == SITE_FRAMES_MOST || number == SITE_ALL_FRAMES)
            return refuse_line(reader, "one frame too many:", word);
        if (!read_frame(reader, word, &list->frames[number]))
            return false;
        site.depth++;
    }
    if (site.depth == 0)
        return refuse_line(reader, "no frames of a site of group", name);
    unsigned group = group_named(list, name);
    if (group == SITE_GROUPS_MOST)
        return refuse_line(reader, "one group too many, or a very long name:", name);
    site.group = (uint8_t)group;
    list->frames_count += site.depth;
    if (site.depth > list->depth)
        list->depth = site.depth;
    list->sites[list->sites_count] = site;
    link_site(list, list->sites_count++);
    return true;
}

static void read_line(struct reader *reader)
{
    struct word first = next_word(reader);
    if (first.length == 0 || first.start[0] == '#')
        return;
    if (word_is(first, "module"))
        (void)read_module(reader);
    else if (word_is(first, "segregate"))
        (void)read_segregate(reader);
    else
        (void)refuse_line(reader, "unknown word", first);
}

static bool read_head(struct reader *reader)
{
    struct word kind = next_word(reader);
    struct word version = next_word(reader);
    if (!word_is(kind, "cairn-sites")) {
        report("sites: %s is no file of sites: it does not begin with \"cairn-sites\"",
               reader->path);
        return false;
    }
    if (word_is(version, "1"))
        return true;
    report("sites: %s is of another version than the one that is known", reader->path);
    return false;
}

bool site_list_read(struct site_list *list, const char *text, size_t length, const char *path)
{
    struct reader reader = {.list = list, .path = path, .line = 0};
    for (const char *line = text, *end = text + length; line < end; line = reader.end + 1) {
        reader.at = line;
        reader.end = line;
        while (reader.end < end && *reader.end != '\n')
            reader.end++;
        if (reader.line++ == 0 && !read_head(&reader))
            return false;
        if (reader.line > 1)
            read_line(&reader);
    }
    if (length == 0) {
        reader.at = reader.end = text;
        return read_head(&reader);
    }
    return true;
}
