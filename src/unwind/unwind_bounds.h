/* Bounds: the memory that the walk of a stack may read.
 *
 * The stack of a thread ends below its thread pointer; the stack of the first thread ends below the
 * random bytes that the kernel stored there. The nearest of these two addresses above the stack
 * pointer is the end. If the stack is the thread's own, all memory from the stack pointer to the
 * end is readable: this is checked once in the life of a thread, and again where the stack has
 * grown.
 *
 * A stack of the program's own, such as a coroutine's, is somewhere below. Such a stack is
 * recognised by an unreadable address between it and the end, and this is remembered too. On such a
 * stack a walk checks each page that it reads, each time, because the program may unmap it at any
 * time. If a program gave a thread a stack without a guard page, and another stack is right below
 * it, nothing separates them: that one is read like the thread's own.
 *
 * Threads: any, each for its own stack. Async-signal-safe.
 */
#ifndef CAIRN_UNWIND_UNWIND_BOUNDS_H
#define CAIRN_UNWIND_UNWIND_BOUNDS_H

#include "base/compiler.h"

/* The bounds of one walk, in memory of the walking thread. */
struct unwind_bounds {
    uintptr_t end;      /* highest possible end of the stack */
    uintptr_t readable; /* addresses below this one are readable; equal to `end` if the stack is the
                           thread's own */
    bool at_hole;       /* whether the address that a read needed cannot be read */
};

/* Finds the bounds for a stack pointer of this thread, after unwind_bounds_prepare.
 * Returns: false when there is no end above it. */
bool unwind_bounds_find(struct unwind_bounds *bounds, uintptr_t stack);

/* Reads what the kernel says about the first thread's stack. `in_first_thread`: the caller is that
 * thread.
 * Threads: one, before other functions of this file. */
void unwind_bounds_prepare(bool in_first_thread);

/* Whether the kernel says that the word at `at` cannot be read. False if the kernel does not
 * answer, because a filter of system calls may forbid the question. */
bool unwind_bounds_is_hole(const struct unwind_bounds *bounds, uintptr_t at);

/* Checks whether the word at `at`, beyond `readable`, can be read, and raises `readable`. */
bool unwind_bounds_extend(struct unwind_bounds *bounds, uintptr_t at);

/* Forgets what is known about this thread's stack. Called at the beginning and at the end of a
 * thread, because another thread's stack may have been or will be at the same place. */
void unwind_forget_thread(void);

#endif
