/* The end of the road: misuse by the caller dies with one line, our own broken invariants assert in
 * debug builds.
 *
 * Messages are formatted without memory, locks or libc, so that they come out in any state of the
 * process.
 */
#ifndef CAIRN_BASE_CHECK_H
#define CAIRN_BASE_CHECK_H

#include "base/compiler.h"

#include <stdarg.h>

/* Formats %s %p %zu %u %d %x %%, nothing else; always terminates. Returns the length written. */
size_t format_text(char *buffer, size_t capacity_bytes, const char *format, ...) print_like(3, 4);
size_t format_text_list(char *buffer, size_t capacity_bytes, const char *format, va_list arguments);

/* One line "cairn: …" on stderr: of a fault of the program's, and any other. */
enum report_kind { REPORT_ERROR, REPORT_LOG, REPORT_KINDS };
void report_error(const char *format, ...) print_like(1, 2);
void report(const char *format, ...) print_like(1, 2);
void report_list(enum report_kind kind, const char *format, va_list arguments);

/* Who is told errors, too, and gets the other lines instead: include/cairn/callbacks.h. NULL: none.
 */
typedef void report_function(void *context, const char *line, size_t length);
void report_to(enum report_kind kind, report_function *function, void *context);

/* One line "cairn: …" on stderr, then abort: the caller broke the contract of a function. */
no_return void die(const char *format, ...) print_like(1, 2) cold;

#define check_internal(condition)                                                                  \
    do {                                                                                           \
        if (config_debug && unlikely(!(condition)))                                                \
            die("internal error: %s:%d: %s", __FILE__, __LINE__, #condition);                      \
    } while (0)

#endif
