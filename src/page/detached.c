/* See detached.h. */
#include "page/detached.h"

#include "base/bits.h"
#include "os/os.h"
#include "page/header.h"
#include "page/state.h"

/* With a page of nothing behind it, where the build has fences and the system the addresses. */
static char *map_apart(size_t size_bytes)
{
    char *run = config_fences ? os_map(size_bytes + os_page_size()) : NULL;
    if (run == NULL)
        return os_map(size_bytes);
    (void)os_unmap(run + size_bytes, os_page_size()); /* refused, it is a page too much */
    return run;
}

/* Maps with any alignment by cutting an aligned piece out of a larger reservation. */
static char *map_aligned(size_t size_bytes, size_t alignment_bytes)
{
    if (alignment_bytes <= os_page_size())
        return map_apart(size_bytes);
    char *start = os_reserve(size_bytes + alignment_bytes);
    if (start == NULL)
        return NULL;
    char *run = (char *)align_up((uintptr_t)start, alignment_bytes);
    size_t lead = (size_t)(run - start);
    bool failed = os_commit(run, size_bytes) != 0;
    if (failed) {
        os_unmap(start, size_bytes + alignment_bytes);
        return NULL;
    }
    if (lead > 0)
        os_unmap(start, lead);
    if (alignment_bytes - lead > 0)
        os_unmap(run + size_bytes, alignment_bytes - lead);
    return run;
}

struct span *detached_take(size_t pages, size_t alignment_bytes, unsigned cold_64,
                           size_t covered_bytes)
{
    size_t bytes = align_up(pages << PAGE_SHIFT, os_page_size());
    struct span *span = cold_64 == 0 ? header_take(0) : header_make(cold_64);
    if (span == NULL)
        return NULL;
    char *run = map_aligned(bytes, alignment_bytes);
    if (run && page_map_cover(run, covered_bytes) != 0) {
        os_unmap(run, bytes);
        run = NULL;
    }
    span->pages = run ? (uint32_t)pages : 0;
    store_relaxed(&span->dirty_pages, (size_t)0);
    span->base = run;
    if (run)
        return span;
    defer(span);
    return NULL;
}

void detached_give(struct span *span)
{
    os_unmap(span->base, align_up((size_t)span->pages << PAGE_SHIFT, os_page_size()));
    span->pages = 0;
    defer(span);
}
