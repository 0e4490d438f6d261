/* Messages and checks. Misuse by the caller ends the process with a message of one line. Broken
 * invariants of the library itself are assertions in debug builds.
 *
 * Messages are formatted without memory, locks or libc, so that they are written in any state of
 * the process.
 *
 * Threads: any, and any signal handler.
 */
#ifndef CAIRN_BASE_CHECK_H
#define CAIRN_BASE_CHECK_H

#include "base/compiler.h"

#include <stdarg.h>

/* Formats text into a buffer, which is always terminated by zero. Supports only %s %p %zu %u %d %x
 * %%.
 * Returns: the length written. */
size_t format_text(char *buffer, size_t capacity_bytes, const char *format, ...) print_like(3, 4);

/* Formats text like format_text, with the arguments in a list.
 * Returns: the length written. */
size_t format_text_list(char *buffer, size_t capacity_bytes, const char *format, va_list arguments);

/* Kinds of messages: an error is a fault of the program; a log message is any other. */
enum report_kind { REPORT_ERROR, REPORT_LOG, REPORT_KINDS };

/* Writes an error as one line "cairn: …" to stderr. */
void report_error(const char *format, ...) print_like(1, 2);

/* Writes a log message as one line "cairn: …" to stderr. */
void report(const char *format, ...) print_like(1, 2);

/* Writes a message of the given kind as one line "cairn: …" to stderr, with the arguments in a
 * list. */
void report_list(enum report_kind kind, const char *format, va_list arguments);

/* A function of the program that receives messages: include/cairn/callbacks.h. */
typedef void report_function(void *context, const char *line, size_t length);

/* Sets the receiver of one kind of messages, NULL for none. Errors are also written to stderr;
 * log messages are only passed to the receiver. */
void report_to(enum report_kind kind, report_function *function, void *context);

/* Writes an error as one line "cairn: …" to stderr and aborts, because the caller has broken the
 * contract of a function. */
no_return void die(const char *format, ...) print_like(1, 2) cold;

#define check_internal(condition)                                                                  \
    do {                                                                                           \
        if (config_debug && unlikely(!(condition)))                                                \
            die("internal error: %s:%d: %s", __FILE__, __LINE__, #condition);                      \
    } while (0)

#endif
