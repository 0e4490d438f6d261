/* Formatting and dying without help: see check.h. No state, any thread, any signal context. */
#include "base/check.h"

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

void report_list(const char *format, va_list arguments)
{
    char line[LINE_BYTES];
    size_t length = format_text(line, sizeof line, "cairn: ");
    length += format_text_list(line + length, sizeof line - length - 1, format, arguments);
    line[length++] = '\n';
    host_write_error(line, length);
}

void report(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report_list(format, arguments);
    va_end(arguments);
}

_Noreturn void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    report_list(format, arguments);
    va_end(arguments);
    host_abort();
}
