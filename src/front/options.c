/* Parsing options. No memory, no locale, no errno; bounds checked; see options.h. */
#include "front/options.h"

#include "base/bits.h"
#include "base/check.h"
#include "base/text.h"
#include "os/os.h"
#include "watch/watch.h"

#include <string.h>

struct text {
    const char *start;
    size_t length;
};

static bool text_is(struct text text, const char *word)
{
    size_t i = 0;
    while (i < text.length && word[i] != '\0' && word[i] == text.start[i])
        i++;
    return i == text.length && word[i] == '\0';
}

/* Digits, nothing else. */
static bool parse_number(struct text text, uint64_t *value)
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

/* A number of bytes, with K, M or G for powers of 1024. */
static bool parse_bytes(struct text text, size_t *value)
{
    static const char units[] = "KMG";
    unsigned shift = 0;
    for (unsigned i = 0; i < 3 && text.length > 0; i++)
        if (text.start[text.length - 1] == units[i])
            shift = 10 * (i + 1);
    if (shift != 0)
        text.length--;
    uint64_t number;
    if (!parse_number(text, &number) || number > (uint64_t)PTRDIFF_MAX >> shift)
        return false;
    *value = (size_t)number << shift;
    return true;
}

static bool parse_switch(struct text text, bool *value)
{
    bool on = text_is(text, "1") || text_is(text, "on") || text_is(text, "true");
    bool off = text_is(text, "0") || text_is(text, "off") || text_is(text, "false");
    if (on || off)
        *value = on;
    return on || off;
}

static bool parse_decay(struct options *options, struct text value)
{
    uint64_t decay;
    if (!parse_number(value, &decay) || decay > UINT32_MAX)
        return false;
    options->pages.decay_ms = decay;
    return true;
}

static bool parse_dirty_cap(struct options *options, struct text value)
{
    return parse_bytes(value, &options->pages.dirty_cap_bytes);
}

/* Bytes, or those of the control group, which whoever starts looks up. */
static bool parse_limit(struct text value, size_t *bytes, bool *of_group)
{
    bool group = text_is(value, "cgroup");
    if (!group && !parse_bytes(value, bytes))
        return false;
    if (group)
        *bytes = 0;
    *of_group = group;
    return true;
}

static bool parse_soft_limit(struct options *options, struct text value)
{
    return parse_limit(value, &options->pages.soft_limit_bytes, &options->soft_of_group);
}

static bool parse_hard_limit(struct options *options, struct text value)
{
    return parse_limit(value, &options->pages.hard_limit_bytes, &options->hard_of_group);
}

const char *options_huge_pages_word(enum huge_pages huge_pages)
{
    return huge_pages == HUGE_PAGES_AUTO ? "auto" : huge_pages == HUGE_PAGES_ON ? "on" : "off";
}

static bool parse_huge_pages(struct options *options, struct text value)
{
    bool on;
    bool is_auto = text_is(value, "auto");
    if (!is_auto && !parse_switch(value, &on))
        return false;
    options->pages.huge_pages = is_auto ? HUGE_PAGES_AUTO : on ? HUGE_PAGES_ON : HUGE_PAGES_OFF;
    return true;
}

/* A number of blocks; or a switch, which turns sampling on at the default rate. */
static bool parse_sample(struct options *options, struct text value)
{
    uint64_t interval;
    bool on;
    if (parse_number(value, &interval)) {
        if (interval > UINT32_MAX)
            return false;
    } else if (parse_switch(value, &on)) {
        interval = on ? SAMPLE_DEFAULT_INTERVAL : 0;
    } else {
        return false;
    }
    options->sample = (uint32_t)interval;
    return true;
}

/* Bytes; or a switch, which turns the profiler on at the default rate. */
static bool parse_profile(struct options *options, struct text value)
{
    bool on;
    if (!text_is(value, "1") && parse_bytes(value, &options->profile_bytes))
        return true;
    if (!parse_switch(value, &on))
        return false;
    options->profile_bytes = on ? PROFILE_DEFAULT_INTERVAL : 0;
    return true;
}

static bool parse_profile_growth(struct options *options, struct text value)
{
    return parse_bytes(value, &options->profile_growth_bytes);
}

/* An absolute path that has less than `most` bytes. */
static bool parse_path(struct text value, size_t most, const char **path, size_t *length)
{
    if (value.length == 0 || value.length >= most || value.start[0] != '/')
        return false;
    *path = value.start;
    *length = value.length;
    return true;
}

static bool parse_profile_file(struct options *options, struct text value)
{
    return parse_path(value, PROFILE_FILE_MOST, &options->profile_file,
                      &options->profile_file_bytes);
}

static bool parse_background(struct options *options, struct text value)
{
    return parse_switch(value, &options->background);
}

static bool parse_control(struct options *options, struct text value)
{
    return parse_path(value, CONTROL_PATH_MOST + 1, &options->control, &options->control_bytes);
}

static bool parse_watch_root(struct options *options, struct text value)
{
    return parse_path(value, SURROUNDINGS_ROOT_MOST, &options->watch_root,
                      &options->watch_root_bytes);
}

