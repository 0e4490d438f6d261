/* The lanes of a trace, the numbers of threads, and the writing of events: see trace_lanes.h. */
#include "watch/trace_lanes.h"

#include "base/alone.h"
#include "heap/heap.h"
#include "os/process.h"
#include "watch/trace_file.h"

#include <string.h>

enum { STEP_US = TRACE_TIME_STEP_NS / 1000 }; /* time between two looks at the clock */

struct trace_lane trace_lanes[TRACE_LANES];
static uint32_t threads;    /* atomic: numbers given to threads */
static uint32_t generation; /* number of forks; written while there is one thread */
static uint64_t step_ticks; /* atomic: STEP_US in ticks; 0 before the first event */

/* The numbers of threads for which heap_traced_thread returns NULL, mostly because they have ended
 * and still free: the kernel's number in the upper half, the number in the trace in the lower half.
 * Two threads that share an entry get new numbers. */
enum { LATE_THREADS = 64 };
static uint64_t late_threads[LATE_THREADS]; /* atomic */

/* Returns the next number of a thread. */
static uint32_t trace_lanes_take_number(void) { return fetch_add_relaxed(&threads, 1u) + 1; }

/* Gives a thread a number and its first lane, at its first event in this process. */
static no_inline void trace_lanes_number_thread(struct traced_thread *own)
{
    own->generation = generation;
    own->id = os_thread_id();
    own->number = trace_lanes_take_number();
    own->lane = (own->number - 1) % TRACE_LANES;
    if (load_relaxed(&step_ticks) == 0)
        store_relaxed(&step_ticks, os_ticks_in_us(STEP_US));
}

/* Returns the number and the lane of a thread for which heap_traced_thread returns NULL. */
static no_inline struct traced_thread trace_lanes_late_thread(void)
{
    struct traced_thread own = {.id = os_thread_id()};
    uint64_t *place = &late_threads[own.id % LATE_THREADS];
    uint64_t seen = load_relaxed(place);
    if (seen >> 32 != own.id || (uint32_t)seen == 0) {
        seen = (uint64_t)own.id << 32 | trace_lanes_take_number();
        store_relaxed(place, seen);
    }
    own.number = (uint32_t)seen;
    own.generation = generation;
    own.lane = own.id % TRACE_LANES;
    return own;
}

static bool trace_lanes_try_hold(struct trace_lane *lane)
{
    uint32_t free = 0;
    return load_relaxed(&lane->held) == 0 &&
           compare_swap_if_threaded(&lane->held, &free, 1u); /* pairs with trace_lanes_let_go */
}

/* Holds the next lane that is free. */
static no_inline struct trace_lane *trace_lanes_hold_another(struct traced_thread *own)
{
    uint32_t number = own->lane;
    do {
        number = (number + 1) % TRACE_LANES;
        pause_processor();
    } while (!trace_lanes_try_hold(&trace_lanes[number]));
    own->lane = number;
    return &trace_lanes[number];
}

static void trace_lanes_let_go(struct trace_lane *lane)
{
    store_release(&lane->held, 0u); /* pairs with trace_lanes_try_hold */
}

/* Begins a chunk for a lane.
 *
 * Returns: false if the trace is over. */
static no_inline bool trace_lanes_begin_chunk(struct trace_lane *lane)
{
    uint64_t first_order;
    struct trace_chunk *chunk = trace_file_next_chunk(&lane->encoder.chunk, &first_order);
    if (chunk == NULL)
        return false;
    encode_begin(&lane->encoder, chunk, (uint32_t)(lane - trace_lanes), first_order,
                 trace_file_now_ns());
    lane->ticks = os_ticks();
    return true;
}

/* Writes a mark of the time, unless it has not changed. */
static no_inline void trace_lanes_say_time(struct trace_lane *lane, uint64_t ticks)
{
    uint64_t now = trace_file_now_ns();
    if (now > lane->encoder.time_ns)
        encode_time(&lane->encoder, now);
    lane->ticks = ticks;
}

/* Writes an event of a thread that has a number. */
inline_always bool write_as(struct traced_thread *own, struct trace_record *record)
{
    struct trace_lane *lane = &trace_lanes[own->lane];
    if (unlikely(!trace_lanes_try_hold(lane)))
        lane = trace_lanes_hold_another(own);
    bool on = trace_file_state() == TRACE_FILE_ON &&
              (likely(encode_has_room(&lane->encoder)) || trace_lanes_begin_chunk(lane));
    if (likely(on)) {
        if (unlikely(lane->encoder.thread != own->number))
            encode_thread(&lane->encoder, own->number, own->id);
        uint64_t ticks = os_ticks();
        if (unlikely(ticks - lane->ticks > load_relaxed(&step_ticks)))
            trace_lanes_say_time(lane, ticks);
        record->order = trace_file_order();
        encode_event(&lane->encoder, record);
    }
    trace_lanes_let_go(lane);
    return on;
}

/* Writes an event of a thread for which heap_traced_thread returns NULL. */
static no_inline bool trace_lanes_write_late(struct trace_record *record)
{
    struct traced_thread own = trace_lanes_late_thread();
    return write_as(&own, record);
}

bool trace_lanes_write(struct traced_thread *own, struct trace_record *record)
{
    if (unlikely(own == NULL))
        return trace_lanes_write_late(record);
    if (unlikely(own->number == 0 || own->generation != generation))
        trace_lanes_number_thread(own);
    return write_as(own, record);
}

void trace_lanes_forget(void)
{
    generation++;
    for (unsigned i = 0; i < LATE_THREADS; i++)
        store_relaxed(&late_threads[i], (uint64_t)0);
    for (unsigned i = 0; i < TRACE_LANES; i++) {
        trace_file_unmap(trace_lanes[i].encoder.chunk);
        trace_lanes[i].encoder.chunk = NULL;
        store_relaxed(&trace_lanes[i].held, 0u);
    }
}
