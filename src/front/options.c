/* Parsing options: see options.h. The parser uses no memory, no locale and no errno. */
#include "front/options.h"

#include "base/bits.h"
#include "base/check.h"
#include "base/text.h"
#include "os/process.h"
#include "watch/watch.h"

#include <errno.h>
#include <string.h>

/* Upper case is read as lower case and - as _, since people write both. */
static char options_fold(char letter)
{
    if (letter >= 'A' && letter <= 'Z')
        return (char)(letter - 'A' + 'a');
    return letter == '-' ? '_' : letter;
}

static bool options_text_is(struct option_text text, const char *word)
{
    size_t i = 0;
    while (i < text.length && word[i] != '\0' && word[i] == options_fold(text.start[i]))
        i++;
    return i == text.length && word[i] == '\0';
}

/* Parses a number, which has only digits. */
static bool options_parse_number(struct option_text text, uint64_t *value)
{
    uint64_t number = 0;
    for (size_t i = 0; i < text.length; i++) {
        char digit = text.start[i];
        if (digit < '0' || digit > '9' || __builtin_mul_overflow(number, 10u, &number) ||
            __builtin_add_overflow(number, (uint64_t)(digit - '0'), &number))
            return false;
    }
    *value = number;
    return text.length > 0;
}

/* The functions below parse the value of one option and store it at `to`: a field of struct
 * options, or the whole structure. */

/* Parses a number of bytes, with K, M or G for powers of 1024. Ki and KiB are accepted; KB is not,
 * since it may also be 1000 bytes. */
static bool options_parse_bytes(struct option_text text, void *to)
{
    size_t *value = to;
    struct option_text digits = text;
    for (size_t i = 0; i < text.length; i++)
        if (text.start[i] < '0' || text.start[i] > '9') {
            digits.length = i;
            break;
        }
    struct option_text unit = {text.start + digits.length, text.length - digits.length};
    if (unit.length == 2 || unit.length == 3) { /* "i" or "iB" follows the letter */
        struct option_text rest = {unit.start + 1, unit.length - 1};
        if (options_text_is(rest, "i") || options_text_is(rest, "ib"))
            unit.length = 1;
    }
    static const char *const units[] = {"", "k", "m", "g"};
    unsigned power = 0;
    while (power < countof(units) && !options_text_is(unit, units[power]))
        power++;
    unsigned shift = 10 * power;
    uint64_t number;
    if (power == countof(units) || !options_parse_number(digits, &number) ||
        number > (uint64_t)PTRDIFF_MAX >> shift)
        return false;
    *value = (size_t)number << shift;
    return true;
}

/* Parses a switch: 1, on, true or yes; 0, off, false or no. */
static bool options_parse_switch(struct option_text text, void *to)
{
    static const char words[][6] = {"0", "off", "false", "no", "1", "on", "true", "yes"};
    for (size_t i = 0; i < countof(words); i++)
        if (options_text_is(text, words[i])) {
            *(bool *)to = i >= countof(words) / 2;
            return true;
        }
    return false;
}

static bool options_parse_decay(struct option_text value, void *to)
{
    uint64_t decay;
    if (!options_parse_number(value, &decay) || decay > UINT32_MAX)
        return false;
    *(uint64_t *)to = decay;
    return true;
}

/* Parses a limit: a number of bytes, or "cgroup" for the limit of the control group, which
 * memory_pressure.h looks up. */
static bool options_parse_limit(struct option_text value, size_t *bytes, bool *of_group)
{
    bool group = options_text_is(value, "cgroup");
    if (!group && !options_parse_bytes(value, bytes))
        return false;
    if (group)
        *bytes = 0;
    *of_group = group;
    return true;
}

static bool options_parse_soft_limit(struct option_text value, void *to)
{
    struct options *options = to;
    return options_parse_limit(value, &options->pages.soft_limit_bytes, &options->soft_of_group);
}

static bool options_parse_hard_limit(struct option_text value, void *to)
{
    struct options *options = to;
    return options_parse_limit(value, &options->pages.hard_limit_bytes, &options->hard_of_group);
}

const char *options_huge_pages_word(enum huge_pages huge_pages)
{
    return huge_pages == HUGE_PAGES_AUTO ? "auto" : huge_pages == HUGE_PAGES_ON ? "on" : "off";
}

static bool options_parse_huge_pages(struct option_text value, void *to)
{
    bool on;
    bool is_auto = options_text_is(value, "auto");
    if (!is_auto && !options_parse_switch(value, &on))
        return false;
    *(enum huge_pages *)to = is_auto ? HUGE_PAGES_AUTO : on ? HUGE_PAGES_ON : HUGE_PAGES_OFF;
    return true;
}

