/* The sampling heap profiler: which call stacks hold how much memory, and how much they have
 * allocated. docs/PROFILING.md walks one hunt; `cairn profile` reads the dumps.
 *
 * About one block in `interval_bytes` allocated is a sample (exponential gaps, so no rhythm of the
 * program hides anything). A sample stays an ordinary block where it is; its stack is kept, and its
 * free is noticed. A block of s bytes is sampled with probability p = 1 - exp(-s / interval), so
 * each sample counts as 1 / p blocks: sums by stack are estimates without bias. Sizes are those of
 * the blocks as handed out.
 *
 * Off until it is started, by cairn_profile_start or by the option `profile` (docs/OPTIONS.md);
 * then malloc and free cost what they cost before, but for samples: a walk of the stack, 1 to 20
 * microseconds. Memory: at most 2 MiB, and only as far as it is used.
 *
 * Any thread may call any of these, several at once. After a fork the child has the parent's
 * samples and goes on. In a signal handler: cairn_profile_dump and cairn_profile_read_stats.
 *
 *     if (cairn_profile_start(512 << 10) != 0)
 *         …
 *     work();
 *     int error = cairn_profile_dump("/tmp/work.heap");
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

/* Starts, or goes on with another mean interval. 0, EINVAL for 0 bytes, ENOMEM without memory for
 * the tables, EBUSY while another thread starts it or dumps. Threads that run follow when they next
 * leave the fast path: some hundred small blocks of one size may go by unseen in each. May
 * allocate and take the loader's lock. */
CAIRN_API CAIRN_NODISCARD int cairn_profile_start(size_t interval_bytes) CAIRN_NOEXCEPT;

/* No new samples. What there is stays, and frees are still noticed. */
CAIRN_API void cairn_profile_stop(void) CAIRN_NOEXCEPT;

/* Forgets all samples and sums: what is allocated from here on is counted. On or off as before. */
CAIRN_API void cairn_profile_reset(void) CAIRN_NOEXCEPT;

/* Writes the profile to a file, in place of what is there; docs/PROFILING.md describes the format.
 * 0, ENODATA when the profiler was never started, EBUSY while another thread starts it or dumps,
 * else what the system says. Other threads go on. No memory is asked for. */
CAIRN_API CAIRN_NODISCARD int cairn_profile_dump(const char *path) CAIRN_NOEXCEPT;

typedef struct cairn_profile_stats {
    bool is_on;
    size_t interval_bytes;    /* the last one; 0: never started */
    uint64_t samples;         /* blocks sampled since the start or reset */
    uint64_t live_samples;    /* of those in use, and remembered */
    uint64_t allocated_bytes; /* estimated from them: in all blocks since then */
    uint64_t live_bytes;      /* estimated: in blocks since then that are in use */
    uint64_t sites;           /* different stacks, of all time */
    uint64_t lost_stacks;     /* samples whose stack found no room: they count as one site */
    uint64_t lost_blocks;     /* samples that found no room: not among those in use */
} cairn_profile_stats;

CAIRN_API void cairn_profile_read_stats(cairn_profile_stats *stats) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
