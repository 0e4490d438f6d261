/* Settings: see settings.h. What a setting's text means stands in options.c; here stands what its
 * change does. */
#include "front/settings.h"

#include "base/bits.h"
#include "base/check.h"
#include "base/text.h"
#include "os/os.h"
#include "watch/watch.h"

#include <errno.h>
#include <string.h>

static struct options now; /* who claims; const pointers into: */
/* Who claims. Programs that show their state in their title write over the environment. */
static char kept_profile_file[PROFILE_FILE_MOST];
static char kept_control[CONTROL_PATH_MOST + 1];
static char kept_root[SURROUNDINGS_ROOT_MOST];
static uint32_t claimed_by; /* atomic: a process, 0: nobody */

enum { CLAIM_MS = 1000 };

static bool claim(void)
{
    uint32_t process = os_process_id();
    for (unsigned waited = 0; waited < CLAIM_MS; waited++) {
        uint32_t seen = load_relaxed(&claimed_by);
        if (seen != process && compare_swap_acq_rel(&claimed_by, &seen, process))
            return true; /* a parent's claim is not its child's */
        os_sleep_ms(1);
    }
    return false;
}

static void unclaim(void) { store_release(&claimed_by, 0u); } /* pairs with claim */

static const char *keep(char *kept, const char *text, size_t length)
{
    memcpy(kept, text ? text : "", length);
    return kept;
}

at_process_start void settings_start(const struct options *options)
{
    now = *options;
    now.profile_file = keep(kept_profile_file, options->profile_file, options->profile_file_bytes);
    now.control = keep(kept_control, options->control, options->control_bytes);
    now.watch_root = keep(kept_root, options->watch_root, options->watch_root_bytes);
}

at_process_end bool settings_are_verbose(void) { return now.verbose; }

static size_t show_number(char *text, size_t capacity, size_t number)
{
    return format_text(text, capacity, "%zu", number);
}

static size_t show_switch(char *text, size_t capacity, bool on)
{
    return format_text(text, capacity, "%s", on ? "on" : "off");
}

static size_t show_limit(char *text, size_t capacity, bool of_group, size_t bytes)
{
    return of_group ? format_text(text, capacity, "cgroup") : show_number(text, capacity, bytes);
}

static size_t show_text(char *text, size_t capacity, const char *start, size_t length)
{
    size_t copied = smaller_of(length, capacity - 1);
    memcpy(text, start ? start : "", copied);
    text[copied] = '\0';
    return length;
}

static size_t show_decay(char *text, size_t capacity)
{
    return show_number(text, capacity, now.pages.decay_ms);
}

static size_t show_dirty_cap(char *text, size_t capacity)
{
    return show_number(text, capacity, now.pages.dirty_cap_bytes);
}

static size_t show_soft_limit(char *text, size_t capacity)
{
    return show_limit(text, capacity, now.soft_of_group, now.pages.soft_limit_bytes);
}

static size_t show_hard_limit(char *text, size_t capacity)
{
    return show_limit(text, capacity, now.hard_of_group, now.pages.hard_limit_bytes);
}

/* As it is: cairn_profile_start may have been called. */
static size_t show_profile(char *text, size_t capacity)
{
    struct profile_figures figures;
    profile_read(&figures);
    return show_number(text, capacity, figures.on ? figures.interval_bytes : 0);
}

static size_t show_profile_file(char *text, size_t capacity)
{
    return show_text(text, capacity, now.profile_file, now.profile_file_bytes);
}

static size_t show_profile_growth(char *text, size_t capacity)
{
    return show_number(text, capacity, now.profile_growth_bytes);
}

static size_t show_verbose(char *text, size_t capacity)
{
    return show_switch(text, capacity, now.verbose);
}

static size_t show_huge_pages(char *text, size_t capacity)
{
    return format_text(text, capacity, "%s", options_huge_pages_word(now.pages.huge_pages));
}

