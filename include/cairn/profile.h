/* The sampling heap profiler: which call stacks hold how much memory, and how much they allocated.
 *
 * Use the profiler to find the code that holds the memory of a running program, in production as
 * well. docs/PROFILING.md follows one search from start to end; `cairn profile` reads the files. To
 * record every allocation instead of samples, use a trace (docs/TRACING.md).
 *
 * Example:
 *
 *     #include <cairn/profile.h>
 *
 *     int profile(void (*work)(void))
 *     {
 *         int error = cairn_profile_start(CAIRN_PROFILE_INTERVAL);
 *         if (error != 0)
 *             return error;
 *         work();
 *         return cairn_profile_dump("/tmp/work.heap");
 *     }
 *
 * Samples: about one block for each `interval_bytes` bytes allocated is a sample. The gaps between
 * samples are random (exponential), so a program with a regular pattern is sampled without bias. A
 * sample stays an ordinary block in its place; the profiler keeps its call stack and notices its
 * free. A block of s bytes is a sample with probability p = 1 - exp(-s / interval) and counts as
 * 1 / p blocks, so the sums of each call stack are unbiased estimates. Sizes are those handed out,
 * rounded up to a size class or to whole pages.
 *
 * The profiler is off until cairn_profile_start or the option `profile`
 * (docs/reference/OPTIONS.md) starts it.
 *
 * Threads: any thread may call any function at any time. A child of fork keeps the samples of its
 * parent and continues. A signal handler may call cairn_profile_dump and cairn_profile_read_stats,
 * no other function.
 *
 * Cost: malloc and free cost the same as without the profiler, except for samples: a sample takes
 * 1 to 20 microseconds to walk its call stack. The profiler uses at most 2 MiB of memory.
 *
 * Caveats:
 *  - Blocks of private heaps and of the other allocators are never samples.
 *  - Running threads follow a start, or a new interval, when they next leave the fast path: up to
 *    some hundred small blocks of one size may pass unseen in each thread.
 */
#ifndef CAIRN_PROFILE_H
#define CAIRN_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cairn/api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CAIRN_PROFILE_INTERVAL = 512 << 10 }; /* the usual mean interval, in bytes */

/* Starts the profiler with a mean interval of `interval_bytes`, or changes the interval if it runs.
 * The call may allocate memory and take the lock of the dynamic linker.
 * Returns: 0; EINVAL if `interval_bytes` is 0; ENOMEM without memory for the tables; EBUSY while
 * another thread starts the profiler or writes a file. */
CAIRN_API CAIRN_NODISCARD int cairn_profile_start(size_t interval_bytes) CAIRN_NOEXCEPT;

/* Stops the profiler: it takes no new samples, but keeps its samples and records their frees. */
CAIRN_API void cairn_profile_stop(void) CAIRN_NOEXCEPT;

/* Forgets all samples and sums and counts from zero. The call neither starts nor stops the
 * profiler. */
CAIRN_API void cairn_profile_reset(void) CAIRN_NOEXCEPT;

/* Writes the profile to the file `path` and replaces an existing file; the format is described in
 * docs/dev/PROFILE-FORMAT.md of the sources. Other threads continue meanwhile. The call allocates
 * no memory. Returns: 0; ENODATA if the profiler was never started; EBUSY while another thread
 * starts the profiler or writes a file; else the error of the file system. */
CAIRN_API CAIRN_NODISCARD int cairn_profile_dump(const char *path) CAIRN_NOEXCEPT;

/* The numbers that the profiler has counted. */
typedef struct cairn_profile_stats {
    bool is_on;
    size_t interval_bytes;    /* the last mean interval; 0: never started */
    uint64_t samples;         /* samples since the start or the last reset */
    uint64_t live_samples;    /* samples in use that the tables have room for */
    uint64_t allocated_bytes; /* estimate: bytes allocated since the start or the last reset */
    uint64_t live_bytes;      /* estimate: bytes of these in use */
    uint64_t sites;           /* different call stacks ever seen */
    uint64_t lost_stacks;     /* samples whose stack had no room: all count as one site */
    uint64_t lost_blocks;     /* samples that had no room: missing in live_samples */
} cairn_profile_stats;

/* Fills *stats. */
CAIRN_API void cairn_profile_read_stats(cairn_profile_stats *stats) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
