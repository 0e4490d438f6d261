// The page layer as its unit tests need it: started, with slab shapes of its own, without a heap.
#pragma once

#include <string.h>
#include <unistd.h>

#include <utility>

extern "C" {
#include "os/os.h"
#include "page/apart.h"
#include "page/arena.h"
#include "page/bins.h"
#include "page/bound.h"
#include "page/dense.h"
#include "page/detached.h"
#include "page/fence.h"
#include "page/free_spans.h"
#include "page/grow.h"
#include "page/header.h"
#include "page/page.h"
#include "page/purge.h"
#include "page/room.h"
#include "page/state.h"
#include "page/steal.h"
#include "page/trapped.h"
#include "page/void_slab.h"
}

namespace page_layer
{

constexpr size_t kMiB = size_t{1} << 20;
constexpr slab_shape kShapes[] = {{1, 2, 64}, {4, 5, 256}, {10, 7, 0}};

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

inline void configure(uint64_t decay_ms, size_t dirty_cap_bytes, size_t soft_limit_bytes = 0,
                      size_t hard_limit_bytes = 0)
{
    const page_limits limits = {decay_ms, dirty_cap_bytes, soft_limit_bytes, hard_limit_bytes,
                                HUGE_PAGES_OFF};
    pages_configure(&limits);
}

inline page_stats stats()
{
    page_stats stats;
    pages_read_stats(&stats);
    return stats;
}

inline size_t bytes_of(const struct span *span) { return size_t{span->pages} << PAGE_SHIFT; }

inline char *end_of(const struct span *span) { return span->base + bytes_of(span); }

inline char *end_of_slab(const struct span *slab, unsigned size_class)
{
    return slab->base + (size_t{kShapes[size_class].pages} << PAGE_SHIFT);
}

// As the heap does, with all its blocks handed out or none.
inline struct span *take_slab(unsigned size_class, bool filled)
{
    struct span *slab = pages_take_slab(size_class);
    const slab_shape &shape = kShapes[size_class];
    const size_t bytes = size_t{shape.pages} << PAGE_SHIFT;
    const size_t units = filled && shape.unit_bytes != 0 ? bytes / shape.unit_bytes : 0;
    if (slab)
        store_relaxed(&slab->limit, uint64_t{units + 1});
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
