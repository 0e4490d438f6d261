/* The stack that every thread has: see cairn/scope.h.
 *
 * The thread's word points at its stack; before the first use and after the thread's end at a stack
 * that belongs to nobody, so the fast paths have no null test. The stack is deleted at the thread's
 * end, by a pthread key of our own; what other destructors allocate later makes a new one, which
 * goes in the next round of destructors.
 */
#include "cairn/scope.h"

#include "base/check.h"
#include "frame/stack_state.h"

#include <pthread.h>
#include <stdio.h>

static struct cairn_stack_frame nothing;
static struct stack no_stack = {.head.frame = &nothing,
                                .name = "thread"}; /* const: no owner, so nothing writes it */

api __thread cairn_stack *cairn_thread_stack_word __attribute__((tls_model("initial-exec"))) =
    &no_stack.head;

static pthread_key_t end_key;
static pthread_once_t end_once = PTHREAD_ONCE_INIT;
static bool end_key_made; /* const after end_once */

static void at_thread_end(void *stack)
{
    if (cairn_thread_stack_word == stack)
        cairn_thread_stack_word = &no_stack.head;
    cairn_stack_delete(stack);
}

static void make_end_key(void) { end_key_made = pthread_key_create(&end_key, at_thread_end) == 0; }

api cairn_stack *cairn_thread_stack(void)
{
    if (likely(cairn_thread_stack_word != &no_stack.head))
        return cairn_thread_stack_word;
    pthread_once(&end_once, make_end_key);
    cairn_stack *stack = cairn_stack_new(&(cairn_stack_options){.name = "thread"});
    if (stack == NULL)
        return NULL;
    /* Unknown to the thread's end it would leak; then rather no stack. Without a key (all are in
     * use) it does leak. */
    if (end_key_made && pthread_setspecific(end_key, stack) != 0) {
        cairn_stack_delete(stack);
        return frame_no_memory();
    }
    cairn_thread_stack_word = stack;
    return stack;
}

api cairn_mark cairn_thread_stack_push(void)
{
    cairn_stack *stack = cairn_thread_stack();
    return stack ? cairn_stack_push_slow(stack) : (cairn_mark){0};
}

api void *cairn_thread_stack_alloc(size_t size, size_t align)
{
    cairn_stack *stack = cairn_thread_stack();
    return stack ? cairn_stack_alloc_slow(stack, size, align) : NULL;
}

api void *cairn_thread_stack_realloc(void *pointer, size_t old_size, size_t new_size, size_t align)
{
    cairn_stack *stack = cairn_thread_stack();
    return stack ? cairn_stack_realloc(stack, pointer, old_size, new_size, align) : NULL;
}

api char *cairn_thread_stack_vprintf(const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    char short_text[128];
    int length = vsnprintf(short_text, sizeof short_text, format, arguments);
    char *text = length < 0 ? NULL : cairn_thread_stack_alloc((size_t)length + 1, 1);
    if (text && (size_t)length < sizeof short_text)
        __builtin_memcpy(text, short_text, (size_t)length + 1);
    else if (text)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

api char *cairn_thread_stack_printf(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = cairn_thread_stack_vprintf(format, arguments);
    va_end(arguments);
    return text;
}
