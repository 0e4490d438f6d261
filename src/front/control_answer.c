/* Requests and their answers: see control_answer.h. No state, no memory: rows that do not fit
 * beside the others are counted. Any thread.
 */
#include "front/control_answer.h"

#include "base/bits.h"
#include "base/check.h"
#include "base/text.h"
#include "cairn/control.h"
#include "front/control.h"
#include "front/figures.h"
#include "front/settings.h"
#include "heap/heap.h"
#include "os/os.h"

#include <errno.h>
#include <string.h>

enum { REQUEST_MOST = 512, WORD_BYTES = 64, CLASS_ROWS = 128, THREAD_ROWS = 64 };

/* Text that grows up to its capacity; `full` once something did not fit. */
struct answer {
    char *text;
    size_t capacity;
    size_t length;
    bool full;
};

static void put(struct answer *answer, const char *format, ...) print_like(2, 3);

static void put(struct answer *answer, const char *format, ...)
{
    size_t room = answer->capacity - answer->length;
    va_list arguments;
    va_start(arguments, format);
    size_t written = format_text_list(answer->text + answer->length, room, format, arguments);
    va_end(arguments);
    answer->full = answer->full || written + 1 >= room; /* maybe cut */
    answer->length += written;
}

/* In quotes. Bytes that are no printing ASCII are shown as code points of Latin 1, so that the
 * answer is JSON whatever was asked. */
static void put_string(struct answer *answer, const char *text)
{
    put(answer, "\"");
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;
        char plain[2] = {*text, '\0'};
        if (byte == '"' || byte == '\\')
            put(answer, "\\%s", plain);
        else if (byte < ' ' || byte > '~')
            put(answer, byte < 16 ? "\\u000%x" : "\\u00%x", (unsigned)byte);
        else
            put(answer, "%s", plain);
    }
    put(answer, "\"");
}

static void put_number(struct answer *answer, const char *name, uint64_t number)
{
    put(answer, "\"%s\":%zu", name, (size_t)number);
}

static void put_error(struct answer *answer, int error)
{
    answer->length = 0;
    answer->full = false;
    put(answer, "{\"ok\":false,\"error\":\"%s\",\"message\":\"%s\"}", control_error_name(error),
        control_error_text(error));
}

static void put_value(struct answer *answer, const char *key)
{
    char value[CAIRN_VALUE_BYTES];
    int error = control_get(key, value, sizeof value);
    if (error != 0) {
        put_error(answer, error);
        return;
    }
    put(answer, "{\"ok\":true,\"key\":");
    put_string(answer, key);
    put(answer, ",\"value\":");
    put_string(answer, value);
    put(answer, "}");
}

static void answer_get(struct answer *answer, const char *argument)
{
    if (argument == NULL)
        put_error(answer, EINVAL);
    else
        put_value(answer, argument);
}

/* The word before the first space, and what follows it, NULL for nothing. False: it is too long. */
static bool split(const char *text, char *word, const char **rest)
{
    size_t length = text_until(text, ' ');
    if (length >= WORD_BYTES)
        return false;
    memcpy(word, text, length);
    word[length] = '\0';
    *rest = text[length] == ' ' && text[length + 1] != '\0' ? text + length + 1 : NULL;
    return true;
}

static void answer_set(struct answer *answer, const char *argument)
{
    char key[WORD_BYTES];
    const char *value = NULL;
    int error = argument == NULL                ? EINVAL
                : !split(argument, key, &value) ? ENOENT
                : value == NULL                 ? EINVAL
                                                : control_set(key, value);
    if (error != 0)
        put_error(answer, error);
    else
        put_value(answer, key);
}

static void answer_do(struct answer *answer, const char *argument)
{
    char action[WORD_BYTES];
    const char *rest = NULL;
    if (argument == NULL || !split(argument, action, &rest)) {
        put_error(answer, argument ? ENOENT : EINVAL);
        return;
    }
    struct figures before;
    struct figures after;
    bool purges = text_equals(action, "purge") || text_equals(action, "thread.purge");
    if (purges)
        figures_read(&before);
    int error = control_do(action, rest);
    if (error != 0) {
        put_error(answer, error);
        return;
    }
    put(answer, "{\"ok\":true,\"action\":");
    put_string(answer, action);
    if (purges) {
        figures_read(&after);
        put(answer, ",");
        put_number(answer, "before_bytes", before.steering.counted_bytes);
        put(answer, ",");
        put_number(answer, "after_bytes", after.steering.counted_bytes);
        put(answer, ",");
        put_number(answer, "purged_bytes", after.heap.purged_bytes - before.heap.purged_bytes);
    }
    put(answer, "}");
}

