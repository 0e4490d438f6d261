// The page layer for its unit tests: started, with slab shapes of its own, without a heap.
#pragma once

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

extern "C" {
#include "os/memory.h"
#include "os/process.h"
#include "page/arena.h"
#include "page/free_spans.h"
#include "page/grow.h"
#include "page/kept_mappings.h"
#include "page/limits.h"
#include "page/mappings.h"
#include "page/meta.h"
#include "page/page.h"
#include "page/purge.h"
#include "page/revoked.h"
#include "page/state.h"
}

namespace page_layer
{

constexpr size_t kMiB = size_t{1} << 20;
constexpr slab_shape kShapes[] = {{1, 2, 64, 1, 0, 0, 0},
                                  {4, 5, 256, 1, 0, 0, 0},
                                  {10, 7, PAGE_BYTES, 2, 0, 0, 0},
                                  {64, 7, 20 << 10, 1, 0, 0, 0}};

inline void start()
{
    static const bool started = [] {
        os_init();
        pages_init(kShapes);
        pages_start();
        return true;
    }();
    (void)started;
}

// The shard of a process with one heap or none.
inline struct page_shard *const shard = &page_shards[0];

inline void configure(uint64_t decay_ms, size_t dirty_cap_bytes, size_t soft_limit_bytes = 0,
                      size_t hard_limit_bytes = 0)
{
    const page_limits limits = {decay_ms, dirty_cap_bytes, soft_limit_bytes, hard_limit_bytes,
                                HUGE_PAGES_OFF};
    pages_configure(&limits);
}

// Returns the cap to its first value.
inline void forget_cap()
{
    for (int i = 0; i < 200; i++)
        cap_age(0);
}

inline page_stats stats()
{
    page_stats stats;
    pages_read_stats(&stats);
    return stats;
}

// Ends the decay interval; the next tick does what is due at its end.
inline void end_interval() { store_relaxed(&pages_state.interval_start_ms, uint64_t{0}); }

// Purges all that is due.
inline void purge_all_due()
{
    while (pages_purge_due())
        continue;
}

// The most that the call that has just ended may have purged of due memory, if the call before it
// began at `since_us`. The end of the call before would be too late: its own reading of the clock
// may be older than that by as long as its thread waited for a processor in between.
inline size_t due_most_bytes(uint64_t since_us)
{
    const uint64_t passed = std::min(os_now_us() - since_us, uint64_t{PURGE_MAX_US});
    return std::max(passed * PURGE_STEP_PAGES / 1000, uint64_t{PURGE_STEP_PAGES}) << PAGE_SHIFT;
}

inline size_t bytes_of(const struct span *span) { return size_t{span->pages} << PAGE_SHIFT; }

inline char *end_of(const struct span *span) { return span->base + bytes_of(span); }

inline char *end_of_slab(const struct span *slab, unsigned size_class)
{
    return slab->base + (size_t{kShapes[size_class].pages} << PAGE_SHIFT);
}

// Takes a slab as the heap does. `filled`: all its blocks count as handed out, else none.
inline struct span *take_slab(unsigned size_class, bool filled)
{
    struct span *slab = pages_take_slab(size_class);
    const slab_shape &shape = kShapes[size_class];
    const size_t bytes = size_t{shape.pages} << PAGE_SHIFT;
    const size_t units = filled && shape.unit_bytes != 0 ? bytes / shape.unit_bytes : 0;
    if (slab)
        store_relaxed(&slab->fresh_slot, uint64_t{units + 1});
    return slab;
}

inline void fill(const struct span *span, char value) { memset(span->base, value, bytes_of(span)); }

inline bool reads(const char *start, size_t size, char value)
{
    for (size_t i = 0; i < size; i++)
        if (start[i] != value)
            return false;
    return true;
}

} // namespace page_layer
