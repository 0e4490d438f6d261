/* Formatting and dying without help: see check.h. No state but who receives the lines; any thread,
 * any signal context. */
#include "base/check.h"

#include "base/atomic.h"
#include "base/host.h"

enum { LINE_BYTES = 512 };

struct text {
    char *at;
    char *end; /* last byte, kept for the terminator */
};

static void put_char(struct text *text, char value)
{
    if (text->at < text->end)
        *text->at++ = value;
}

static void put_string(struct text *text, const char *string)
{
    for (string = string ? string : "(null)"; *string; string++)
        put_char(text, *string);
}

static void put_number(struct text *text, uint64_t value, unsigned base)
{
    char digits[24];
    unsigned count = 0;
    do {
        digits[count++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    while (count > 0)
        put_char(text, digits[--count]);
}

static void put_signed(struct text *text, int value)
{
    if (value < 0)
        put_char(text, '-');
    put_number(text, value < 0 ? -(uint64_t)value : (uint64_t)value, 10);
}

size_t format_text_list(char *buffer, size_t capacity_bytes, const char *format, va_list arguments)
{
    struct text text = {buffer, buffer + capacity_bytes - 1};
    for (; *format; format++) {
        if (*format != '%') {
            put_char(&text, *format);
            continue;
        }
        format++;
        if (*format == 'z')
            format++; /* only ever %zu */
        if (*format == 's') {
            put_string(&text, va_arg(arguments, const char *));
        } else if (*format == 'p') {
            put_string(&text, "0x");
            put_number(&text, (uint64_t)(uintptr_t)va_arg(arguments, void *), 16);
        } else if (*format == 'u' && format[-1] == 'z') {
            put_number(&text, va_arg(arguments, size_t), 10);
        } else if (*format == 'u') {
            put_number(&text, va_arg(arguments, unsigned), 10);
        } else if (*format == 'x') {
            put_number(&text, va_arg(arguments, unsigned), 16);
        } else if (*format == 'd') {
            put_signed(&text, va_arg(arguments, int));
        } else {
            put_char(&text, *format);
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

/* Who gets the lines beside stderr, or in its place. */
static struct {
    report_function *function; /* atomic */
    void *context;             /* atomic: written before the function */
    uintptr_t called_by;       /* atomic: the thread that is within it */
} receivers[REPORT_KINDS];

void report_to(enum report_kind kind, report_function *function, void *context)
{
    store_relaxed(&receivers[kind].context, context);
    store_release(&receivers[kind].function, function); /* pairs with the acquire in tell */
}

/* Whether there was somebody to hear it. What he does wrong himself is not told to him. */
static bool tell(enum report_kind kind, const char *line, size_t length)
{
    report_function *function = load_acquire(&receivers[kind].function); /* pairs with report_to */
    if (likely(function == NULL))
        return false;
    uintptr_t self = thread_identity();
    if (load_relaxed(&receivers[kind].called_by) == self)
        return false;
    uintptr_t before = load_relaxed(&receivers[kind].called_by);
    store_relaxed(&receivers[kind].called_by, self);
    function(load_relaxed(&receivers[kind].context), line, length);
    store_relaxed(&receivers[kind].called_by, before);
    return true;
}

void report_list(enum report_kind kind, const char *format, va_list arguments)
{
    char line[LINE_BYTES];
    size_t length = format_text(line, sizeof line, "cairn: ");
    length += format_text_list(line + length, sizeof line - length - 1, format, arguments);
    if (kind == REPORT_LOG && tell(kind, line, length))
        return;
    line[length] = '\n';
    host_write_error(line, length + 1);
    line[length] = '\0';
    if (kind == REPORT_ERROR)
        (void)tell(kind, line, length);
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
