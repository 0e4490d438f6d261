/* Rules: how a return address leads to its caller, from the unwind tables (.eh_frame).
 *
 * A step has to know the end of the caller's frame (its CFA, canonical frame address), and the
 * places of the return address and of the caller's frame pointer. Compilers describe them in only a
 * few forms: those of struct unwind_rule. Any other form (a signal's frame, a function's own
 * computation) is UNWIND_UNKNOWN, and the C runtime walks that stack.
 *
 * Source: DWARF 5, section 6.4; Linux Standard Base 5.0, Core, 10.6 (.eh_frame, .eh_frame_hdr).
 * No state; async-signal-safe.
 */
#ifndef CAIRN_UNWIND_UNWIND_RULES_H
#define CAIRN_UNWIND_UNWIND_RULES_H

#include "base/compiler.h"

/* An object: the file of an address of code and its unwind tables (.eh_frame_hdr), as the dynamic
 * linker knows them. _dl_find_object is lock-free and safe in signal handlers; glibc has it since
 * 2.35. With another libc no object is known. */
struct unwind_object {
    uintptr_t start, end;                 /* range of its code, perhaps of all of it */
    uintptr_t readable_from, readable_to; /* range that contains its tables and is readable */
    uintptr_t tables;                     /* address of its .eh_frame_hdr */
    uint64_t tag; /* differs from the tag of another object that is mapped at this place later */
};

/* const after unwind_objects_prepare: the program's own code, which is never unloaded; empty if
 * it is not known */
extern hidden_data struct unwind_object stack_program;

/* Finds the object of an address, after unwind_objects_prepare. Async-signal-safe.
 * Returns: false when there is none or it is not known. */
bool unwind_object_of(uintptr_t address, struct unwind_object *object);

/* Finds the program and its tables.
 * Threads: one, at most once. */
void unwind_objects_prepare(void);

/* How the CFA is found. */
enum stack_step {
    UNWIND_UNKNOWN,    /* described in no form that is known here */
    UNWIND_END,        /* there is no caller */
    UNWIND_BY_STACK,   /* CFA = stack pointer + cfa */
    UNWIND_BY_FRAME,   /* CFA = frame pointer + cfa */
    UNWIND_BY_POINTER, /* CFA = word at frame pointer + cfa: the function aligned its stack */
};

/* The place of the caller's frame pointer: unchanged, or at an offset from the CFA or from the
 * frame pointer. */
enum stack_frame_pointer { FRAME_POINTER_KEPT, FRAME_POINTER_BY_CFA, FRAME_POINTER_BY_FRAME };

/* A rule for one step. Offsets are in words. A rule is one word, so that it is remembered by one
 * store. */
struct unwind_rule {
    uint8_t step;               /* enum stack_step */
    uint8_t frame_pointer_kind; /* enum stack_frame_pointer */
    int16_t cfa;                /* offset of the CFA */
    int16_t return_address;     /* offset from the CFA */
    int16_t frame_pointer;      /* offset from the CFA or the frame pointer */
};
static_check(sizeof(struct unwind_rule) == sizeof(uint64_t), "one word");

/* Computes the rule for a return address in an object. Reads only the readable range of the
 * object. */
struct unwind_rule unwind_rule_of(uintptr_t return_address, const struct unwind_object *object);

#endif
