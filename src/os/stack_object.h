/* Where the unwind tables (.eh_frame_hdr) of an address of code lie, as the dynamic linker tells
 * it. Only for os/.
 *
 * _dl_find_object is lock-free and safe in signal handlers; glibc has it since 2.35. With another
 * libc no object is known.
 */
#ifndef CAIRN_OS_STACK_OBJECT_H
#define CAIRN_OS_STACK_OBJECT_H

#include "base/compiler.h"

/* A file that code was mapped from, or a part of it. */
struct stack_object {
    uintptr_t start, end;                 /* of its code, perhaps of all of it */
    uintptr_t readable_from, readable_to; /* its tables lie in there */
    uintptr_t tables;                     /* its .eh_frame_hdr */
    uint64_t tag; /* differs where other tables are at the same place later */
};

/* The program's own code, which is never unloaded; empty where it is not known. Const after
 * stack_objects_prepare. */
extern hidden_data struct stack_object stack_program;

/* The object of the address; false: there is none, or the libc does not say. Async-signal-safe,
 * after stack_objects_prepare. */
bool stack_object_of(uintptr_t address, struct stack_object *object);
void stack_objects_prepare(void); /* one thread; at most once */

#endif
