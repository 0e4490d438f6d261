/* The tracer: every allocation, resize and free of the process, into a file that is mapped.
 *
 * heap/tracing.h reports them, at the moments that make their order right; a stack's number is
 * found (trace_stacks.h), and the event is written by a lane (trace_lanes.h) to a chunk of the file
 * (trace_file.h), in bytes of trace_encode.h. docs/TRACE-FORMAT.md has the format and the argument
 * for the order.
 *
 * No lock of the heap is held, and none is taken that a signal handler could find held. A fork's
 * child begins a file of its own with its first event. When a trace is over the heap goes back to
 * its fast paths.
 */
#include "watch/watch.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "heap/heap.h"
#include "os/os.h"
#include "watch/trace_file.h"
#include "watch/trace_lanes.h"
#include "watch/trace_modules.h"
#include "watch/trace_stacks.h"

#include <errno.h>

/* The first event of a fork's child: its memory is a copy of the parent's, its thread the only one.
 */
static no_inline bool begin_in_child(void)
{
    uint32_t lost = TRACE_FILE_LOST;
    if (!compare_swap_acq_rel(trace_file.state, &lost, (uint32_t)TRACE_FILE_BUSY))
        return false; /* a signal handler in the middle of this */
    if (load_relaxed(&trace_file.ends) != 0) {
        trace_file_set_state(TRACE_FILE_OFF); /* the parent's was over */
        return false;
    }
    uint32_t parent = trace_file.process;
    uint64_t order = load_relaxed(&trace_file.order.value);
    trace_lanes_forget();
    trace_stacks_forget();
    (void)os_unmap(trace_file.header, TRACE_HEADER_BYTES);
    if (trace_file_begin(parent, order) != 0) {
        trace_file_set_state(TRACE_FILE_OFF);
        return false;
    }
    trace_file_set_state(TRACE_FILE_ON);
    trace_modules_begin();
    return true;
}

/* Whether events are to be recorded. Where they are not any more, the heap is told. */
static bool is_on(void)
{
    uint32_t state = trace_file_state();
    if (likely(state == TRACE_FILE_ON))
        return true;
    if (state == TRACE_FILE_LOST)
        return begin_in_child();
    if (state == TRACE_FILE_OFF)
        heap_trace_stop();
    return false;
}

/* heap_traced_thread, for a thread that has a heap without a call. */
static struct traced_thread *find_thread(void)
{
    return likely(thread_heap != &no_heap) ? &thread_heap->traced : heap_traced_thread();
}

static void *allocated(void *block, size_t asked_bytes, size_t alignment_bytes, bool zeroed)
{
    if (!is_on())
        return block;
    unsigned manner = (zeroed ? (unsigned)TRACE_MANNER_ZEROED : 0) |
                      (alignment_bytes > 1 ? lowest_bit(alignment_bytes) : 0);
    struct traced_thread *own = find_thread();
    struct trace_record record = {
        .address = (uintptr_t)block,
        .size = asked_bytes,
        .stack = trace_stacks_find(own),
        .operation = manner != 0 ? TRACE_ALLOCATE_OTHERWISE : TRACE_ALLOCATE,
        .manner = (uint8_t)manner,
    };
    (void)trace_lanes_write(own, &record);
    return block;
}

static void freed(void *block, bool resize)
{
    if (!is_on())
        return;
    struct traced_thread *own = find_thread();
    struct trace_record record = {
        .address = (uintptr_t)block,
        .stack = trace_stacks_find(own),
        .operation = resize ? TRACE_RESIZE_FROM : TRACE_FREE,
    };
    (void)trace_lanes_write(own, &record);
}

static void resized(void *block, size_t asked_bytes, bool began)
{
    if (!is_on())
        return;
    struct traced_thread *own = find_thread();
    struct trace_record record = {
        .address = (uintptr_t)block,
        .size = asked_bytes,
        .stack = trace_stacks_find(own),
        .operation = !began          ? TRACE_RESIZE
                     : block == NULL ? TRACE_RESIZE_FAILED
                                     : TRACE_RESIZE_TO,
    };
    (void)trace_lanes_write(own, &record);
}

static const struct heap_tracer tracer = {
    .allocated = allocated, .freed = freed, .resized = resized};

/* Where the kernel does not wipe the state, this does. An earlier handler of the program's may have
 * allocated: then the child's trace has begun. */
static void in_child(void)
{
    if (trace_file.process != os_process_id())
        trace_file_set_state(TRACE_FILE_LOST);
}
static void nothing(void) {}

int trace_start(const char *path, size_t length_bytes, uint64_t limit_bytes)
{
    heap_start();
    os_stack_prepare();
    if (!trace_file_place(path, length_bytes, limit_bytes))
        return -ENAMETOOLONG;
    int error = trace_stacks_make();
    if (error == 0)
        error = trace_modules_make();
    if (error == 0)
        error = trace_file_begin(0, 0);
    if (error == 0)
        error = os_fork_register(nothing, nothing, in_child);
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
