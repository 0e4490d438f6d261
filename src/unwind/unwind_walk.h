/* The walk: one step for each caller, by rules that are computed once and remembered
 * (unwind_rules.h). The unwinder of the C runtime takes thousands of instructions for a frame.
 *
 * Threads: any, each for its own stack. Lock-free, allocates nothing, async-signal-safe.
 */
#ifndef CAIRN_UNWIND_UNWIND_WALK_H
#define CAIRN_UNWIND_UNWIND_WALK_H

#include "base/compiler.h"
#include "unwind/unwind_bounds.h"
#include "unwind/unwind_rules.h"

#if __has_attribute(no_sanitize)
#define reads_stack __attribute__((no_sanitize("address"), no_sanitize("thread")))
#else
#define reads_stack
#endif

enum { UNWIND_OBJECTS_MAX = 8 /* objects that one walk remembers */ };

/* The state of a walk, in memory of the walking thread. */
struct unwind_walker {
    uintptr_t address, stack, frame;          /* registers of the current caller */
    uintptr_t address_at, frame_at, stack_at; /* where these were read; 0: not read */
    struct unwind_bounds bounds;
    const struct unwind_object *object;               /* object of the last rule; NULL: none */
    struct unwind_object objects[UNWIND_OBJECTS_MAX]; /* objects that the walk has found */
    unsigned object_count;
    bool by_frame; /* whether the last step used the frame pointer */
};

/* Reads the registers of the calling function, all at one place of its code. */
#if defined(__x86_64__)
#define stack_take_registers(walk)                                                                 \
    __asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"                          \
                     : "=&r"((walk)->address), "=&r"((walk)->stack), "=&r"((walk)->frame))
#else
#define stack_take_registers(walk)                                                                 \
    __asm__ volatile("adr %0, .+4\n\tmov %1, sp\n\tmov %2, x29"                                    \
                     : "=&r"((walk)->address), "=&r"((walk)->stack), "=&r"((walk)->frame))
#endif

/* Begins a walk at the registers of stack_take_registers.
 * Returns: false when the bounds of the stack are not known. */
inline_always bool unwind_walk_begin(struct unwind_walker *walk)
{
    walk->object = NULL;
    walk->object_count = 0;
    return unwind_bounds_find(&walk->bounds, walk->stack);
}

/* Results of a step. UNWIND_LOST: no rule is known here, and the C runtime may find the caller.
 * UNWIND_ENDED also where the caller would be behind an unreadable address: the outermost frame
 * of a coroutine may lead there, because its function never returns, and the C runtime would
 * read it. */
enum unwind_went { UNWIND_WENT, UNWIND_ENDED, UNWIND_LOST };

/* Goes one step outwards, to the caller's caller. */
enum unwind_went unwind_walk_out(struct unwind_walker *walk);

/* Goes from the frame of a function of this library, which is compiled with frame pointers, to the
 * first caller outside of it. `address` is a return address in that function, or 0 for a function
 * that calls other functions of this library.
 * Returns: false when a frame has no frame pointer. */
bool unwind_walk_leave(struct unwind_walker *walk, uintptr_t frame, uintptr_t address,
                       const struct unwind_object *own);

/* A return address without its signature, which aarch64 may have stored in the bits above an
 * address. */
inline_always uintptr_t stack_plain_address(uintptr_t address)
{
#if defined(__aarch64__)
    register uintptr_t x30 __asm__("x30") = address;
    __asm__("hint #7" : "+r"(x30)); /* xpaclri */
    address = x30;
#endif
    return address;
}

/* Stores the return addresses of the callers of this call, innermost first, from `first` on,
 * without those right after it that are between `own` and `own_end`. Reads only between its
 * caller's frame and the end of the thread's stack, where that is readable. After
 * unwind_bounds_prepare.
 * Returns: their number; -1 when only the C runtime may find them. */
int unwind_walk(uintptr_t *frames, unsigned capacity, uintptr_t first, uintptr_t own,
                uintptr_t own_end);

#endif
