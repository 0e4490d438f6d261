/* The lanes of a trace: chunks of events that grow side by side.
 *
 * A lane is held for one event at a time. Who finds it held takes the next one: another thread, or
 * a signal handler that has interrupted the holder, which must not wait for it. So nobody waits
 * while there are lanes, threads need no goodbye, and there are no more lanes than threads that
 * were in the recorder at once. A thread begins with the lane that it had last.
 */
#ifndef CAIRN_WATCH_TRACE_LANES_H
#define CAIRN_WATCH_TRACE_LANES_H

#include "watch/trace_encode.h"

/* Takes the event's order and writes it. `own`: heap_traced_thread's. False: the trace is over. Any
 * thread. */
struct traced_thread;
bool trace_lanes_write(struct traced_thread *own, struct trace_record *record);

/* In the child of a fork: all lanes are free, and have no chunk. */
void trace_lanes_forget(void);

#endif
