/* The lanes of a trace: see trace_lanes.h. */
#include "watch/trace_lanes.h"

#include "base/alone.h"
#include "heap/heap.h"
#include "os/os.h"
#include "watch/trace_file.h"

#include <string.h>

enum { STEP_US = TRACE_TIME_STEP_NS / 1000 }; /* between two looks at the clock */

struct lane {
    uint32_t held;  /* atomic: 1 while somebody has it */
    uint64_t ticks; /* these: who holds it; when the time was last said */
    struct trace_encoder encoder;
} cache_aligned;

static struct lane lanes[TRACE_LANES];
static uint32_t threads;    /* atomic: numbers that were given */
static uint32_t generation; /* counts forks; written while there is one thread */
static uint64_t step_ticks; /* atomic: 0 before it is known */

/* Of threads that have ended and still free: the kernel's number in the upper half, that of the
 * trace in the lower one. Two that share a place get new numbers. */
enum { LATE_THREADS = 64 };
static uint64_t late_threads[LATE_THREADS]; /* atomic */

static uint32_t take_number(void) { return fetch_add_relaxed(&threads, 1u) + 1; }

static no_inline void number_thread(struct traced_thread *own)
{
    own->generation = generation;
    own->id = os_thread_id();
    own->number = take_number();
    own->lane = (own->number - 1) % TRACE_LANES;
    if (load_relaxed(&step_ticks) == 0)
        store_relaxed(&step_ticks, os_ticks_in_us(STEP_US));
}

static no_inline struct traced_thread late_thread(void)
{
    struct traced_thread own = {.id = os_thread_id()};
    uint64_t *place = &late_threads[own.id % LATE_THREADS];
    uint64_t seen = load_relaxed(place);
    if (seen >> 32 != own.id || (uint32_t)seen == 0) {
        seen = (uint64_t)own.id << 32 | take_number();
        store_relaxed(place, seen);
    }
    own.number = (uint32_t)seen;
    own.generation = generation;
    own.lane = own.id % TRACE_LANES;
    return own;
}

static bool try_hold(struct lane *lane)
{
    uint32_t free = 0;
    return load_relaxed(&lane->held) == 0 &&
           alone_or_compare_swap(&lane->held, &free, 1u); /* pairs with let_go */
}

static no_inline struct lane *hold_another(struct traced_thread *own)
{
    uint32_t number = own->lane;
    do {
        number = (number + 1) % TRACE_LANES;
        pause_processor();
    } while (!try_hold(&lanes[number]));
    own->lane = number;
    return &lanes[number];
}

static void let_go(struct lane *lane) { store_release(&lane->held, 0u); } /* pairs with try_hold */

static no_inline bool begin_chunk(struct lane *lane)
{
    struct trace_chunk *full = lane->encoder.chunk;
    lane->encoder.chunk = NULL; /* before: a fork in between leaves the child nothing to unmap */
    trace_file_unmap(full);
    uint64_t first_order;
    struct trace_chunk *chunk = trace_file_chunk(&first_order);
    if (chunk == NULL)
        return false;
    encode_begin(&lane->encoder, chunk, (uint32_t)(lane - lanes), first_order, trace_file_now_ns());
    lane->ticks = os_ticks();
    return true;
}

static no_inline void say_time(struct lane *lane, uint64_t ticks)
{
    uint64_t now = trace_file_now_ns();
    if (now > lane->encoder.time_ns)
        encode_time(&lane->encoder, now);
    lane->ticks = ticks;
}

/* Of a thread that has a number. */
inline_always bool write_as(struct traced_thread *own, struct trace_record *record)
{
    struct lane *lane = &lanes[own->lane];
    if (unlikely(!try_hold(lane)))
        lane = hold_another(own);
    bool on = trace_file_state() == TRACE_FILE_ON &&
              (likely(encode_has_room(&lane->encoder)) || begin_chunk(lane));
    if (likely(on)) {
        if (unlikely(lane->encoder.thread != own->number))
            encode_thread(&lane->encoder, own->number, own->id);
        uint64_t ticks = os_ticks();
        if (unlikely(ticks - lane->ticks > load_relaxed(&step_ticks)))
            say_time(lane, ticks);
        record->order = trace_file_order();
        encode_event(&lane->encoder, record);
    }
    let_go(lane);
    return on;
}

static no_inline bool write_late(struct trace_record *record)
{
    struct traced_thread own = late_thread();
    return write_as(&own, record);
}

bool trace_lanes_write(struct traced_thread *own, struct trace_record *record)
{
    if (unlikely(own == NULL))
        return write_late(record);
    if (unlikely(own->number == 0 || own->generation != generation))
        number_thread(own);
    return write_as(own, record);
}

void trace_lanes_forget(void)
{
    generation++;
    for (unsigned i = 0; i < LATE_THREADS; i++)
        store_relaxed(&late_threads[i], (uint64_t)0);
    for (unsigned i = 0; i < TRACE_LANES; i++) {
        trace_file_unmap(lanes[i].encoder.chunk);
        lanes[i].encoder.chunk = NULL;
        store_relaxed(&lanes[i].held, 0u);
    }
}
