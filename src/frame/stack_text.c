/* Formatted strings on a stack: see cairn/stack.h. Most are short and take one pass of vsnprintf.
 */
#include "cairn/stack.h"

#include "base/compiler.h"

#include <stdio.h>

enum { SHORT_TEXT_BYTES = 128 };

api char *cairn_stack_vprintf(cairn_stack *stack, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    char short_text[SHORT_TEXT_BYTES];
    int length = vsnprintf(short_text, sizeof short_text, format, arguments);
    char *text = length < 0 ? NULL : cairn_stack_alloc_slow(stack, (size_t)length + 1, 1);
    if (text && (size_t)length < sizeof short_text)
        __builtin_memcpy(text, short_text, (size_t)length + 1);
    else if (text)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

api char *cairn_stack_printf(cairn_stack *stack, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = cairn_stack_vprintf(stack, format, arguments);
    va_end(arguments);
    return text;
}
