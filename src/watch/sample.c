/* Sampling in a running program: guarded_blocks.h as the heap's sampler (heap/sampling.h). Nothing
 * here but their connection. */
#include "heap/heap.h"
#include "os/os.h"
#include "watch/fault_report.h"
#include "watch/guarded_blocks.h"
#include "watch/guarded_slots.h"
#include "watch/watch.h"

static struct heap_sampler sampler = {
    .allocate = guarded_allocate,
    .free = guarded_free,
    .check = guarded_check,
    .count = guarded_count,
}; /* const after sample_start */

int sample_start(uint32_t interval)
{
    heap_start();
    os_stack_prepare();
    int error = guarded_start();
    if (error == 0)
        error = os_catch_faults(report_fault);
    if (error != 0)
        return error;
    sampler.interval = interval;
    heap_set_sampler(&sampler);
    return 0;
}