static bool parse_trace(struct options *options, struct text value)
{
    if (value.length == 0 || value.length >= TRACE_PATH_MAX || value.start[0] != '/')
        return false;
    options->trace = value.start;
    options->trace_bytes = value.length;
    return true;
}

static bool parse_trace_limit(struct options *options, struct text value)
{
    return parse_bytes(value, &options->trace_limit_bytes);
}

static bool parse_sites(struct options *options, struct text value)
{
    return parse_path(value, SITES_PATH_MOST, &options->sites, &options->sites_bytes);
}

static bool parse_verbose(struct options *options, struct text value)
{
    return parse_switch(value, &options->verbose);
}

static bool parse_on_error(struct options *options, struct text value)
{
    bool goes_on = text_is(value, "report");
    if (!goes_on && !text_is(value, "abort"))
        return false;
    if (goes_on && config_hardened)
        return false;
    options->goes_on = goes_on;
    return true;
}

static bool parse_report_file(struct options *options, struct text value)
{
    (void)options;
    return os_report_to(value.start, value.length);
}

static const struct {
    const char *name;
    bool (*parse)(struct options *options, struct text value);
} keys[] = {
    {"decay_ms", parse_decay},
    {"dirty_cap", parse_dirty_cap},
    {"soft_limit", parse_soft_limit},
    {"hard_limit", parse_hard_limit},
    {"huge_pages", parse_huge_pages},
    {"sample", parse_sample},
    {"verbose", parse_verbose},
    {"on_error", parse_on_error},
    {"report_file", parse_report_file},
    {"profile", parse_profile},
    {"profile_growth", parse_profile_growth},
    {"profile_file", parse_profile_file},
    {"trace", parse_trace},
    {"trace_limit", parse_trace_limit},
    {"sites", parse_sites},
    {"background", parse_background},
    {"control", parse_control},
    {"watch_root", parse_watch_root},
};

enum { QUOTED_BYTES = 64 };

static void copy_text(char *copy, struct text text)
{
    size_t length = smaller_of(text.length, QUOTED_BYTES - 1);
    for (size_t i = 0; i < length; i++)
        copy[i] = text.start[i];
    copy[length] = '\0';
}

static void warn(const char *what, struct text text, const char *source)
{
    char copy[QUOTED_BYTES];
    copy_text(copy, text);
    report("%s \"%s\" in %s, ignored", what, copy, source);
}

/* An item without a key that is known. One like another allocator's, "key=value", is shown right.
 */
static void warn_unknown(struct text item, const char *source)
{
    char copy[QUOTED_BYTES];
    char right[QUOTED_BYTES];
    copy_text(copy, item);
    copy_text(right, item);
    struct text key = {item.start, 0};
    while (key.length < item.length && item.start[key.length] != '=')
        key.length++;
    for (size_t i = 0; i < countof(keys); i++)
        if (key.length < item.length && text_is(key, keys[i].name)) {
            right[key.length] = ':';
            report("unknown option \"%s\" in %s, ignored: write \"%s\"", copy, source, right);
            return;
        }
    warn("unknown option", item, source);
}

static void parse_item(struct options *options, struct text item, const char *source)
{
    size_t colon = 0;
    while (colon < item.length && item.start[colon] != ':')
        colon++;
    struct text key = {item.start, colon};
    struct text value = {item.start + smaller_of(colon + 1, item.length), 0};
    value.length = (size_t)(item.start + item.length - value.start);
    for (size_t i = 0; i < countof(keys); i++)
        if (text_is(key, keys[i].name)) {
            if (colon == item.length || !keys[i].parse(options, value))
                warn("bad value of option", item, source);
            return;
        }
    warn_unknown(item, source);
}

void options_parse(struct options *options, const char *text, const char *source)
{
    while (*text != '\0') {
        struct text item = {text, 0};
        while (text[item.length] != '\0' && text[item.length] != ',')
            item.length++;
        if (item.length > 0)
            parse_item(options, item, source);
        text += item.length;
        text += *text == ',';
    }
}

bool options_set(struct options *options, const char *key, const char *value)
{
    struct text name = {key, text_length(key)};
    struct text text = {value, text_length(value)};
    for (size_t i = 0; i < countof(keys); i++)
        if (text_is(name, keys[i].name))
            return keys[i].parse(options, text);
    return false;
}

void options_report(const struct options *options, const char *who)
{
    report("%soptions: "
           "decay_ms:%zu,dirty_cap:%zu,soft_limit:%zu,hard_limit:%zu,huge_pages:%s,sample:%u,"
           "profile:%zu,verbose:%u,on_error:%s",
           who, (size_t)options->pages.decay_ms, options->pages.dirty_cap_bytes,
           options->pages.soft_limit_bytes, options->pages.hard_limit_bytes,
           options_huge_pages_word(options->pages.huge_pages), options->sample,
           options->profile_bytes, options->verbose, options->goes_on ? "report" : "abort");
}
