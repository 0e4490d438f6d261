/* Keys, figures, actions, and the answers to requests: see control.h. Uses no memory: rows of
 * threads that do not fit are counted. */
#include "front/control.h"

#include "base/bits.h"
#include "base/check.h"
#include "base/text.h"
#include "cairn/control.h"
#include "front/entry.h"
#include "front/options.h"
#include "front/settings.h"
#include "heap/heap.h"
#include "os/process.h"
#include "watch/watch.h"

#include <errno.h>
#include <string.h>

/* The table of the figures, and their sources. */

#define OF_HEAP(name)     {"stats." #name, offsetof(struct figures, heap.name), false}
#define OF_STEERING(name) {"stats." #name, offsetof(struct figures, steering.name), true}

/* clang-format off */
static const struct {
    char name[32]; /* an array: a pointer needs a relocation at each start */
    size_t offset; /* offset of a number of 8 bytes */
    bool of_steering;
} figure_names[] = {
    OF_HEAP(allocated_bytes),
    OF_HEAP(allocated_blocks),
    OF_HEAP(large_bytes),
    OF_HEAP(large_blocks),
    OF_HEAP(guarded_bytes),
    OF_HEAP(guarded_blocks),
    OF_HEAP(active_bytes),
    OF_HEAP(slab_bytes),
    OF_HEAP(free_bytes),
    OF_HEAP(dirty_bytes),
    OF_HEAP(mapped_bytes),
    OF_HEAP(retained_bytes),
    OF_HEAP(metadata_bytes),
    OF_HEAP(thread_heaps),
    OF_HEAP(purged_bytes),
    OF_HEAP(purges),
    OF_HEAP(map_calls),
    OF_HEAP(protect_calls),
    OF_HEAP(unmap_calls),
    OF_HEAP(advise_calls),
    OF_HEAP(remap_calls),
    OF_STEERING(counted_bytes),
    OF_STEERING(soft_limit_bytes),
    OF_STEERING(hard_limit_bytes),
    OF_STEERING(cgroup_max_bytes),
    OF_STEERING(cgroup_high_bytes),
    OF_STEERING(refusals),
    OF_STEERING(pinned_bytes),
    OF_STEERING(decays),
    OF_STEERING(decay_age_ms),
    OF_STEERING(background),
    OF_STEERING(background_rounds),
    OF_STEERING(pressure),
    OF_STEERING(pressure_spells),
};
/* clang-format on */

static_check(countof(figure_names) * sizeof(uint64_t) == sizeof(struct figures),
             "every number has a name");
static_check(sizeof(size_t) == sizeof(uint64_t), "all are numbers of 8 bytes");

void figures_read(struct figures *figures)
{
    struct page_stats pages;
    struct page_limits limits;
    struct memory_pressure_figures around;
    stats_read(&figures->heap);
    pages_read_stats(&pages);
    pages_read_limits(&limits);
    memory_pressure_read(&around);
    const cairn_heap_stats *heap = &figures->heap;
    size_t in_slabs = heap->allocated_bytes -
                      smaller_of(heap->allocated_bytes, heap->large_bytes + heap->guarded_bytes);
    figures->steering = (struct steering){
        .counted_bytes = pages.counted_bytes,
        .soft_limit_bytes = limits.soft_limit_bytes,
        .hard_limit_bytes = limits.hard_limit_bytes,
        .cgroup_max_bytes = around.max_bytes,
        .cgroup_high_bytes = around.high_bytes,
        .refusals = pages.refusals,
        .pinned_bytes = heap->slab_bytes - smaller_of(heap->slab_bytes, in_slabs),
        .decays = pages.intervals,
        .decay_age_ms = os_now_ms() - pages.interval_start_ms,
        .background = background_runs(),
        .background_rounds = background_rounds(),
        .pressure = pages.pressed,
        .pressure_spells = around.pressure_spells,
    };
}

const char *figures_key(size_t index, bool *of_steering)
{
    if (index >= countof(figure_names))
        return NULL;
    *of_steering = figure_names[index].of_steering;
    return figure_names[index].name;
}

uint64_t figures_value(const struct figures *figures, size_t index)
{
    uint64_t value;
    memcpy(&value, (const char *)figures + figure_names[index].offset, sizeof value);
    return value;
}

/* Keys. */

/* Finds the number of a key among the figures.
 *
 * Returns: false if the key is no figure. */
static bool control_find_figure(const char *key, size_t *index)
{
    bool of_steering;
    const char *known;
    for (*index = 0; (known = figures_key(*index, &of_steering)) != NULL; ++*index)
        if (text_equals(known, key))
            return true;
    return false;
}

