/* The stack that every thread has: see cairn/scope.h.
 *
 * Its head, which the inline functions work on, is thread-local memory; the rest is as for every
 * stack. Before the first use and after the thread's end the head belongs to a stack that is
 * nobody's and has no room, so the fast paths have no test for that. The stack is deleted at the
 * thread's end, by a pthread key of our own; what other destructors allocate later makes a new one,
 * which goes in the next round of destructors. Hooks that are left run before, with the stack
 * whole.
 */
#include "cairn/scope.h"

#include "frame/stack_state.h"

#include <errno.h>
#include <pthread.h>

static struct cairn_stack_frame nothing;
static struct stack no_stack = {.own = {.frame = &nothing, .owner = &nothing, .inside = &no_stack},
                                .head = &no_stack.own,
                                .name =
                                    "thread"}; /* const: no thread owns it, so nothing writes it */

api __thread cairn_stack cairn_thread_stack_head __attribute__((tls_model("initial-exec"))) = {
    .frame = &nothing, .owner = &nothing, .inside = &no_stack};

static pthread_key_t end_key;
static pthread_once_t end_once = PTHREAD_ONCE_INIT;
static bool end_key_made; /* const after end_once */

static void at_thread_end(void *head) /* which is this thread's */
{
    stack_end(stack_of(head));
    cairn_thread_stack_head = no_stack.own;
}

static void make_end_key(void) { end_key_made = pthread_key_create(&end_key, at_thread_end) == 0; }

api cairn_stack *cairn_thread_stack(void)
{
    cairn_stack *head = &cairn_thread_stack_head;
    if (likely(head->inside != &no_stack))
        return head;
    pthread_once(&end_once, make_end_key);
    if (stack_make(&(cairn_stack_options){.name = "thread"}, head) == NULL)
        return NULL;
    /* Unknown to the thread's end it would leak; then rather no stack. Without a key (all are in
     * use) it does leak. */
    if (end_key_made && pthread_setspecific(end_key, head) != 0) {
        at_thread_end(head);
        return frame_no_memory();
    }
    return head;
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

api int cairn_scope_defer(void (*function)(void *context), void *context)
{
    cairn_stack *stack = cairn_thread_stack();
    return stack ? cairn_stack_defer(stack, function, context) : ENOMEM;
}

api char *cairn_scope_vprintf(const char *format, va_list arguments)
{
    cairn_stack *stack = cairn_thread_stack();
    return stack ? cairn_stack_vprintf(stack, format, arguments) : NULL;
}

api char *cairn_scope_printf(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    char *text = cairn_scope_vprintf(format, arguments);
    va_end(arguments);
    return text;
}
