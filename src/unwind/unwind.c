/* Stacks: by the walk of unwind_walk.h and, where a rule is not known, by backtrace of libc.
 * Programs are often compiled without frame pointers, so these alone would not be enough.
 *
 * backtrace() loads libgcc_s at its first call. Afterwards it neither allocates nor takes a
 * lock, unless the process has registered unwind tables of its own (__register_frame). Wholly
 * static programs register their tables after the first constructors, and before that the
 * unwinder aborts. So no stack is walked in a static program, nor with a libc that does not say
 * from which file code was loaded (os/module.c).
 */
#include "unwind/unwind.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "os/kernel.h"
#include "os/module.h"
#include "os/process.h"
#include "unwind/unwind_cache.h"
#include "unwind/unwind_rules.h"
#include "unwind/unwind_walk.h"

#include <sys/auxv.h>
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#else
static int unwind_no_backtrace(void **frames, int capacity)
{
    (void)frames, (void)capacity;
    return 0;
}
#define backtrace unwind_no_backtrace
#endif

enum { RAW_FRAMES = 48 }; /* includes the frames of this library */

static bool preparing; /* atomic: unwind_prepare has begun */
static bool can_walk;  /* atomic: unwind_prepare has ended */
/* const once can_walk is set: this library; empty if it is part of the program */
static struct unwind_object own;

uint32_t os_thread_id(void) { return (uint32_t)kernel_call(SYS_gettid, 0, 0, 0, 0, 0, 0); }

void unwind_prepare(void)
{
    void *frames[2];
    struct os_module module;
    struct unwind_object object;
    if (!os_module_of((uintptr_t)&unwind_stack, &module) ||
        (module.is_program && getauxval(AT_BASE) == 0) || exchange_acq_rel(&preparing, true))
        return;
    if (!module.is_program && unwind_object_of((uintptr_t)&unwind_stack, &object))
        own = object;
    unwind_objects_prepare();
    unwind_bounds_prepare(os_thread_id() == os_process_id());
    (void)backtrace(frames, 2);
    store_release(&can_walk, true); /* release: pairs with unwind_stack and unwind_cached */
}

/* The number of leading frames that belong to this library. Linked statically it is part of the
 * program, and its frames cannot be distinguished. */
static unsigned unwind_count_own(void *const *frames, unsigned count)
{
    unsigned i = 0;
    while (i < count && (uintptr_t)frames[i] >= own.start && (uintptr_t)frames[i] < own.end)
        i++;
    return i;
}

/* Finds the stack with backtrace, from the caller of unwind_stack on. */
static no_inline unsigned unwind_by_runtime(uintptr_t *frames, unsigned capacity, uintptr_t caller,
                                            uintptr_t instruction)
{
    void *raw[RAW_FRAMES];
    int got = backtrace(raw, RAW_FRAMES);
    unsigned count = got > 0 ? (unsigned)got : 0;
    unsigned first = 0;
    while (first < count && (uintptr_t)raw[first] != caller)
        first++;
    first = first == count ? 0 : first;
    first += unwind_count_own(raw + first, count - first);
    for (unsigned i = 0; instruction != 0 && i < count; i++)
        if ((uintptr_t)raw[i] == instruction)
            first = i;
    unsigned kept = (unsigned)smaller_of(count - first, capacity);
    for (unsigned i = 0; i < kept; i++)
        frames[i] = (uintptr_t)raw[first + i];
    return kept;
}

/* Not inlined, so that both walks begin with the caller's frame. */
no_inline unsigned unwind_stack(uintptr_t *frames, unsigned capacity, uintptr_t instruction)
{
    uintptr_t caller = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
    if (!load_acquire(&can_walk)) /* acquire: pairs with unwind_prepare */
        return 0;
    int walked = instruction == 0 ? unwind_walk(frames, capacity, caller, own.start, own.end) : -1;
    return walked >= 0 ? (unsigned)walked
                       : unwind_by_runtime(frames, capacity, caller, instruction);
}

no_inline struct unwind_step *unwind_cached(struct unwind_cache *cache, uint32_t thread)
{
    uintptr_t caller = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0));
    uintptr_t frame = *(const uintptr_t *)__builtin_frame_address(0);
    if (!load_acquire(&can_walk)) /* acquire: pairs with unwind_prepare */
        return NULL;
    return unwind_walk_cached(cache, thread, caller, frame, own.end != 0 ? &own : NULL);
}