/* Parses an interval in blocks, or a switch, which turns guarding on with the default interval. */
static bool options_parse_guard(struct option_text value, void *to)
{
    uint64_t interval;
    bool on;
    if (options_parse_number(value, &interval)) {
        if (interval > UINT32_MAX)
            return false;
    } else if (options_parse_switch(value, &on)) {
        interval = on ? GUARD_DEFAULT_INTERVAL : 0;
    } else {
        return false;
    }
    *(uint32_t *)to = (uint32_t)interval;
    return true;
}

/* Parses an interval in bytes, or a switch, which turns the profiler on with the default
 * interval. */
static bool options_parse_profile(struct option_text value, void *to)
{
    bool on;
    if (!options_text_is(value, "1") && options_parse_bytes(value, to))
        return true;
    if (!options_parse_switch(value, &on))
        return false;
    *(size_t *)to = on ? PROFILE_DEFAULT_INTERVAL : 0;
    return true;
}

/* Stores an absolute path of less than `path_max` bytes. */
static bool options_parse_path(struct option_text value, struct option_text *to, size_t path_max)
{
    if (value.length == 0 || value.length >= path_max || value.start[0] != '/')
        return false;
    *to = value;
    return true;
}

/* Parses "report" or "abort"; hardened builds refuse "report". */
static bool options_parse_on_error(struct option_text value, void *to)
{
    bool goes_on = options_text_is(value, "report");
    if (!goes_on && !options_text_is(value, "abort"))
        return false;
    if (goes_on && config_hardened)
        return false;
    *(bool *)to = goes_on;
    return true;
}

/* Opens the file of reports. A file that cannot be opened is reported here: its value is not bad.
 */
static bool options_parse_report_file(struct option_text value, void *to)
{
    (void)to;
    int error = os_report_to(value.start, value.length);
    if (error == -EINVAL)
        return false;
    if (error != 0) {
        char path[REPORT_PATH_BYTES] = "";
        memcpy(path, value.start, value.length);
        report("cannot open report file %s: %s", path, text_of_error(-error));
    }
    return true;
}

#define AT(field) offsetof(struct options, field)

#define FORM_BYTES "bytes, or a number with K, M or G"
#define FORM_ON_ERROR                                                                              \
    (config_hardened ? "abort (hardened builds refuse report)" : "abort or report")

static const struct key {
    const char *name;
    bool (*parse)(struct option_text value, void *to); /* NULL: options_parse_path */
    const char *form;                                  /* right form of a value, for warnings */
    uint16_t at;                                       /* offset of `to` in struct options */
    uint16_t path_max;                                 /* of a path, which has no form */
} keys[] = {
    {"decay_ms", options_parse_decay, "milliseconds, 0 to 4294967295", AT(pages.decay_ms), 0},
    {"dirty_cap", options_parse_bytes, FORM_BYTES, AT(pages.dirty_cap_bytes), 0},
    {"soft_limit", options_parse_soft_limit, FORM_BYTES ", or cgroup", 0, 0},
    {"hard_limit", options_parse_hard_limit, FORM_BYTES ", or cgroup", 0, 0},
    {"huge_pages", options_parse_huge_pages, "auto, on or off", AT(pages.huge_pages), 0},
    {"guard", options_parse_guard, "a number of blocks up to 4294967295, on or off", AT(guard), 0},
    {"verbose", options_parse_switch, "on or off", AT(verbose), 0},
    {"on_error", options_parse_on_error, FORM_ON_ERROR, AT(goes_on), 0},
    {"report_file", options_parse_report_file, NULL, 0, REPORT_PATH_BYTES},
    {"profile", options_parse_profile, FORM_BYTES ", or on or off", AT(profile_bytes), 0},
    {"profile_growth", options_parse_bytes, FORM_BYTES, AT(profile_growth_bytes), 0},
    {"profile_file", NULL, NULL, AT(profile_file), PROFILE_FILE_MAX},
    {"trace", NULL, NULL, AT(trace), TRACE_PATH_MAX},
    {"trace_limit", options_parse_bytes, FORM_BYTES, AT(trace_limit_bytes), 0},
    {"background", options_parse_switch, "on or off", AT(background), 0},
    {"control", NULL, NULL, AT(control), CONTROL_PATH_MAX + 1},
    {"watch_root", NULL, NULL, AT(watch_root), MEMORY_PRESSURE_ROOT_MAX},
};

/* Parses the value of a key. */
static bool options_parse_value(struct options *options, const struct key *key,
                                struct option_text value)
{
    void *to = (char *)options + key->at;
    return key->parse ? key->parse(value, to) : options_parse_path(value, to, key->path_max);
}

