/* Stacks: by the walk of stack_walk.h, and where that does not know how, by the unwinder that libc
 * brings. Debian's programs are compiled without frame pointers.
 *
 * backtrace() loads libgcc_s at its first call; from then on it neither allocates nor locks, unless
 * the process has registered unwind tables of its own (__register_frame). Wholly static programs
 * register their tables after the first constructors, and before the unwinder aborts: no stack is
 * walked there, nor with a libc that does not say what code is from (module.c).
 */
#include "base/atomic.h"
#include "base/bits.h"
#include "os/kernel.h"
#include "os/os.h"
#include "os/stack_again.h"
#include "os/stack_object.h"
#include "os/stack_walk.h"

#include <sys/auxv.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#else
static int backtrace(void **frames, int capacity)
{
    (void)frames, (void)capacity;
    return 0;
}
#endif

enum { RAW_FRAMES = 48 }; /* this library's own frames among them */

static bool preparing;          /* atomic: os_stack_prepare was called before */
static bool can_walk;           /* atomic: published by os_stack_prepare */
static struct stack_object own; /* const before can_walk: this library; empty in a program */

uint32_t os_thread_id(void) { return (uint32_t)kernel_call(SYS_gettid, 0, 0, 0, 0, 0, 0); }

void os_stack_prepare(void)
{
    void *frames[2];
    struct os_module module;
    struct stack_object object;
    if (!os_module_of((uintptr_t)&os_stack, &module) ||
        (module.is_program && getauxval(AT_BASE) == 0) || exchange_acq_rel(&preparing, true))
        return;
    if (!module.is_program && stack_object_of((uintptr_t)&os_stack, &object))
        own = object;
    stack_objects_prepare();
    stack_bounds_prepare(os_thread_id() == os_process_id());
    (void)backtrace(frames, 2);
    store_release(&can_walk, true); /* pairs with os_stack */
}

/* The frames that belong to this library; linked statically it is the program, and none is told
 * from the others. */
static unsigned count_own(void *const *frames, unsigned count)
{
    unsigned i = 0;
    while (i < count && (uintptr_t)frames[i] >= own.start && (uintptr_t)frames[i] < own.end)
        i++;
    return i;
}

/* By the C runtime, from the caller of os_stack on. */
static no_inline unsigned stack_by_runtime(uintptr_t *frames, unsigned capacity, uintptr_t caller,
                                           uintptr_t instruction)
{
    void *raw[RAW_FRAMES];
    int got = backtrace(raw, RAW_FRAMES);
    unsigned count = got > 0 ? (unsigned)got : 0;
    unsigned first = 0;
    while (first < count && (uintptr_t)raw[first] != caller)
        first++;
    first = first == count ? 0 : first;
    first += count_own(raw + first, count - first);
    for (unsigned i = 0; instruction != 0 && i < count; i++)
        if ((uintptr_t)raw[i] == instruction)
            first = i;
    unsigned kept = (unsigned)smaller_of(count - first, capacity);
    for (unsigned i = 0; i < kept; i++)
        frames[i] = (uintptr_t)raw[first + i];
    return kept;
}

/* Both walks begin with the caller's frame, whatever is called in between. */
no_inline unsigned os_stack(uintptr_t *frames, unsigned capacity, uintptr_t instruction)
{
    uintptr_t caller = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
    if (!load_acquire(&can_walk)) /* pairs with os_stack_prepare */
        return 0;
    int walked = instruction == 0 ? stack_walk(frames, capacity, caller, own.start, own.end) : -1;
    return walked >= 0 ? (unsigned)walked : stack_by_runtime(frames, capacity, caller, instruction);
}

no_inline uintptr_t os_caller(void)
{
    uintptr_t address = 0;
    if (load_acquire(&can_walk) && own.end != 0) /* pairs with os_stack_prepare */
        address = stack_walk_caller(&own);
    if (unlikely(address == 0))
        (void)os_stack(&address, 1, 0);
    return address;
}

no_inline struct os_stack_step *os_stack_again(struct os_stack_memo *memo, uint32_t thread)
{
    uintptr_t caller = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
    uintptr_t frame = *(const uintptr_t *)__builtin_frame_address(0);
    if (!load_acquire(&can_walk)) /* pairs with os_stack_prepare */
        return NULL;
    return stack_walk_again(memo, thread, caller, frame, own.end != 0 ? &own : NULL);
}
