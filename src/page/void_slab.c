/* Void slabs: runs of addresses without memory, for blocks of 0 bytes in hardened builds.
 *
 * Each is a mapping of its own without permissions, in the page map by every page of it, so that
 * its slots are found, checked and freed like those of any slab, and an access to one faults. What
 * one costs is its header and its entries. They lie in no arena, so a list of them, of a fixed
 * length, serves whoever looks for all slabs.
 *
 * Threading: any thread.
 */
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
