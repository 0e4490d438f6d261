/* Formatting and messages without libc: see check.h. The only state is the receivers of
 * messages. */
#include "base/check.h"

#include "base/atomic.h"
#include "base/callback.h"
#include "base/host.h"

enum { LINE_BYTES = 512 };

struct text {
    char *at;
    char *end; /* last byte, reserved for the terminator */
};

static void check_put_char(struct text *text, char value)
{
    if (text->at < text->end)
        *text->at++ = value;
}

static void check_put_string(struct text *text, const char *string)
{
    for (string = string ? string : "(null)"; *string; string++)
        check_put_char(text, *string);
}

static void check_put_number(struct text *text, uint64_t value, unsigned base)
{
    char digits[24];
    unsigned count = 0;
    do {
        digits[count++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    while (count > 0)
        check_put_char(text, digits[--count]);
}

static void check_put_signed(struct text *text, int value)
{
    if (value < 0)
        check_put_char(text, '-');
    check_put_number(text, value < 0 ? -(uint64_t)value : (uint64_t)value, 10);
}

size_t format_text_list(char *buffer, size_t capacity_bytes, const char *format, va_list arguments)
{
    struct text text = {buffer, buffer + capacity_bytes - 1};
    for (; *format; format++) {
        if (*format != '%') {
            check_put_char(&text, *format);
            continue;
        }
        format++;
        if (*format == 'z')
            format++; /* only %zu is used */
        if (*format == 's') {
            check_put_string(&text, va_arg(arguments, const char *));
        } else if (*format == 'p') {
            check_put_string(&text, "0x");
            check_put_number(&text, (uint64_t)(uintptr_t)va_arg(arguments, void *), 16);
        } else if (*format == 'u' && format[-1] == 'z') {
            check_put_number(&text, va_arg(arguments, size_t), 10);
        } else if (*format == 'u') {
            check_put_number(&text, va_arg(arguments, unsigned), 10);
        } else if (*format == 'x') {
            check_put_number(&text, va_arg(arguments, unsigned), 16);
        } else if (*format == 'd') {
            check_put_signed(&text, va_arg(arguments, int));
        } else {
            check_put_char(&text, *format);
        }
    }
    *text.at = '\0';
    return (size_t)(text.at - buffer);
}

size_t format_text(char *buffer, size_t capacity_bytes, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    size_t length = format_text_list(buffer, capacity_bytes, format, arguments);
    va_end(arguments);
    return length;
}

/* Threads that are noted while they are in a receiver. If there are more, the others call it
 * without being noted. */
enum { CALLERS_MAX = 8 };

/* The receivers of messages, by kind. */
static struct {
    struct callback callback;       /* a report_function */
    uintptr_t callers[CALLERS_MAX]; /* atomic: the threads that are in the receiver; 0: none */
} receivers[REPORT_KINDS];

void report_to(enum report_kind kind, report_function *function, void *context)
{
    callback_set(&receivers[kind].callback, (callback_function *)function, context);
}

/* Notes that this thread calls a receiver.
 * Returns: its place among the callers; NULL if all are taken. */
static uintptr_t *check_note_caller(enum report_kind kind, uintptr_t self)
{
    for (unsigned i = 0; i < CALLERS_MAX; i++) {
        uintptr_t none = 0;
        if (compare_swap_acq_rel(&receivers[kind].callers[i], &none, self))
            return &receivers[kind].callers[i];
    }
    return NULL;
}

/* Passes a message to its receiver. Messages about faults of the receiver itself are not passed to
 * it.
 * Returns: whether the message was passed. */
static bool check_report(enum report_kind kind, const char *line, size_t length)
{
    struct callback_pair receiver = callback_read(&receivers[kind].callback);
    if (likely(receiver.function == NULL))
        return false;
    uintptr_t self = thread_identity();
    for (unsigned i = 0; i < CALLERS_MAX; i++)
        if (load_relaxed(&receivers[kind].callers[i]) == self)
            return false;
    uintptr_t *caller = check_note_caller(kind, self);
    ((report_function *)receiver.function)(receiver.context, line, length);
    if (caller)
        store_relaxed(caller, (uintptr_t)0);
    return true;
}

void report_list(enum report_kind kind, const char *format, va_list arguments)
{
    char line[LINE_BYTES];
    size_t length = format_text(line, sizeof line, "cairn: ");
    length += format_text_list(line + length, sizeof line - length - 1, format, arguments);
    if (kind == REPORT_LOG && check_report(kind, line, length))
        return;
    line[length] = '\n';
    host_write_error(line, length + 1);
    line[length] = '\0';
    if (kind == REPORT_ERROR)
        (void)check_report(kind, line, length);
}

void report(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report_list(REPORT_LOG, format, arguments);
    va_end(arguments);
}

void report_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report_list(REPORT_ERROR, format, arguments);
    va_end(arguments);
}

_Noreturn void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report_list(REPORT_ERROR, format, arguments);
    va_end(arguments);
    host_abort();
}
