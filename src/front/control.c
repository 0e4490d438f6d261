/* Control by name: see cairn/control.h. Keys are settings (settings.c) and figures (figures.c);
 * actions stand here. No state. */
#include "front/control.h"

#include "base/check.h"
#include "base/text.h"
#include "cairn/control.h"
#include "front/figures.h"
#include "front/options.h"
#include "front/settings.h"
#include "heap/heap.h"
#include "os/os.h"
#include "watch/watch.h"

#include <errno.h>
#include <string.h>

/* The number of the figure; false when there is none of that key. */
static bool find_figure(const char *key, size_t *index)
{
    bool of_steering;
    const char *known;
    for (*index = 0; (known = figures_key(*index, &of_steering)) != NULL; ++*index)
        if (text_equals(known, key))
            return true;
    return false;
}

static int get_figure(size_t index, char *value, size_t capacity)
{
    struct figures figures;
    char text[24];
    figures_read(&figures);
    size_t length = format_text(text, sizeof text, "%zu", (size_t)figures_value(&figures, index));
    if (length >= capacity)
        return ERANGE;
    memcpy(value, text, length + 1);
    return 0;
}

int control_get(const char *key, char *value, size_t capacity)
{
    size_t index;
    if (find_figure(key, &index))
        return get_figure(index, value, capacity);
    return settings_get(key, value, capacity);
}

int control_set(const char *key, const char *value)
{
    size_t index;
    return find_figure(key, &index) ? EPERM : settings_set(key, value);
}

static int purge(const char *argument)
{
    (void)argument;
    heap_start();
    (void)heap_release(0);
    return 0;
}

static int purge_thread(const char *argument)
{
    (void)argument;
    heap_idle();
    return 0;
}

static int start_profile(const char *argument)
{
    struct options options = {.profile_bytes = PROFILE_DEFAULT_INTERVAL};
    if (argument && (!options_set(&options, "profile", argument) || options.profile_bytes == 0))
        return EINVAL;
    return -profile_start(options.profile_bytes, 0);
}

static int stop_profile(const char *argument)
{
    (void)argument;
    profile_stop();
    return 0;
}

static int reset_profile(const char *argument)
{
    (void)argument;
    profile_reset();
    return 0;
}

static int dump_profile(const char *argument)
{
    if (argument)
        return -profile_dump(argument, "call");
    struct profile_figures figures;
    profile_read(&figures);
    if (!profile_dumps())
        return EINVAL;
    if (figures.interval_bytes == 0)
        return ENODATA;
    profile_dump_next("call");
    return 0;
}

static const struct {
    char name[16];
    int (*run)(const char *argument); /* NULL: there is none; a positive errno */
    bool takes_argument;
} actions[] = {
    {"purge", purge, false},
    {"thread.purge", purge_thread, false},
    {"profile.start", start_profile, true},
    {"profile.stop", stop_profile, false},
    {"profile.reset", reset_profile, false},
    {"profile.dump", dump_profile, true},
};

const char *control_action(size_t index)
{
    return index < countof(actions) ? actions[index].name : NULL;
}

int control_do(const char *action, const char *argument)
{
    for (size_t i = 0; i < countof(actions); i++)
        if (text_equals(actions[i].name, action))
            return argument && !actions[i].takes_argument ? EINVAL : actions[i].run(argument);
    return ENOENT;
}

api const char *cairn_key(size_t index)
{
    bool flag;
    size_t settings = 0;
    for (const char *name; (name = settings_name(settings, &flag)) != NULL; settings++)
        if (settings == index)
            return name;
    return figures_key(index - settings, &flag);
}

api int cairn_get(const char *key, char *value, size_t capacity)
{
    return control_get(key, value, capacity);
}

api int cairn_set(const char *key, const char *value) { return control_set(key, value); }

api int cairn_do(const char *action, const char *argument) { return control_do(action, argument); }

static const struct {
    int number; /* arrays: pointers cost at each start of a program */
    char name[8];
    char text[80];
} errors[] = {
    {ENOENT, "ENOENT", "no such key, action or request"},
    {EINVAL, "EINVAL", "a value that this does not take, or an argument too many or too few"},
    {EPERM, "EPERM", "this key can only be read"},
    {E2BIG, "E2BIG", "the request is too long"},
    {ERANGE, "ERANGE", "the answer does not fit"},
    {EBUSY, "EBUSY", "another thread is at it, ask again"},
    {ENOMEM, "ENOMEM", "no memory"},
    {ENODATA, "ENODATA", "the profiler was never started"},
    {EACCES, "EACCES", "the system does not permit it"},
    {ENOTDIR, "ENOTDIR", "a part of the path is no folder"},
    {EISDIR, "EISDIR", "the path is a folder"},
    {ENOSPC, "ENOSPC", "no room on the device"},
    {EROFS, "EROFS", "the file system can only be read"},
    {EAGAIN, "EAGAIN", "the system has none to give just now"},
};

const char *control_error_name(int error)
{
    for (size_t i = 0; i < countof(errors); i++)
        if (errors[i].number == error)
            return errors[i].name;
    return "EIO";
}

const char *control_error_text(int error)
{
    for (size_t i = 0; i < countof(errors); i++)
        if (errors[i].number == error)
            return errors[i].text;
    return "the system refused it";
}
