/* Guarded blocks: one block in the pages of a slot (guarded_slots.h).
 *
 * A block stands at the right end of its slot's pages, as near as its alignment lets it, or now and
 * then at the left start; what its pages hold beside it is filled with a pattern that is checked
 * when it is freed. A freed slot is inaccessible and keeps both stacks until it is used again.
 *
 * Any thread; all of it may run together. allocate and free make system calls and walk the stack:
 * some microseconds.
 */
#ifndef CAIRN_WATCH_GUARDED_BLOCKS_H
#define CAIRN_WATCH_GUARDED_BLOCKS_H

#include "base/compiler.h"

/* As struct heap_sampler (heap/sampling.h) wants them; after guarded_start. NULL also when the
 * block is too large, every slot is in use, or this thread is in here already. */
struct span;
void *guarded_allocate(size_t size_bytes, size_t alignment_bytes);
void guarded_free(void *pointer, struct span *span);
bool guarded_check(const void *pointer, const struct span *span, const char *operation);

#endif
