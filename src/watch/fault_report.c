/* Reports of misused guarded blocks. Formatted on the stack, written at once: no memory, no lock,
 * safe in a signal handler. Only one thread reports; others that come to it wait for the end.
 */
#include "watch/fault_report.h"

#include "base/check.h"
#include "heap/heap.h"

enum { WAIT_MS = 10, WAITS_MAX = 500 };

static uint32_t reporter; /* atomic: the thread that reports; 0 before */

/* False for whoever is not to report: another thread does, and has not come to the end of the
 * process in a long time. */
static bool claim_report(void)
{
    uint32_t self = os_thread_id();
    for (unsigned i = 0; i < WAITS_MAX; i++) {
        uint32_t expected = 0;
        if (compare_swap_acq_rel(&reporter, &expected, self) || expected == self)
            return true;
        os_sleep_ms(WAIT_MS);
    }
    return false;
}

static void print_stack(const char *what, const struct call_stack *stack)
{
    report_error("  %s by thread %u:", what, stack->thread);
    for (unsigned i = 0; i < stack->depth && i < STACK_FRAMES; i++) {
        uintptr_t base = 0;
        const char *file = os_locate(stack->frames[i], &base);
        if (file)
            report_error("    %p %s+%p", (void *)stack->frames[i], file,
                         (void *)(stack->frames[i] - base));
        else
            report_error("    %p", (void *)stack->frames[i]);
    }
}

/* The stack of here and now comes last: a walk over a broken one may end everything. */
static void print_stacks(const struct guarded_slot *slot, uintptr_t instruction)
{
    print_stack("allocated", &slot->allocated);
    if (load_relaxed(&slot->turn) != 0 && load_acquire(&slot->state) == SLOT_FREE)
        print_stack("freed", &slot->freed);
    struct call_stack now = {.thread = os_thread_id()};
    now.depth = os_stack(now.frames, STACK_FRAMES, instruction);
    print_stack("misused", &now);
}

void refuse_guarded(const char *operation, const struct guarded_slot *slot, const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    format_text_list(line, sizeof line, format, arguments);
    va_end(arguments);
    bool claimed = claim_report();
    if (claimed) {
        report_error("%s", line);
        print_stacks(slot, 0);
    }
    refuse_reported(operation);
    if (claimed)
        store_release(&reporter, 0u); /* pairs with claim_report */
}

bool report_fault(const struct os_fault *fault)
{
    static const char *const accesses[] = {"read", "write", "access"};
    struct guarded_place place = guarded_find(fault->address);
    if (place.slot == NULL)
        return false;
    if (!claim_report())
        return true;
    const char *access = accesses[fault->kind];
    const struct span *span = &place.slot->span;
    size_t size = span->size_bytes;
    void *block = span->base;
    ptrdiff_t behind = place.offset - (ptrdiff_t)size;
    if (load_acquire(&place.slot->state) != SLOT_LIVE) /* pairs with the release in free */
        report_error("use after free: %s of %p (%zu-byte block at %p)", access, fault->address,
                     size, block);
    else if (place.offset < 0)
        report_error("underflow: %s of %p, %zu bytes before a %zu-byte block at %p", access,
                     fault->address, (size_t)-place.offset, size, block);
    else
        report_error("overflow: %s of %p, %zu bytes behind a %zu-byte block at %p", access,
                     fault->address, (size_t)behind, size, block);
    print_stacks(place.slot, fault->instruction);
    return true;
}
