/* Text in a trace: what was run, and which files the process's code is mapped from.
 *
 * The mappings are written before the first stack is, and again when a stack comes through a file
 * that was loaded since, before that stack is. One thread at a time; another one that comes
 * meanwhile goes on, and the next new stack is looked at again. A library that was unloaded, and
 * another one of the same name at its place, are one to it.
 */
#ifndef CAIRN_WATCH_TRACE_MODULES_H
#define CAIRN_WATCH_TRACE_MODULES_H

#include "base/compiler.h"

int trace_modules_make(void);   /* memory; 0 or a negative errno */
void trace_modules_begin(void); /* writes the first lines; no file is known yet */

/* Return addresses of a stack that is about to be written; *stacks, atomic, is how many have got a
 * number: mappings are for those that come after them. Any thread. False: not looked at. */
bool trace_modules_see(const uintptr_t *frames, unsigned depth, const uint32_t *stacks);

#endif
