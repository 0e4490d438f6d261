/* Free pages inside slabs: see slab_sweep.h. */
#include "heap/slab_sweep.h"

#include "base/bits.h"
#include "base/test_delay.h"
#include "heap/packed_sweep.h"
#include "heap/remote.h"

enum { SWEEP_LEAST_PAGES = 512 };
static const uint64_t GIVEN = 1 << 9; /* in `looked`: nothing to give since */

/* A bit for each page from `first` to `last`. */
static uint64_t pages_between(size_t first, size_t last)
{
    return (UINT64_MAX >> (63 - last)) & (UINT64_MAX << first);
}

uint64_t slab_free_pages(const struct span *slab, enum slab_unused unused)
{
    const struct size_class *shape = &size_classes[slab_class(slab)];
    uint64_t free = pages_between(0, shape->pages - 1);
    unsigned limit = (unsigned)smaller_of(load_relaxed(&slab->limit), shape->capacity + 1u);
    for (unsigned slot = 1; slot <= shape->capacity && free != 0; slot++) {
        if (slot >= limit && unused == SLOTS_NOT_USED)
            break;
        uint8_t link = load_acquire(slab_link(slab, slot)); /* pairs with (1) of remote.c */
        if (unused == SLOTS_NOT_USED ? link_shows_use(link) : link != LINK_REMOTE) {
            size_t end = (size_t)slot * shape->size_bytes;
            free &=
                ~pages_between((end - shape->size_bytes) >> PAGE_SHIFT, (end - 1) >> PAGE_SHIFT);
        }
    }
    return free;
}

bool slab_purge_aside(struct span *slab)
{
    uint64_t *given = &slab_remote(slab)->swept.given;
    uint64_t before = load_relaxed(given);
    uint64_t free = slab_free_pages(slab, SLOTS_NOT_USED);
    uint64_t pages = pages_whole_marked(slab_start(slab), free) & ~before;
    uint32_t process = heap_generation;
    test_delay();
    uint64_t went = pages_purge_marked(slab_start(slab), pages);
    if (heap_generation == process) { /* else a signal handler forked: other words there */
        pages_note_swept(count_bits(went));
        store_relaxed(given, before | went);
    }
    return went != 0;
}

/* Whether it has not changed since the look before, and was not swept since. */
static bool is_due(struct span *slab)
{
    uint64_t *looked = &slab_remote(slab)->swept.looked;
    uint64_t before = load_relaxed(looked);
    uint64_t now = slab_own(slab)->until;
    if (before != (now | GIVEN))
        store_relaxed(looked, now);
    return before == now;
}

static void sweep_bin(struct heap *heap, struct bin *bin)
{
    struct span *last = bin->last;
    for (struct span *slab = bin->first, *next; slab; slab = next) {
        next = slab == last ? NULL : slab->next;
        if (!is_due(slab) || !slab_try_use(slab, SLAB_PURGED))
            continue;
        if (slab_purge_aside(slab)) {
            bin_remove(bin, slab);
            bin_append(bin, slab);
        }
        store_relaxed(&slab_remote(slab)->swept.looked, slab_own(slab)->until | GIVEN);
        if (slab_end_purge(slab))
            (void)remote_post(heap, slab);
    }
}

void sweep_heap(struct heap *heap)
{
    store_relaxed(&heap->swept_ms, pages_interval_ms());
    heap->sweep_pages = heap->slab_pages + larger_of(SWEEP_LEAST_PAGES, heap->slab_pages / 8);
    if (pages_are_huge())
        return;
    for (unsigned class = 0; class < CLASS_COUNT; class ++)
        if (class_is_swept(class))
            sweep_bin(heap, &heap->bins[class]);
    packed_sweep(heap, false);
}
