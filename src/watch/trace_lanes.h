/* The lanes of a trace: chunks of events that grow side by side.
 *
 * A thread holds a lane for one event at a time. A thread that finds its lane held takes the next
 * one. So does a signal handler that has interrupted the holder and must not wait for it. So no
 * thread waits while there are free lanes, and an ending thread has nothing to do. A new thread
 * begins with the lane of its number; afterwards it begins with the lane that it used last.
 *
 * Threads: any; async-signal-safe. */
#ifndef CAIRN_WATCH_TRACE_LANES_H
#define CAIRN_WATCH_TRACE_LANES_H

#include "watch/trace_format.h"

/* A lane. The encoder of a lane keeps the address of the last block, so library_layout.c describes
 * the lanes to readers from outside, which must not take this for a pointer of the program. */
struct trace_lane {
    uint32_t held;  /* atomic: 1 while a thread holds the lane */
    uint64_t ticks; /* holder: ticks of the last mark of a time */
    struct trace_encoder encoder;
} cache_aligned;
extern hidden_data struct trace_lane trace_lanes[TRACE_LANES];

struct traced_thread;

/* Takes the order of an event and writes it. `own`: of heap_traced_thread, or NULL.
 *
 * Returns: false if the trace is over. */
bool trace_lanes_write(struct traced_thread *own, struct trace_record *record);

/* Frees all lanes and their chunks, in the child of a fork.
 *
 * Threads: the only one. */
void trace_lanes_forget(void);

#endif
