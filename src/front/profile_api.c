/* The profiler's public functions: see cairn/profile.h. They return errors and keep errno. */
#include "cairn/profile.h"

#include "watch/watch.h"

int cairn_profile_start(size_t interval_bytes) { return -profile_start(interval_bytes, 0); }

void cairn_profile_stop(void) { profile_stop(); }

void cairn_profile_reset(void) { profile_reset(); }

int cairn_profile_dump(const char *path) { return -profile_dump(path, "call"); }

void cairn_profile_read_stats(cairn_profile_stats *stats)
{
    struct profile_figures figures;
    profile_read(&figures);
    *stats = (cairn_profile_stats){
        .is_on = figures.on,
        .interval_bytes = figures.interval_bytes,
        .samples = figures.samples,
        .live_samples = figures.live_samples,
        .allocated_bytes = figures.allocated_bytes,
        .live_bytes = figures.live_bytes,
        .sites = figures.sites,
        .lost_stacks = figures.lost_stacks,
        .lost_blocks = figures.lost_blocks,
    };
}