/* Writes the value of a figure as text.
 *
 * Returns: 0 or ERANGE. */
static int control_get_figure(size_t index, char *value, size_t capacity)
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
    if (control_find_figure(key, &index))
        return control_get_figure(index, value, capacity);
    return settings_get(key, value, capacity);
}

int control_set(const char *key, const char *value)
{
    size_t index;
    return control_find_figure(key, &index) ? EPERM : settings_set(key, value);
}

static void control_purge(void)
{
    heap_start();
    (void)heap_release(0);
}

static int control_start_profile(const char *argument)
{
    struct options options = {.profile_bytes = PROFILE_DEFAULT_INTERVAL};
    if (argument && (!options_set(&options, "profile", argument) || options.profile_bytes == 0))
        return EINVAL;
    return -profile_start(options.profile_bytes, 0);
}

static int control_dump_profile(const char *argument)
{
    if (argument)
        return -profile_dump(argument, "call");
    cairn_profile_stats figures;
    profile_read(&figures);
    if (!profile_dumps())
        return EINVAL;
    if (figures.interval_bytes == 0)
        return ENODATA;
    return -profile_dump_next("call");
}

static const struct {
    char name[16];
    void (*act)(void);                /* of an action that takes no argument; else NULL */
    int (*run)(const char *argument); /* argument NULL: none; returns 0 or a positive errno */
} actions[] = {
    {"purge", control_purge, NULL},
    {"thread.purge", heap_idle, NULL},
    {"profile.start", NULL, control_start_profile},
    {"profile.stop", profile_stop, NULL},
    {"profile.reset", profile_reset, NULL},
    {"profile.dump", NULL, control_dump_profile},
};

const char *control_action(size_t index)
{
    return index < countof(actions) ? actions[index].name : NULL;
}

int control_do(const char *action, const char *argument)
{
    for (size_t i = 0; i < countof(actions); i++) {
        if (!text_equals(actions[i].name, action))
            continue;
        if (actions[i].run)
            return actions[i].run(argument);
        if (argument)
            return EINVAL;
        actions[i].act();
        return 0;
    }
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
    int number; /* texts are arrays: pointers need a relocation at each start */
    char text[80];
} errors[] = {
    {ENOENT, "no such key, action or request"},
    {EINVAL, "invalid value, or a wrong number of arguments"},
    {EPERM, "this key is read-only"},
    {E2BIG, "the request is too long"},
    {ERANGE, "the answer does not fit"},
    {EBUSY, "busy in another thread: try again"},
    {ENOMEM, "out of memory"},
    {ENODATA, "the profiler was never started"},
    {EACCES, "the system does not permit it"},
    {ENOTDIR, "a part of the path is not a folder"},
    {EISDIR, "the path is a folder"},
    {ENOSPC, "no space on the device"},
    {EROFS, "the file system is read-only"},
    {EAGAIN, "the system is out of resources: try again"},
};

const char *control_error_name(int error)
{
    for (size_t i = 0; i < countof(errors); i++)
        if (errors[i].number == error)
            return text_of_error(error);
    return "EIO";
}

const char *control_error_text(int error)
{
    for (size_t i = 0; i < countof(errors); i++)
        if (errors[i].number == error)
            return errors[i].text;
    return "the system refused it";
}

enum { REQUEST_MAX = 512, WORD_BYTES = 64, CLASS_ROWS = 128, THREAD_ROWS = 64 };

/* Text that grows up to its capacity. */
struct answer {
    char *text;
    size_t capacity;
    size_t length;
    bool full; /* a text did not fit */
};

/* Appends text with the formats of format_text. */
static void control_put(struct answer *answer, const char *format, ...) print_like(2, 3);

static void control_put(struct answer *answer, const char *format, ...)
{
    size_t room = answer->capacity - answer->length;
    va_list arguments;
    va_start(arguments, format);
    size_t written = format_text_list(answer->text + answer->length, room, format, arguments);
    va_end(arguments);
    answer->full = answer->full || written + 1 >= room; /* perhaps cut */
    answer->length += written;
}

/* Appends a JSON string. Bytes that are not printing ASCII are shown as code points of Latin 1, so
 * that the answer is JSON for any bytes of the request. */
static void control_put_string(struct answer *answer, const char *text)
{
    control_put(answer, "\"");
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        char plain[2] = {*text, '\0'};
        if (byte == '"' || byte == '\\')
            control_put(answer, "\\%s", plain);
        else if (byte < ' ' || byte > '~')
            control_put(answer, byte < 16 ? "\\u000%x" : "\\u00%x", (unsigned)byte);
        else
            control_put(answer, "%s", plain);
    }
    control_put(answer, "\"");
}

