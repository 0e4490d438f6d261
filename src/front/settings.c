/* The table of settings: how each is shown, and what its change does: see settings.h. options.c
 * parses the values. */
#include "front/settings.h"

#include "base/bits.h"
#include "base/check.h"
#include "base/text.h"
#include "os/process.h"
#include "watch/watch.h"

#include <errno.h>
#include <string.h>

static struct options now; /* claiming thread; its paths but `trace` point into the arrays below */

/* Copies of paths from the environment, which a program may overwrite to show its state in its
 * title. Written by the claiming thread. */
static char kept_profile_file[PROFILE_FILE_MAX];
static char kept_control[CONTROL_PATH_MAX + 1];
static char kept_root[MEMORY_PRESSURE_ROOT_MAX];
static uint32_t claimed_by; /* atomic: process in which a thread has claimed; 0: none */

/* Replaces a path by a copy of it at `kept`. */
static void settings_keep(char *kept, struct option_text *path)
{
    memcpy(kept, path->length ? path->start : "", path->length);
    path->start = kept;
}

at_process_start void settings_start(const struct options *options)
{
    now = *options;
    settings_keep(kept_profile_file, &now.profile_file);
    settings_keep(kept_control, &now.control);
    settings_keep(kept_root, &now.watch_root);
}

at_process_end bool settings_are_verbose(void) { return now.verbose; }

/* The functions below write the value of a setting, which is at `from`, and return its full length:
 * a field of `now`, or `now` itself. */

static size_t settings_show_number(char *text, size_t capacity, const void *from)
{
    return format_text(text, capacity, "%zu", *(const size_t *)from);
}

static size_t settings_show_switch(char *text, size_t capacity, const void *from)
{
    return format_text(text, capacity, "%s", *(const bool *)from ? "on" : "off");
}

/* Writes a path, cut at `capacity`. */
static size_t settings_show_path(char *text, size_t capacity, const void *from)
{
    const struct option_text *path = from;
    size_t copied = smaller_of(path->length, capacity - 1);
    memcpy(text, copied ? path->start : "", copied);
    text[copied] = '\0';
    return path->length;
}

static size_t settings_show_soft_limit(char *text, size_t capacity, const void *from)
{
    return now.soft_of_group ? format_text(text, capacity, "cgroup")
                             : settings_show_number(text, capacity, from);
}

static size_t settings_show_hard_limit(char *text, size_t capacity, const void *from)
{
    return now.hard_of_group ? format_text(text, capacity, "cgroup")
                             : settings_show_number(text, capacity, from);
}

/* Writes the state of the profiler, because cairn_profile_start may have changed it. */
static size_t settings_show_profile(char *text, size_t capacity, const void *from)
{
    (void)from;
    cairn_profile_stats figures;
    profile_read(&figures);
    return format_text(text, capacity, "%zu", (size_t)(figures.is_on ? figures.interval_bytes : 0));
}

static size_t settings_show_huge_pages(char *text, size_t capacity, const void *from)
{
    return format_text(text, capacity, "%s",
                       options_huge_pages_word(*(const enum huge_pages *)from));
}

static size_t settings_show_guard(char *text, size_t capacity, const void *from)
{
    return format_text(text, capacity, "%u", *(const uint32_t *)from);
}

static size_t settings_show_on_error(char *text, size_t capacity, const void *from)
{
    return format_text(text, capacity, "%s", *(const bool *)from ? "report" : "abort");
}

static size_t settings_show_background(char *text, size_t capacity, const void *from)
{
    (void)from;
    bool runs = background_runs();
    return settings_show_switch(text, capacity, &runs);
}

/* Changes the limits of the pages. Limits that follow the control group keep the values that
 * memory_pressure.h has set.
 *
 * Returns: 0 or a negative errno. */
static int settings_change_pages(struct options *wanted)
{
    int error = memory_pressure_follow_soft(wanted->soft_of_group);
    if (error == 0)
        error = memory_pressure_follow_hard(wanted->hard_of_group);
    if (error != 0)
        return error;
    struct page_limits limits = wanted->pages;
    struct page_limits live;
    pages_read_limits(&live);
    if (wanted->soft_of_group)
        limits.soft_limit_bytes = live.soft_limit_bytes;
    if (wanted->hard_of_group)
        limits.hard_limit_bytes = live.hard_limit_bytes;
    pages_configure(&limits);
    pages_heed_limits();
    return 0;
}

