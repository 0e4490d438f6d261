/* Stacks: the return addresses of the functions that called the library. src/unwind/README.md
 * explains the parts.
 *
 * Threads: any. Lock-free and async-signal-safe after unwind_prepare.
 */
#ifndef CAIRN_UNWIND_UNWIND_H
#define CAIRN_UNWIND_UNWIND_H

#include "unwind/unwind_bounds.h"
#include "unwind/unwind_cache.h"

/* Prepares the other functions, once. May allocate, and takes the lock of the dynamic linker. */
void unwind_prepare(void);

/* Stores the return addresses of the caller's callers, innermost first, without those within this
 * library. If `instruction` is one of them, the stack begins there; 0 for the whole stack.
 * Returns: their number; 0 in programs without a dynamic linker. */
unsigned unwind_stack(uintptr_t *frames, unsigned capacity, uintptr_t instruction);

/* Finds the stack of the calling thread with a cache, whose repeated stacks cost a few loads for
 * each frame. The cache is zero at first, belongs to the caller, and serves one thread at a time.
 * `thread` is a number that no other thread of the process has or had, 0 for none.
 * Returns: the step of the innermost of the caller's callers. The steps outwards from it are all
 * others, `depth` together, and its hash is a hash of their addresses. It is valid until the
 * next call. NULL when the cache cannot find the stack; then unwind_stack may. */
struct unwind_step *unwind_cached(struct unwind_cache *cache, uint32_t thread);

#endif
