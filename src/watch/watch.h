/* Watching the heap: for front/, which starts it when an option asks for it. */
#ifndef CAIRN_WATCH_WATCH_H
#define CAIRN_WATCH_WATCH_H

#include "base/compiler.h"
#include "watch/background.h"
#include "watch/control_socket.h"
#include "watch/surroundings.h"

/* Guards one block in about `interval`, not 0, between inaccessible pages: see guarded_blocks.h.
 * Once, before there are threads. 0 or a negative errno; then nothing is sampled. */
int sample_start(uint32_t interval);

/* The profiler, see profile.c. A sample in about so many bytes; `seed` 0: the system's random
 * numbers. 0 or a negative errno. Also to change the interval. Any thread. */
int profile_start(uint64_t interval_bytes, uint64_t seed);
void profile_stop(void); /* what there is stays, frees are followed */
void profile_reset(void);

struct profile_figures {
    uint64_t interval_bytes;
    bool on;
    uint64_t sites;
    uint64_t samples, live_samples;
    uint64_t allocated_bytes, live_bytes; /* estimates: sums of weights */
    uint64_t lost_stacks, lost_blocks;    /* samples that found no room */
};
void profile_read(struct profile_figures *figures);

/* Writes a dump to the file, over what is there. 0 or a negative errno, -EBUSY while another thread
 * writes one. Any thread, signal handlers too. */
int profile_dump(const char *path, const char *reason);

/* The tracer, see trace.c: to files PATH.PROCESS.NUMBER, each of at most so many bytes, 0: any.
 * Once, before there are threads. 0 or a negative errno. */
int trace_start(const char *path, size_t length_bytes, uint64_t limit_bytes);
void trace_stop(void); /* at the process's end: what comes after is not recorded */

/* Blocks by site, see site_groups.c: the sites of the file get heaps of their own. Once, before
 * there are threads. Says why there are none, and which lines are left out. */
enum { SITES_PATH_MOST = 900 };
void sites_start(const char *path, size_t length_bytes);
/* A line for each group, which begins with `who`. */
void sites_report(const char *who);

/* Where dumps go by themselves: PATH.PROCESS.NUMBER, never over a file that is there, and not more
 * than a few. Says no more than once that one failed. 0, or -EBUSY while another thread dumps. */
int profile_dump_to(const char *path, size_t length_bytes, uint64_t growth_bytes);
bool profile_dumps(void); /* whether there is such a place */
void profile_dump_next(const char *reason);

#endif
