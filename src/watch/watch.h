/* The interface of this layer for front/: start, stop and read the guards, the profiler and the
 * tracer. background.h, control_socket.h and memory_pressure.h belong to it. */
#ifndef CAIRN_WATCH_WATCH_H
#define CAIRN_WATCH_WATCH_H

#include "base/compiler.h"
#include "cairn/profile.h"
#include "watch/background.h"
#include "watch/control_socket.h"
#include "watch/memory_pressure.h"

/* Starts to guard one block in about `interval`, which is not 0, between inaccessible pages: see
 * guards.h.
 *
 * Threads: one, once, before there are others.
 * Returns: 0 or a negative errno; then no block is guarded. */
int guards_start(uint32_t interval);

/* Starts the profiler, or changes its interval: see profile.c. The profiler takes one sample in
 * about `interval_bytes` allocated bytes. `seed` 0: the system's random numbers.
 *
 * Threads: any.
 * Returns: 0 or a negative errno; -EBUSY while another thread starts it or writes a dump. */
int profile_start(uint64_t interval_bytes, uint64_t seed);

/* Stops taking samples. The samples that exist are kept, and their frees are still followed.
 *
 * Threads: any. */
void profile_stop(void);

/* Removes all samples and sets all sums to 0. The stacks stay in the table.
 *
 * Threads: any. */
void profile_reset(void);

/* Reads the statistics; all are 0 if the profiler was never started.
 *
 * Threads: any. */
void profile_read(cairn_profile_stats *stats);

/* Writes a dump to the file at `path` and replaces its contents.
 *
 * Threads: any; async-signal-safe.
 * Returns: 0 or a negative errno; -EBUSY while another thread writes a dump, -ENODATA if the
 * profiler was never started. */
int profile_dump(const char *path, const char *reason);

/* Starts the tracer: see trace.c. The tracer writes to files PATH.PROCESS.NUMBER of at most
 * `limit_bytes` each, 0 for no limit.
 *
 * Threads: one, once, before there are others.
 * Returns: 0 or a negative errno. */
int trace_start(const char *path, size_t length_bytes, uint64_t limit_bytes);

/* Ends the trace when the process ends. Later events are not recorded.
 *
 * Threads: any. */
void trace_stop(void);

/* Sets the prefix of the files for dumps that no caller names: profile_dump_next writes to
 * PATH.PROCESS.NUMBER and never replaces a file. A dump is due when the live bytes have first
 * reached `growth_bytes`, and then each time that they have grown by `growth_bytes` and by a
 * quarter; 0: never. The first dump that fails is reported, later ones are not.
 *
 * Threads: any.
 * Returns: 0, or -EBUSY while another thread dumps. */
int profile_dump_to(const char *path, size_t length_bytes, uint64_t growth_bytes);

/* Whether profile_dump_to has set a prefix.
 *
 * Threads: any. */
bool profile_dumps(void);

/* Writes the next dump to a file of its own. `reason` is a word for the dump; for reasons other
 * than the end of the process and requests, at most 16 dumps are written.
 *
 * Threads: any; async-signal-safe.
 * Returns: 0 or a negative errno; -ENODATA if there is no prefix or no profile. */
int profile_dump_next(const char *reason);

#endif
