/* Which memory the walk of a stack may read. Only for os/.
 *
 * A thread's stack ends below its thread pointer; the first thread's ends below the random bytes
 * that the kernel left there. Which of the two lies nearest above the stack pointer is the end.
 * From the stack pointer to there all of it can be read, if that is the thread's own stack: this is
 * looked at once in a thread's life, and again where the stack has grown.
 *
 * A stack of the program's own (a coroutine) lies somewhere below. What keeps it apart is that not
 * all memory up to the end can be read, and this is remembered, too. Of such a stack a walk looks
 * at each page that it comes to, each time: it may be unmapped at any time. A stack that a program
 * gave to a thread without a guard page has nothing that keeps it apart from one that lies right
 * below: that one is read like the thread's own.
 */
#ifndef CAIRN_OS_STACK_BOUNDS_H
#define CAIRN_OS_STACK_BOUNDS_H

#include "base/compiler.h"

struct stack_bounds {
    uintptr_t end;      /* of the stack, at most */
    uintptr_t readable; /* to here it was looked at; the end: it is the thread's own */
    bool at_hole;       /* what follows there, or what was asked for, cannot be read */
};

/* For a stack pointer of this thread. False: there is no end above it. After stack_bounds_prepare;
 * async-signal-safe. */
bool stack_bounds_find(struct stack_bounds *bounds, uintptr_t stack);
void stack_bounds_prepare(bool in_first_thread);

/* Whether there is nothing to be read, and the kernel says so: a filter may forbid to ask. */
bool stack_bounds_is_hole(const struct stack_bounds *bounds, uintptr_t at);

/* Whether the word beyond `readable` can be read. */
bool stack_bounds_extend(struct stack_bounds *bounds, uintptr_t at);

#endif
