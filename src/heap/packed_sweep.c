/* Giving back free pages inside packed slabs: see packed_sweep.h.
 *
 * A page of 512 blocks is eight words; it is nobody's while all their bits are set. Bits are
 * cleared by the holder alone, who claims a word to hand out its blocks, and the holder is who
 * sweeps: so nothing has to exclude anybody, and what another thread frees meanwhile makes more of
 * it free. What the last user of a block did comes before: its free is read with acquire.
 *
 * `given` spares the system what it has: it knows the pages that went since the slab was current.
 * They do not count for the limits until it is again (page/bound.h).
 * `looked` has those that were free at the look before, so what is empty longest goes first. A slab
 * of which a page went moves to the end of its list, to be used again last.
 *
 * Not swept: the current slab, of which the holder claims words; those that wait, which have free
 * blocks in fewer words than a page has; those of a thread that is idle, for nobody else can tell
 * that it does not claim just now; and those of first-class heaps, whose holder has a lock.
 */
#include "heap/packed_sweep.h"

#include "base/bits.h"

enum { WORDS_A_PAGE = PAGE_BYTES / PACKED_BYTES / 64 };
static_check(PACKED_WORDS % WORDS_A_PAGE == 0 && PACKED_PAGES <= 64, "a bit for each page");

static bool page_is_free(const struct span *slab, size_t page)
{
    for (size_t word = page * WORDS_A_PAGE; word < (page + 1) * WORDS_A_PAGE; word++)
        if (load_acquire(packed_word(slab, word)) != UINT64_MAX) /* pairs with (1) of packed.c */
            return false;
    return true;
}

/* Those that can go. Words that were never used have no memory. */
static uint64_t free_pages(const struct span *slab)
{
    uint64_t free = 0;
    for (size_t page = 0; page < load_relaxed(&slab->limit) / WORDS_A_PAGE; page++)
        if (page_is_free(slab, page))
            free |= (uint64_t)1 << page;
    return pages_whole_marked(slab->base, free);
}

/* Whether any page went. */
static bool sweep_slab(const struct span *slab, bool all)
{
    uint64_t *given = &slab_remote(slab)->swept.given;
    uint64_t *looked = &slab_remote(slab)->swept.looked;
    uint64_t free = free_pages(slab);
    uint64_t due = free & ~load_relaxed(given) & (all ? UINT64_MAX : load_relaxed(looked));
    store_relaxed(looked, free);
    uint64_t went = pages_purge_marked(slab->base, due);
    pages_note_swept(count_bits(went));
    store_relaxed(given, load_relaxed(given) | went);
    return went != 0;
}

void packed_sweep(struct heap *heap, bool all)
{
    struct bin *bin = &heap->packed.bin;
    if (heap->program != NULL)
        return;
    struct span *last = bin->last;
    for (struct span *slab = bin->first, *next; slab; slab = next) {
        next = slab == last ? NULL : slab->next;
        if (sweep_slab(slab, all)) {
            bin_remove(bin, slab);
            bin_append(bin, slab);
        }
    }
}