static size_t show_sample(char *text, size_t capacity)
{
    return show_number(text, capacity, now.sample);
}

static size_t show_on_error(char *text, size_t capacity)
{
    return format_text(text, capacity, "%s", now.goes_on ? "report" : "abort");
}

static size_t show_background(char *text, size_t capacity)
{
    return show_switch(text, capacity, background_runs());
}

static size_t show_control(char *text, size_t capacity)
{
    return show_text(text, capacity, now.control, now.control_bytes);
}

static size_t show_watch_root(char *text, size_t capacity)
{
    return show_text(text, capacity, now.watch_root, now.watch_root_bytes);
}

/* What changes: 0 or a negative errno. The limits that follow the control group set themselves. */

static int change_pages(struct options *wanted)
{
    int error = surroundings_follow_soft(wanted->soft_of_group);
    if (error == 0)
        error = surroundings_follow_hard(wanted->hard_of_group);
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

static int change_profile(struct options *wanted)
{
    if (wanted->profile_bytes != 0)
        return profile_start(wanted->profile_bytes, 0);
    profile_stop();
    return 0;
}

static int change_dumps(struct options *wanted)
{
    int error = profile_dump_to(wanted->profile_file, wanted->profile_file_bytes,
                                wanted->profile_growth_bytes);
    if (error == 0 && wanted->profile_file != now.profile_file) {
        memcpy(kept_profile_file, wanted->profile_file, wanted->profile_file_bytes);
        wanted->profile_file = kept_profile_file;
    }
    return error;
}

static int change_background(struct options *wanted)
{
    if (wanted->background)
        return background_start();
    background_stop();
    return 0;
}

static int change_nothing(struct options *wanted)
{
    (void)wanted;
    return 0;
}

static const struct setting {
    char name[16];
    size_t (*show)(char *text, size_t capacity_bytes); /* who claims; the length of it all */
    int (*change)(struct options *wanted);             /* NULL: it can only be read */
} settings[] = {
    {"decay_ms", show_decay, change_pages},
    {"dirty_cap", show_dirty_cap, change_pages},
    {"soft_limit", show_soft_limit, change_pages},
    {"hard_limit", show_hard_limit, change_pages},
    {"profile", show_profile, change_profile},
    {"profile_file", show_profile_file, change_dumps},
    {"profile_growth", show_profile_growth, change_dumps},
    {"background", show_background, change_background},
    {"verbose", show_verbose, change_nothing},
    {"huge_pages", show_huge_pages, NULL},
    {"sample", show_sample, NULL},
    {"on_error", show_on_error, NULL},
    {"control", show_control, NULL},
    {"watch_root", show_watch_root, NULL},
};

const char *settings_name(size_t index, bool *writable)
{
    if (index >= countof(settings))
        return NULL;
    *writable = settings[index].change != NULL;
    return settings[index].name;
}

static const struct setting *find(const char *name)
{
    for (size_t i = 0; i < countof(settings); i++)
        if (text_equals(settings[i].name, name))
            return &settings[i];
    return NULL;
}

int settings_get(const char *name, char *text, size_t capacity_bytes)
{
    char value[PROFILE_FILE_MOST];
    const struct setting *setting = find(name);
    if (setting == NULL)
        return ENOENT;
    if (!claim())
        return EBUSY;
    size_t length = setting->show(value, sizeof value);
    unclaim();
    if (length >= capacity_bytes)
        return ERANGE;
    memcpy(text, value, length + 1);
    return 0;
}

int settings_set(const char *name, const char *value)
{
    const struct setting *setting = find(name);
    if (setting == NULL)
        return ENOENT;
    if (setting->change == NULL)
        return EPERM;
    if (!claim())
        return EBUSY;
    struct options wanted = now;
    int error = options_set(&wanted, name, value) ? 0 : EINVAL;
    if (error == 0)
        error = -setting->change(&wanted);
    if (error == 0)
        now = wanted;
    unclaim();
    return error;
}
