/* What is said of a guarded block that was misused. */
#ifndef CAIRN_WATCH_FAULT_REPORT_H
#define CAIRN_WATCH_FAULT_REPORT_H

#include "watch/guarded_slots.h"

/* One line, the stacks of the block's allocation and of its free, this thread's stack; then as
 * refuse() of heap/heap.h, without a bound on the lines. */
void refuse_guarded(const char *operation, const struct guarded_slot *slot, const char *format, ...)
    print_like(3, 4) cold;

/* For os_catch_faults: says the same of an access to a guarded slot that trapped. */
bool report_fault(const struct os_fault *fault);

#endif
