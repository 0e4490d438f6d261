/* Stack walking without the C runtime's unwinder, which takes thousands of instructions a frame:
 * the rule of each return address (stack_rules.h) is learned once, and remembered. Only for os/.
 */
#ifndef CAIRN_OS_STACK_WALK_H
#define CAIRN_OS_STACK_WALK_H

#include "base/compiler.h"
#include "os/stack_bounds.h"
#include "os/stack_object.h"

#if __has_attribute(no_sanitize)
#define reads_stack __attribute__((no_sanitize("address"), no_sanitize("thread")))
#else
#define reads_stack
#endif

enum { STACK_OBJECTS_MOST = 8 /* of one walk, remembered during it */ };

/* Where a walk is. */
struct stack_walker {
    uintptr_t address, stack, frame;          /* of the caller that is looked at */
    uintptr_t address_at, frame_at, stack_at; /* where they were read; 0: not read */
    struct stack_bounds bounds;
    const struct stack_object *object;
    struct stack_object objects[STACK_OBJECTS_MOST];
    unsigned object_count;
    bool by_frame; /* the step before used the frame pointer */
};

/* The registers of a function, all at one place of its code. */
#if defined(__x86_64__)
#define stack_take_registers(walk)                                                                 \
    __asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"                          \
                     : "=&r"((walk)->address), "=&r"((walk)->stack), "=&r"((walk)->frame))
#else
#define stack_take_registers(walk)                                                                 \
    __asm__ volatile("adr %0, .+4\n\tmov %1, sp\n\tmov %2, x29"                                    \
                     : "=&r"((walk)->address), "=&r"((walk)->stack), "=&r"((walk)->frame))
#endif

/* False: no walk from the stack pointer that was taken. */
inline_always bool stack_walk_begin(struct stack_walker *walk)
{
    walk->object = NULL;
    walk->object_count = 0;
    return stack_bounds_find(&walk->bounds, walk->stack);
}

/* To the caller's caller. What lies beyond a hole, or where nothing is, is none: a coroutine's
 * outermost frame may lead there, since its code returns to nobody, and the C runtime would read
 * it. */
enum stack_went { STACK_WENT, STACK_ENDED, STACK_LOST }; /* LOST: the C runtime has to do it */
enum stack_went stack_walk_out(struct stack_walker *walk);

/* From the frame of a function of this library, which is compiled with frame pointers, to the first
 * caller outside of it. `address`: a return address to that function, or 0 for one that calls
 * others of the library's. False: it has frames without. */
bool stack_walk_leave(struct stack_walker *walk, uintptr_t frame, uintptr_t address,
                      const struct stack_object *own);

/* aarch64 may have signed it, in the bits above an address. */
inline_always uintptr_t stack_plain_address(uintptr_t address)
{
#if defined(__aarch64__)
    register uintptr_t x30 __asm__("x30") = address;
    __asm__("hint #7" : "+r"(x30)); /* xpaclri */
    address = x30;
#endif
    return address;
}

/* The return addresses of this call's callers, innermost first, from `first` on, but for those
 * after it that lie between `own` and `own_end`; their number, or -1: the C runtime has to do it.
 * Reads between its caller's frame and the end of the thread's stack only, where that can be read.
 * No lock, no allocation; async-signal-safe; after stack_bounds_prepare. */
int stack_walk(uintptr_t *frames, unsigned capacity, uintptr_t first, uintptr_t own,
               uintptr_t own_end);

/* The first return address that lies outside of this library, by its frame pointers; 0: ask
 * stack_walk. */
uintptr_t stack_walk_caller(const struct stack_object *own);

#endif