enum { QUOTED_BYTES = 64, NAMES_BYTES = 256 };

/* Copies a part of a text for a warning, cut if it is long. */
static void options_copy_text(char *copy, struct option_text text)
{
    size_t length = smaller_of(text.length, QUOTED_BYTES - 1);
    for (size_t i = 0; i < length; i++)
        copy[i] = text.start[i];
    copy[length] = '\0';
}

/* Warns about an item whose key is not known, and names all keys. */
static void options_warn_unknown(struct option_text item, const char *source)
{
    char copy[QUOTED_BYTES];
    char names[NAMES_BYTES];
    size_t length = 0;
    options_copy_text(copy, item);
    for (size_t i = 0; i < countof(keys); i++)
        length += format_text(names + length, sizeof names - length, i == 0 ? "%s" : ", %s",
                              keys[i].name);
    report("unknown option \"%s\" in %s, ignored: the options are %s", copy, source, names);
}

/* Warns about a bad value. Of a limit the warning also says which one holds, since a process that
 * has no limit against its operator's intent is noticed too late. */
static void options_warn_value(const struct options *options, const struct key *key,
                               struct option_text item, const char *source)
{
    char copy[QUOTED_BYTES];
    options_copy_text(copy, item);
    bool is_soft = key->parse == options_parse_soft_limit;
    if (key->form == NULL) {
        report("bad value of option \"%s\" in %s, ignored: write an absolute path of less than %u "
               "bytes",
               copy, source, key->path_max);
    } else if (!is_soft && key->parse != options_parse_hard_limit) {
        report("bad value of option \"%s\" in %s, ignored: write %s", copy, source, key->form);
    } else {
        size_t bytes = is_soft ? options->pages.soft_limit_bytes : options->pages.hard_limit_bytes;
        bool is_set = bytes != 0 || (is_soft ? options->soft_of_group : options->hard_of_group);
        report("bad value of option \"%s\" in %s, ignored, so %s: write %s", copy, source,
               is_set ? "the earlier limit holds" : "there is no limit", key->form);
    }
}

/* Removes the spaces around a text. */
static struct option_text options_trim(struct option_text text)
{
    while (text.length > 0 && text.start[0] == ' ')
        text = (struct option_text){text.start + 1, text.length - 1};
    while (text.length > 0 && text.start[text.length - 1] == ' ')
        text.length--;
    return text;
}

/* Applies one item, "key:value". "key=value", the form of other allocators, is accepted. */
static void options_parse_item(struct options *options, struct option_text item, const char *source)
{
    size_t colon = 0;
    while (colon < item.length && item.start[colon] != ':' && item.start[colon] != '=')
        colon++;
    struct option_text key = options_trim((struct option_text){item.start, colon});
    struct option_text value = {item.start + smaller_of(colon + 1, item.length), 0};
    value.length = (size_t)(item.start + item.length - value.start);
    for (size_t i = 0; i < countof(keys); i++)
        if (options_text_is(key, keys[i].name)) {
            if (!options_parse_value(options, &keys[i], options_trim(value)))
                options_warn_value(options, &keys[i], item, source);
            return;
        }
    options_warn_unknown(item, source);
}

void options_parse(struct options *options, const char *text, const char *source)
{
    while (*text != '\0') {
        struct option_text item = {text, 0};
        while (text[item.length] != '\0' && text[item.length] != ',')
            item.length++;
        text += item.length;
        item = options_trim(item);
        if (item.length > 0)
            options_parse_item(options, item, source);
        text += *text == ',';
    }
}

bool options_set(struct options *options, const char *key, const char *value)
{
    struct option_text name = {key, text_length(key)};
    struct option_text text = {value, text_length(value)};
    for (size_t i = 0; i < countof(keys); i++)
        if (options_text_is(name, keys[i].name))
            return options_parse_value(options, &keys[i], text);
    return false;
}

void options_report(const struct options *options, const char *who)
{
    report("%soptions: "
           "decay_ms:%zu,dirty_cap:%zu,soft_limit:%zu,hard_limit:%zu,huge_pages:%s,guard:%u,"
           "profile:%zu,background:%s,verbose:%u,on_error:%s",
           who, (size_t)options->pages.decay_ms, options->pages.dirty_cap_bytes,
           options->pages.soft_limit_bytes, options->pages.hard_limit_bytes,
           options_huge_pages_word(options->pages.huge_pages), options->guard,
           options->profile_bytes, options->background ? "on" : "off", options->verbose,
           options->goes_on ? "report" : "abort");
}