static void answer_keys(struct answer *answer, const char *argument)
{
    char value[CAIRN_VALUE_BYTES];
    bool writable;
    (void)argument;
    put(answer, "{\"ok\":true,\"settings\":[");
    for (size_t i = 0; settings_name(i, &writable) != NULL; i++) {
        const char *name = settings_name(i, &writable);
        int error = control_get(name, value, sizeof value);
        put(answer, "%s{\"key\":\"%s\",\"value\":", i == 0 ? "" : ",", name);
        put_string(answer, error == 0 ? value : "");
        put(answer, ",\"writable\":%s}", writable ? "true" : "false");
    }
    put(answer, "],\"actions\":[");
    for (size_t i = 0; control_action(i) != NULL; i++)
        put(answer, "%s\"%s\"", i == 0 ? "" : ",", control_action(i));
    put(answer, "]}");
}

static void put_process(struct answer *answer)
{
    put(answer,
        "{\"ok\":true,\"version\":\"%s\",\"protocol\":1,\"pid\":%u,\"program\":", CAIRN_VERSION,
        os_process_id());
    put_string(answer, os_program_name());
}

static void answer_version(struct answer *answer, const char *argument)
{
    (void)argument;
    put_process(answer);
    put(answer, "}");
}

static void put_figures(struct answer *answer)
{
    struct figures figures;
    bool before = true;
    bool of_steering;
    figures_read(&figures);
    for (size_t i = 0; figures_key(i, &of_steering) != NULL; i++) {
        const char *name = figures_key(i, &of_steering) + FIGURE_PREFIX;
        put(answer, "%s",
            i == 0                  ? ",\"stats\":{"
            : before != of_steering ? "},\"steering\":{"
                                    : ",");
        if (i == 0)
            before = of_steering;
        put_number(answer, name, figures_value(&figures, i));
        before = of_steering;
    }
    put(answer, "}");
}

static void put_classes(struct answer *answer)
{
    cairn_heap_class_stats rows[CLASS_ROWS];
    size_t count = smaller_of(heap_read_classes(rows, CLASS_ROWS), (size_t)CLASS_ROWS);
    const char *comma = "";
    put(answer, ",\"classes\":[");
    for (size_t i = 0; i < count; i++) {
        const cairn_heap_class_stats *row = &rows[i];
        if (row->slabs == 0)
            continue;
        put(answer,
            "%s{\"block_bytes\":%zu,\"live_blocks\":%zu,\"free_blocks\":%zu,\"slabs\":%zu,"
            "\"slab_bytes\":%zu}",
            comma, row->block_bytes, row->live_blocks, row->free_blocks, row->slabs,
            row->slab_bytes);
        comma = ",";
    }
    put(answer, "]");
}

static void put_threads(struct answer *answer)
{
    cairn_heap_thread_stats rows[THREAD_ROWS];
    size_t all = heap_read_threads(rows, THREAD_ROWS);
    size_t count = smaller_of(all, (size_t)THREAD_ROWS);
    put(answer, ",\"threads\":[");
    for (size_t i = 0; i < count; i++) {
        const cairn_heap_thread_stats *row = &rows[i];
        put(answer,
            "%s{\"heap\":\"%p\",\"is_current\":%s,\"is_orphan\":%s,\"live_blocks\":%zu,"
            "\"live_bytes\":%zu,\"slabs\":%zu,\"slab_bytes\":%zu}",
            i == 0 ? "" : ",", (void *)(uintptr_t)row->heap, row->is_current ? "true" : "false",
            row->is_orphan ? "true" : "false", row->live_blocks, row->live_bytes, row->slabs,
            row->slab_bytes);
    }
    put(answer, "],");
    put_number(answer, "threads_left_out", all - count);
}

static void answer_stats(struct answer *answer, const char *argument)
{
    (void)argument;
    put_process(answer);
    put_figures(answer);
    put_classes(answer);
    put_threads(answer);
    put(answer, "}");
}

static const struct {
    char name[8];
    void (*write)(struct answer *answer, const char *argument); /* NULL: there is none */
    bool takes_argument;
} requests[] = {
    {"get", answer_get, true},
    {"set", answer_set, true},
    {"do", answer_do, true},
    {"keys", answer_keys, false},
    {"version", answer_version, false},
    {"stats", answer_stats, false},
};

static void write_answer(struct answer *answer, const char *request)
{
    char word[WORD_BYTES];
    const char *rest = NULL;
    if (text_length(request) > REQUEST_MOST) {
        put_error(answer, E2BIG);
        return;
    }
    if (!split(request, word, &rest)) {
        put_error(answer, ENOENT);
        return;
    }
    for (size_t i = 0; i < countof(requests); i++)
        if (text_equals(requests[i].name, word)) {
            if (rest && !requests[i].takes_argument)
                put_error(answer, EINVAL);
            else
                requests[i].write(answer, rest);
            return;
        }
    answer_do(answer, request);
}

size_t control_reply(const char *request, char *text, size_t capacity)
{
    struct answer answer = {text, capacity, 0, false};
    if (capacity == 0)
        return 0;
    write_answer(&answer, request);
    if (answer.full)
        put_error(&answer, ERANGE);
    if (answer.full)
        answer.length = 0;
    text[answer.length] = '\0';
    return answer.length;
}

api size_t cairn_control(const char *request, char *answer, size_t capacity)
{
    return control_reply(request, answer, capacity);
}