/* Appends a member with a number. */
static void control_put_number(struct answer *answer, const char *name, uint64_t number)
{
    control_put(answer, "\"%s\":%zu", name, (size_t)number);
}

/* Replaces the answer by an error. */
static void control_put_error(struct answer *answer, int error)
{
    answer->length = 0;
    answer->full = false;
    control_put(answer, "{\"ok\":false,\"error\":\"%s\",\"message\":\"%s\"}",
                control_error_name(error), control_error_text(error));
}

/* Answers with the value of a key. */
static void control_put_value(struct answer *answer, const char *key)
{
    char value[CAIRN_VALUE_BYTES];
    int error = control_get(key, value, sizeof value);
    if (error != 0) {
        control_put_error(answer, error);
        return;
    }
    control_put(answer, "{\"ok\":true,\"key\":");
    control_put_string(answer, key);
    control_put(answer, ",\"value\":");
    control_put_string(answer, value);
    control_put(answer, "}");
}

static void control_answer_get(struct answer *answer, const char *argument)
{
    if (argument == NULL)
        control_put_error(answer, EINVAL);
    else
        control_put_value(answer, argument);
}

/* Copies the word before the first space, and stores the address of the text behind it, NULL for
 * none.
 *
 * Returns: false if the word is too long. */
static bool control_split(const char *text, char *word, const char **rest)
{
    size_t length = text_until(text, ' ');
    if (length >= WORD_BYTES)
        return false;
    memcpy(word, text, length);
    word[length] = '\0';
    *rest = text[length] == ' ' && text[length + 1] != '\0' ? text + length + 1 : NULL;
    return true;
}

static void control_answer_set(struct answer *answer, const char *argument)
{
    char key[WORD_BYTES];
    const char *value = NULL;
    int error = argument == NULL                        ? EINVAL
                : !control_split(argument, key, &value) ? ENOENT
                : value == NULL                         ? EINVAL
                                                        : control_set(key, value);
    if (error != 0)
        control_put_error(answer, error);
    else
        control_put_value(answer, key);
}

/* Answers the request "do". The answer to a purge has the sizes before and after it. */
static void control_answer_do(struct answer *answer, const char *argument)
{
    char action[WORD_BYTES];
    const char *rest = NULL;
    if (argument == NULL || !control_split(argument, action, &rest)) {
        control_put_error(answer, argument ? ENOENT : EINVAL);
        return;
    }
    struct figures before;
    struct figures after;
    bool purges = text_equals(action, "purge") || text_equals(action, "thread.purge");
    if (purges)
        figures_read(&before);
    int error = control_do(action, rest);
    if (error != 0) {
        control_put_error(answer, error);
        return;
    }
    control_put(answer, "{\"ok\":true,\"action\":");
    control_put_string(answer, action);
    if (purges) {
        figures_read(&after);
        control_put(answer, ",");
        control_put_number(answer, "before_bytes", before.steering.counted_bytes);
        control_put(answer, ",");
        control_put_number(answer, "after_bytes", after.steering.counted_bytes);
        control_put(answer, ",");
        control_put_number(answer, "purged_bytes",
                           after.heap.purged_bytes - before.heap.purged_bytes);
    }
    control_put(answer, "}");
}

/* Answers the request "keys": all settings and the names of the actions. */
static void control_answer_keys(struct answer *answer, const char *argument)
{
    char value[CAIRN_VALUE_BYTES];
    bool writable;
    (void)argument;
    control_put(answer, "{\"ok\":true,\"settings\":[");
    for (size_t i = 0; settings_name(i, &writable) != NULL; i++) {
        const char *name = settings_name(i, &writable);
        int error = control_get(name, value, sizeof value);
        control_put(answer, "%s{\"key\":\"%s\",\"value\":", i == 0 ? "" : ",", name);
        control_put_string(answer, error == 0 ? value : "");
        control_put(answer, ",\"writable\":%s}", writable ? "true" : "false");
    }
    control_put(answer, "],\"actions\":[");
    for (size_t i = 0; control_action(i) != NULL; i++)
        control_put(answer, "%s\"%s\"", i == 0 ? "" : ",", control_action(i));
    control_put(answer, "]}");
}

/* Begins an answer with the version and the process. */
static void control_put_process(struct answer *answer)
{
    control_put(answer, "{\"ok\":true,\"version\":\"%s\",\"protocol\":1,\"pid\":%u,\"program\":",
                CAIRN_VERSION, os_process_id());
    control_put_string(answer, os_program_name());
}

static void control_answer_version(struct answer *answer, const char *argument)
{
    (void)argument;
    control_put_process(answer);
    control_put(answer, "}");
}

