/* The limits as they are set: see page.h. What they do stands in bound.h and purge.h. */
#include "base/atomic.h"
#include "page/page.h"
#include "page/state.h"

void pages_configure(const struct page_limits *limits)
{
    struct page_limits *own = &pages_state.limits;
    store_relaxed(&own->decay_ms, limits->decay_ms);
    store_relaxed(&own->dirty_cap_bytes, limits->dirty_cap_bytes);
    store_relaxed(&own->huge_pages, limits->huge_pages);
    pages_limit_soft(limits->soft_limit_bytes);
    pages_limit_hard(limits->hard_limit_bytes);
}

void pages_limit_soft(size_t bytes) { store_relaxed(&pages_state.limits.soft_limit_bytes, bytes); }

void pages_limit_hard(size_t bytes) { store_relaxed(&pages_state.limits.hard_limit_bytes, bytes); }

void pages_read_limits(struct page_limits *limits)
{
    const struct page_limits *own = &pages_state.limits;
    *limits = (struct page_limits){
        .decay_ms = load_relaxed(&own->decay_ms),
        .dirty_cap_bytes = load_relaxed(&own->dirty_cap_bytes),
        .soft_limit_bytes = load_relaxed(&own->soft_limit_bytes),
        .hard_limit_bytes = load_relaxed(&own->hard_limit_bytes),
        .huge_pages = load_relaxed(&own->huge_pages),
    };
}

bool pages_are_huge(void) { return load_relaxed(&pages_state.limits.huge_pages) == HUGE_PAGES_ON; }
