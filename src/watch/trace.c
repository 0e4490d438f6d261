/* The tracer: records every allocation, resize and free of the process in a file that is mapped
 * into memory.
 *
 * heap/hooks.h reports the events at moments that make their order right. trace_stacks.h finds the
 * number of the stack. A lane (trace_lanes.h) writes the event to a chunk of the file
 * (trace_file.h), in the bytes of trace_format.h. docs/dev/TRACE-FORMAT.md documents the
 * format and the argument for the order.
 *
 * A child of fork begins a file of its own with its first event. When a trace is over, the heap
 * returns to its fast paths.
 *
 * Locking: no lock of the heap is held, and none is taken that a signal handler could find held. */
#include "watch/watch.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "heap/heap.h"
#include "os/file.h"
#include "os/process.h"
#include "unwind/unwind.h"
#include "watch/trace_file.h"
#include "watch/trace_lanes.h"
#include "watch/trace_stacks.h"

#include <errno.h>

/* Begins the trace of a fork's child, at its first event. The memory of the child is a copy of the
 * parent's, and its thread is the only one.
 *
 * Returns: false if there is no trace. */
static no_inline bool trace_begin_in_child(void)
{
    uint32_t lost = TRACE_FILE_LOST;
    if (!compare_swap_acq_rel(trace_file.state, &lost, (uint32_t)TRACE_FILE_BUSY))
        return false; /* a signal handler that interrupted this function */
    if (load_relaxed(&trace_file.ends) != 0) {
        trace_file_set_state(TRACE_FILE_OFF); /* the parent's trace was over */
        return false;
    }
    uint32_t parent = trace_file.process;
    uint64_t order = load_relaxed(&trace_file.order.value);
    trace_lanes_forget();
    trace_stacks_forget();
    os_file_unshare(trace_file.header, TRACE_HEADER_BYTES);
    if (trace_file_begin(parent, order) != 0) {
        store_relaxed(&trace_file.ends, 1u); /* a child of this process has no header to unmap */
        trace_file_set_state(TRACE_FILE_OFF);
        return false;
    }
    trace_file_set_state(TRACE_FILE_ON);
    trace_modules_begin();
    return true;
}

/* Whether events are recorded. If the trace is over, the heap stops reporting them. */
static bool trace_is_on(void)
{
    uint32_t state = trace_file_state();
    if (likely(state == TRACE_FILE_ON))
        return true;
    if (state == TRACE_FILE_LOST)
        return trace_begin_in_child();
    if (state == TRACE_FILE_OFF)
        heap_trace_stop();
    return false;
}

/* Does what heap_traced_thread does, without a call if the thread has a heap. */
static struct traced_thread *trace_find_thread(void)
{
    return likely(thread_heap != &no_heap) ? &thread_heap->traced : heap_traced_thread();
}

/* Records an event of a block. */
inline_always void trace_event(unsigned operation, const void *block, size_t size_bytes,
                               unsigned manner)
{
    if (!trace_is_on())
        return;
    struct traced_thread *own = trace_find_thread();
    struct trace_record record = {
        .address = (uintptr_t)block,
        .size = size_bytes,
        .stack = trace_stacks_find(own),
        .operation = (uint8_t)operation,
        .manner = (uint8_t)manner,
    };
    (void)trace_lanes_write(own, &record);
}

/* Records an allocation: the callback `allocated` of struct heap_tracer (heap/hooks.h). */
static void *trace_allocated(void *block, size_t asked_bytes, size_t alignment_bytes, bool zeroed)
{
    unsigned manner = (zeroed ? (unsigned)TRACE_MANNER_ZEROED : 0) |
                      (alignment_bytes > 1 ? lowest_bit(alignment_bytes) : 0);
    trace_event(manner != 0 ? TRACE_ALLOCATE_OTHERWISE : TRACE_ALLOCATE, block, asked_bytes,
                manner);
    return block;
}

/* Records a free or the beginning of a resize: the callback `freed` of struct heap_tracer
 * (heap/hooks.h). */
static void trace_freed(void *block, bool resize)
{
    trace_event(resize ? TRACE_RESIZE_FROM : TRACE_FREE, block, 0, 0);
}

/* Records a resize: the callback `resized` of struct heap_tracer (heap/hooks.h). */
static void trace_resized(void *block, size_t asked_bytes, bool began)
{
    unsigned operation = !began          ? TRACE_RESIZE
                         : block == NULL ? TRACE_RESIZE_FAILED
                                         : TRACE_RESIZE_TO;
    trace_event(operation, block, asked_bytes, 0);
}

static const struct heap_tracer tracer = {
    .allocated = trace_allocated, .freed = trace_freed, .resized = trace_resized};

/* The fork handler of the child: it sets the state to LOST if the kernel has not wiped it. An
 * earlier handler, of the program, may have allocated; then the trace of the child has begun
 * already and the state stays. */
static void trace_in_child(void)
{
    if (trace_file.process != os_process_id())
        trace_file_set_state(TRACE_FILE_LOST);
}

/* The fork handlers of the parent: nothing to do. */
static void trace_nothing(void) {}

int trace_start(const char *path, size_t length_bytes, uint64_t limit_bytes)
{
    heap_start();
    unwind_prepare();
    if (!trace_file_place(path, length_bytes, limit_bytes))
        return -ENAMETOOLONG;
    int error = trace_stacks_make();
    if (error == 0)
        error = trace_modules_make();
    if (error == 0)
        error = trace_file_begin(0, 0);
    if (error == 0)
        error = os_fork_register(trace_nothing, trace_nothing, trace_in_child);
    if (error != 0)
        return error;
    trace_file_set_state(TRACE_FILE_ON);
    trace_modules_begin();
    heap_trace_start(&tracer);
    return 0;
}

at_process_end void trace_stop(void)
{
    uint32_t state = trace_file_state();
    if (state == TRACE_FILE_ON)
        trace_file_end(TRACE_ENDED, TRACE_NO_REASON);
}