/* Appends all figures, in the objects "stats" and "steering". */
static void control_put_figures(struct answer *answer)
{
    struct figures figures;
    bool before = true;
    bool of_steering;
    figures_read(&figures);
    for (size_t i = 0; figures_key(i, &of_steering) != NULL; i++) {
        const char *name = figures_key(i, &of_steering) + FIGURE_PREFIX;
        control_put(answer, "%s",
                    i == 0                  ? ",\"stats\":{"
                    : before != of_steering ? "},\"steering\":{"
                                            : ",");
        if (i == 0)
            before = of_steering;
        control_put_number(answer, name, figures_value(&figures, i));
        before = of_steering;
    }
    control_put(answer, "}");
}

/* Appends a row for each size class that has slabs. */
static void control_put_classes(struct answer *answer)
{
    cairn_heap_class_stats rows[CLASS_ROWS];
    size_t count = smaller_of(heap_read_classes(rows, CLASS_ROWS), (size_t)CLASS_ROWS);
    const char *comma = "";
    control_put(answer, ",\"classes\":[");
    for (size_t i = 0; i < count; i++) {
        const cairn_heap_class_stats *row = &rows[i];
        if (row->slabs == 0)
            continue;
        control_put(answer,
                    "%s{\"block_bytes\":%zu,\"live_blocks\":%zu,\"free_blocks\":%zu,\"slabs\":%zu,"
                    "\"slab_bytes\":%zu}",
                    comma, row->block_bytes, row->live_blocks, row->free_blocks, row->slabs,
                    row->slab_bytes);
        comma = ",";
    }
    control_put(answer, "]");
}

/* Appends a row for each heap of a thread, up to THREAD_ROWS, and the number of the others. */
static void control_put_threads(struct answer *answer)
{
    cairn_heap_thread_stats rows[THREAD_ROWS];
    size_t all = heap_read_threads(rows, THREAD_ROWS);
    size_t count = smaller_of(all, (size_t)THREAD_ROWS);
    control_put(answer, ",\"threads\":[");
    for (size_t i = 0; i < count; i++) {
        const cairn_heap_thread_stats *row = &rows[i];
        control_put(answer,
                    "%s{\"heap\":\"%p\",\"is_current\":%s,\"is_orphan\":%s,\"live_blocks\":%zu,"
                    "\"live_bytes\":%zu,\"slabs\":%zu,\"slab_bytes\":%zu}",
                    i == 0 ? "" : ",", (void *)(uintptr_t)row->heap,
                    row->is_current ? "true" : "false", row->is_orphan ? "true" : "false",
                    row->live_blocks, row->live_bytes, row->slabs, row->slab_bytes);
    }
    control_put(answer, "],");
    control_put_number(answer, "threads_left_out", all - count);
}

static void control_answer_stats(struct answer *answer, const char *argument)
{
    (void)argument;
    control_put_process(answer);
    control_put_figures(answer);
    control_put_classes(answer);
    control_put_threads(answer);
    control_put(answer, "}");
}

static const struct {
    char name[8];
    void (*write)(struct answer *answer, const char *argument); /* NULL: no argument */
    bool takes_argument;
} requests[] = {
    {"get", control_answer_get, true},
    {"set", control_answer_set, true},
    {"do", control_answer_do, true},
    {"keys", control_answer_keys, false},
    {"version", control_answer_version, false},
    {"stats", control_answer_stats, false},
};

/* Answers a request. A line that begins with no request is an action. */
static void control_write_answer(struct answer *answer, const char *request)
{
    char word[WORD_BYTES];
    const char *rest = NULL;
    if (text_length(request) > REQUEST_MAX) {
        control_put_error(answer, E2BIG);
        return;
    }
    if (!control_split(request, word, &rest)) {
        control_put_error(answer, ENOENT);
        return;
    }
    for (size_t i = 0; i < countof(requests); i++)
        if (text_equals(requests[i].name, word)) {
            if (rest && !requests[i].takes_argument)
                control_put_error(answer, EINVAL);
            else
                requests[i].write(answer, rest);
            return;
        }
    control_answer_do(answer, request);
}

size_t control_reply(const char *request, char *text, size_t capacity)
{
    struct answer answer = {text, capacity, 0, false};
    if (capacity == 0)
        return 0;
    control_write_answer(&answer, request);
    if (answer.full)
        control_put_error(&answer, ERANGE);
    if (answer.full)
        answer.length = 0;
    text[answer.length] = '\0';
    return answer.length;
}

api size_t cairn_control(const char *request, char *answer, size_t capacity)
{
    return control_reply(request, answer, capacity);
}
