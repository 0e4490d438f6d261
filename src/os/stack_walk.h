/* Stack walking without the C runtime's unwinder, which takes thousands of instructions a frame:
 * the rule of each return address (stack_rules.h) is learned once, and remembered. Only for os/.
 */
#ifndef CAIRN_OS_STACK_WALK_H
#define CAIRN_OS_STACK_WALK_H

#include "base/compiler.h"

/* The return addresses of this call's callers, innermost first, from `first` on, but for those
 * after it that lie between `own` and `own_end`; their number, or -1: the C runtime has to do it.
 * Reads between its caller's frame and the end of the thread's stack only, where memory is mapped.
 * No lock, no allocation; async-signal-safe; after stack_walk_prepare. */
int stack_walk(uintptr_t *frames, unsigned capacity, uintptr_t first, uintptr_t own,
               uintptr_t own_end);
void stack_walk_prepare(void);

/* The same with what the walk before has left in the memo: the first of its steps that are asked
 * for, from which on they are all of the caller's callers; or -1. `own`: this library; or NULL. */
struct os_stack_memo;
struct stack_object;
int stack_walk_again(struct os_stack_memo *memo, uintptr_t first, const struct stack_object *own);

/* The first return address that lies outside of this library, by its frame pointers; 0: ask
 * stack_walk. */
uintptr_t stack_walk_caller(const struct stack_object *own);

#endif
