/* See dense.h. */
#include "page/dense.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "page/page_map.h"
#include "page/state.h"

enum { GROWTHS = 2 };

/* The last ones: where they start, and in the low bits their length in pages; 0: none. Threads that
 * grow at the same time may note one too few. */
static uintptr_t growths[GROWTHS]; /* atomic, each */
static unsigned growth_count;      /* atomic: counts around */

static_check((int)DENSE_GROWTH_MOST < (int)PAGE_BYTES, "a length fits beside an address");

void dense_note_growth(const char *start, size_t pages)
{
    if (pages > DENSE_GROWTH_MOST)
        return;
    unsigned place = fetch_add_relaxed(&growth_count, 1u) % GROWTHS;
    store_relaxed(&growths[place], (uintptr_t)start | pages);
}

/* Pages of a slab that were touched. One that nothing was handed out of has a limit of 1, or of 0
 * if it is packed. */
static size_t touched_of(const struct span *slab, const struct slab_shape *shape)
{
    uint64_t limit = smaller_of(load_relaxed(&slab->limit), (uint64_t)PAGE_BYTES);
    uint64_t bytes = (limit - (limit != 0)) * shape->unit_bytes;
    return smaller_of((bytes + PAGE_BYTES - 1) >> PAGE_SHIFT, (uint64_t)shape->pages);
}

static size_t touched_between(const char *start, size_t pages)
{
    size_t touched = 0;
    for (size_t page = 0; page < pages;) {
        struct span *span = page_map_find(start + (page << PAGE_SHIFT));
        unsigned tag = load_relaxed(&span->tag);
        if (tag >= SPAN_SLAB) {
            const struct slab_shape *shape = &pages_state.shapes[tag - SPAN_SLAB];
            touched += touched_of(span, shape);
            page += shape->pages;
        } else {
            page++;
        }
    }
    return touched;
}

bool dense_is_filled(void)
{
    enum { PART = 8 }; /* that may be missing: slabs that have just begun, free runs */
    size_t pages = 0;
    size_t touched = 0;
    for (int i = 0; i < GROWTHS; i++) {
        uintptr_t noted = load_relaxed(&growths[i]);
        size_t length = noted % PAGE_BYTES;
        if (length == 0)
            return false;
        pages += length;
        touched += touched_between((const char *)(noted - length), length);
    }
    return touched >= pages - pages / PART;
}
