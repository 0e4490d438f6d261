/* Stack walking without the C runtime's unwinder, which takes thousands of instructions a frame:
 * of the unwind tables that every program has (.eh_frame) what a step needs is learned once for
 * each return address, and remembered. Only for os/.
 *
 * A step needs to know where the caller's frame ends (its CFA, canonical frame address), and where
 * the return address and the caller's frame pointer lie. Compilers say that in few forms only:
 * those of struct stack_rule. Whatever they say otherwise (a signal's frame, a function's own
 * computation) is STACK_UNKNOWN, and the C runtime walks that stack.
 *
 * Source: DWARF 5, section 6.4; Linux Standard Base 5.0, Core, 10.6 (.eh_frame, .eh_frame_hdr).
 */
#ifndef CAIRN_OS_STACK_WALK_H
#define CAIRN_OS_STACK_WALK_H

#include "base/compiler.h"

enum stack_step {
    STACK_UNKNOWN,    /* said in no form that is known here */
    STACK_END,        /* there is no caller */
    STACK_BY_STACK,   /* CFA = stack pointer + cfa */
    STACK_BY_FRAME,   /* CFA = frame pointer + cfa */
    STACK_BY_POINTER, /* CFA is what lies at frame pointer + cfa: the stack was aligned */
};

/* Where the caller's frame pointer is. */
enum stack_frame_pointer { FRAME_POINTER_KEPT, FRAME_POINTER_BY_CFA, FRAME_POINTER_BY_FRAME };

/* One step. Offsets are in words; a whole word, so that it is remembered by one store. */
struct stack_rule {
    uint8_t step;
    uint8_t frame_pointer_kind;
    int16_t cfa;
    int16_t return_address; /* from the CFA */
    int16_t frame_pointer;  /* from the CFA or the frame pointer */
};
static_check(sizeof(struct stack_rule) == sizeof(uint64_t), "one word");

/* A file that code was mapped from, or a part of it. */
struct stack_object {
    uintptr_t start, end;                 /* of its code, perhaps of all of it */
    uintptr_t readable_from, readable_to; /* its tables lie in there */
    uintptr_t tables;                     /* its .eh_frame_hdr */
    uint64_t tag; /* differs where other tables are at the same place later */
};

/* Looks at the object's tables only, where they are readable. Async-signal-safe. */
struct stack_rule stack_rule_of(uintptr_t return_address, const struct stack_object *object);

/* The object of the address; false: there is none, or the libc does not say. */
bool stack_object_of(uintptr_t address, struct stack_object *object);

/* The return addresses of this call's callers, innermost first, from `first` on, but for those
 * after it that lie between `own` and `own_end`; their number, or -1: the C runtime has to do it.
 * Reads between its caller's frame and the end of the thread's stack only, where memory is mapped.
 * No lock, no allocation; async-signal-safe; after stack_walk_prepare. */
int stack_walk(uintptr_t *frames, unsigned capacity, uintptr_t first, uintptr_t own,
               uintptr_t own_end);
void stack_walk_prepare(void);

/* The same with what the walk before has left in the memo: the first of its steps that are asked
 * for, from which on they are all of the caller's callers; or -1. */
struct os_stack_memo;
int stack_walk_again(struct os_stack_memo *memo, uintptr_t first, uintptr_t own, uintptr_t own_end);

#endif
