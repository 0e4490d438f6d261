/* From unwind tables (.eh_frame) to a rule: how a return address leads to its caller. Only for os/.
 *
 * A step needs to know where the caller's frame ends (its CFA, canonical frame address), and where
 * the return address and the caller's frame pointer lie. Compilers say that in few forms only:
 * those of struct stack_rule. Whatever they say otherwise (a signal's frame, a function's own
 * computation) is STACK_UNKNOWN, and the C runtime walks that stack.
 *
 * Source: DWARF 5, section 6.4; Linux Standard Base 5.0, Core, 10.6 (.eh_frame, .eh_frame_hdr).
 */
#ifndef CAIRN_OS_STACK_RULES_H
#define CAIRN_OS_STACK_RULES_H

#include "os/stack_object.h"

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

/* Looks at the object's tables only, where they are readable. Async-signal-safe. */
struct stack_rule stack_rule_of(uintptr_t return_address, const struct stack_object *object);

#endif