/* Starts or stops the profiler.
 *
 * Returns: 0 or a negative errno. */
static int settings_change_profile(struct options *wanted)
{
    if (wanted->profile_bytes != 0)
        return profile_start(wanted->profile_bytes, 0);
    profile_stop();
    return 0;
}

/* Changes where dumps are written, and after which growth.
 *
 * Returns: 0 or a negative errno. */
static int settings_change_dumps(struct options *wanted)
{
    int error = profile_dump_to(wanted->profile_file.start, wanted->profile_file.length,
                                wanted->profile_growth_bytes);
    if (error == 0 && wanted->profile_file.start != now.profile_file.start)
        settings_keep(kept_profile_file, &wanted->profile_file);
    return error;
}

/* Starts or stops the background thread.
 *
 * Returns: 0 or a negative errno. */
static int settings_change_background(struct options *wanted)
{
    if (wanted->background)
        return background_start();
    background_stop();
    return 0;
}

/* The change of a setting whose value is read when it is needed. */
static int settings_change_nothing(struct options *wanted)
{
    (void)wanted;
    return 0;
}

#define AT(field) offsetof(struct options, field)

/* The settings. `change` applies a changed value. */
static const struct setting {
    char name[16];
    size_t (*show)(char *text, size_t capacity_bytes, const void *from); /* claiming thread */
    int (*change)(struct options *wanted); /* claiming thread; NULL: read-only */
    uint16_t at;                           /* offset of `from` in `now` */
} settings[] = {
    {"decay_ms", settings_show_number, settings_change_pages, AT(pages.decay_ms)},
    {"dirty_cap", settings_show_number, settings_change_pages, AT(pages.dirty_cap_bytes)},
    {"soft_limit", settings_show_soft_limit, settings_change_pages, AT(pages.soft_limit_bytes)},
    {"hard_limit", settings_show_hard_limit, settings_change_pages, AT(pages.hard_limit_bytes)},
    {"profile", settings_show_profile, settings_change_profile, 0},
    {"profile_file", settings_show_path, settings_change_dumps, AT(profile_file)},
    {"profile_growth", settings_show_number, settings_change_dumps, AT(profile_growth_bytes)},
    {"background", settings_show_background, settings_change_background, 0},
    {"verbose", settings_show_switch, settings_change_nothing, AT(verbose)},
    {"huge_pages", settings_show_huge_pages, NULL, AT(pages.huge_pages)},
    {"guard", settings_show_guard, NULL, AT(guard)},
    {"on_error", settings_show_on_error, NULL, AT(goes_on)},
    {"control", settings_show_path, NULL, AT(control)},
    {"watch_root", settings_show_path, NULL, AT(watch_root)},
};

const char *settings_name(size_t index, bool *writable)
{
    if (index >= countof(settings))
        return NULL;
    *writable = settings[index].change != NULL;
    return settings[index].name;
}

static const struct setting *settings_find(const char *name)
{
    for (size_t i = 0; i < countof(settings); i++)
        if (text_equals(settings[i].name, name))
            return &settings[i];
    return NULL;
}

int settings_get(const char *name, char *text, size_t capacity_bytes)
{
    char value[PROFILE_FILE_MAX];
    const struct setting *setting = settings_find(name);
    if (setting == NULL)
        return ENOENT;
    if (!os_claim(&claimed_by, OS_CLAIM_MS))
        return EBUSY;
    size_t length = setting->show(value, sizeof value, (const char *)&now + setting->at);
    os_unclaim(&claimed_by);
    if (length >= capacity_bytes)
        return ERANGE;
    memcpy(text, value, length + 1);
    return 0;
}

int settings_set(const char *name, const char *value)
{
    const struct setting *setting = settings_find(name);
    if (setting == NULL)
        return ENOENT;
    if (setting->change == NULL)
        return EPERM;
    if (!os_claim(&claimed_by, OS_CLAIM_MS))
        return EBUSY;
    struct options wanted = now;
    int error = options_set(&wanted, name, value) ? 0 : EINVAL;
    if (error == 0)
        error = -setting->change(&wanted);
    if (error == 0)
        now = wanted;
    os_unclaim(&claimed_by);
    return error;
}
