/* See void_slab.h. */
#include "page/void_slab.h"

#include "base/bits.h"
#include "os/os.h"
#include "page/header.h"
#include "page/listed.h"
#include "page/state.h"

enum { VOID_SLABS_MOST = config_void_blocks ? 1024 : 1 };

static struct span *places[VOID_SLABS_MOST];
static const struct span_list slabs = {places, VOID_SLABS_MOST};

static size_t mapped_bytes(const struct slab_shape *shape)
{
    return align_up((size_t)shape->pages << PAGE_SHIFT, os_page_size());
}

static char *reserve(size_t size_bytes)
{
    char *start = os_reserve(size_bytes);
    if (start && page_map_cover(start, size_bytes) != 0) {
        os_unmap(start, size_bytes);
        start = NULL;
    }
    return start;
}

struct span *pages_take_void_slab(unsigned class)
{
    const struct slab_shape *shape = &pages_state.shapes[class];
    struct span *span = header_take(shape->cold_64);
    if (span == NULL)
        return NULL;
    span->pages = 0;
    span->base = reserve(mapped_bytes(shape));
    if (span->base && !listed_add(&slabs, span)) {
        os_unmap(span->base, mapped_bytes(shape));
        span->base = NULL;
    }
    if (span->base == NULL) {
        defer(span);
        return NULL;
    }
    store_relaxed(&span->tag, (uint8_t)(SPAN_SLAB + class));
    page_map_set(span->base, shape->pages, span);
    return span;
}

void pages_give_void_slab(struct span *span)
{
    const struct slab_shape *shape = &pages_state.shapes[slab_class(span)];
    listed_remove(&slabs, span);
    page_map_set(span->base, shape->pages, NULL);
    os_unmap(span->base, mapped_bytes(shape));
    span->pages = 0;
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    defer(span);
}

bool void_slabs_each(span_visit *visit, void *context)
{
    return listed_each(&slabs, visit, context);
}
