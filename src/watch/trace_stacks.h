/* The stacks of a trace: each gets a number, and is written before the number is used.
 *
 * A table of fixed size leads from a stack's hash, of 64 bits, to its number. Two different stacks
 * with one hash are taken for one: with a million stacks that happens once in ten million traces. A
 * full set of neighbouring entries gives its first one away, and a stack that comes again gets
 * another number, of which the format allows several. So the memory is bounded, whatever comes.
 *
 * An entry's `hash` goes FREE or hash -> BUSY -> hash, by who writes it; `number` changes while it
 * is BUSY only, so who finds one hash before and after it has read the number has that hash's.
 * Chunks of stacks are held as lanes are (trace_lanes.h).
 */
#ifndef CAIRN_WATCH_TRACE_STACKS_H
#define CAIRN_WATCH_TRACE_STACKS_H

#include "base/compiler.h"

/* Memory for the table. 0 or a negative errno. */
int trace_stacks_make(void);

/* The number of the caller's callers, or 0: unknown. `own`: heap_traced_thread's. Any thread. */
struct traced_thread;
uint32_t trace_stacks_find(struct traced_thread *own);

/* The same of frames that are given. */
uint32_t trace_stacks_number(const uintptr_t *frames, unsigned depth, bool cut);

uint32_t trace_stacks_count(void); /* numbers that were given */

/* In the child of a fork: there are none. */
void trace_stacks_forget(void);

#endif
