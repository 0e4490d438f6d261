/* Growth of the arenas: see grow.h.
 *
 * In hardened builds (docs/HARDENING.md) fences stand within arenas, too, every STRETCH_PAGES to
 * twice as many pages, at random. These belong to no span and stay for good, so runs come and go
 * without a system call for them; their cost is one division of the kernel's mapping each, which it
 * bounds (vm.max_map_count): where it refuses one, there is none.
 */
#include "page/grow.h"

#include "base/bits.h"
#include "base/random.h"
#include "os/os.h"
#include "page/arena.h"
#include "page/bound.h"
#include "page/dense.h"
#include "page/fence.h"
#include "page/header.h"
#include "page/state.h"

#include <errno.h>

/* A run is not longer than a stretch, unless one was asked for: enough for a slab of any class but
 * the largest. */
enum { STRETCH_PAGES = 32 };

/* What is committed at once. */
enum {
    LEAST_BATCH = (256 << 10) >> PAGE_SHIFT,
    MOST_BATCH = (4 << 20) >> PAGE_SHIFT, /* but for a longer run */
};

/* Defers a new free run, divided by fences into stretches of at least `least` pages each. */
static void defer_fenced(struct span *span, size_t least)
{
    size_t fence = fence_pages();
    uint64_t random = os_entropy();
    while (span->pages >= fence + least &&
           os_protect(span->base, fence << PAGE_SHIFT, OS_NONE) == 0) {
        span->base += fence << PAGE_SHIFT;
        span->pages -= (uint32_t)fence;
        fetch_sub_relaxed(&pages_state.committed_pages, fence); /* in no one's use, nor free */
        size_t stretch = STRETCH_PAGES + random_below(&random, STRETCH_PAGES);
        stretch = align_up(larger_of(stretch, least), fence);
        struct span *rest = span->pages > stretch + fence ? header_make(0) : NULL;
        if (rest == NULL)
            break;
        rest->base = span->base + (stretch << PAGE_SHIFT);
        rest->pages = span->pages - (uint32_t)stretch;
        store_relaxed(&rest->dirty_pages, (size_t)0);
        span->pages = (uint32_t)stretch;
        defer(span);
        span = rest;
        least = smaller_of(least, span->pages - fence); /* the end may be shorter */
    }
    defer(span);
}

/* Commits pages, or the rest of an arena, and gives them to the bins, `needed` of them undivided. 0
 * or a negative errno, -ENOSPC when no arena has room. */
static int grow_by(size_t pages, size_t needed, bool huge)
{
    struct span *span = header_make(0);
    if (span == NULL)
        return -ENOMEM;
    int error = 0;
    char *base = arena_commit(&pages, needed + fence_pages(), huge, &error);
    span->base = base;
    span->pages = base ? (uint32_t)pages : 0; /* none: back to the list of headers */
    store_relaxed(&span->dirty_pages, (size_t)0);
    if (base && pages >= MOST_BATCH)
        dense_note_growth(base, pages);
    if (config_fences && base)
        defer_fenced(span, needed);
    else
        defer(span);
    return base ? 0 : error;
}

/* The same, with a new arena where there is no room. */
static int grow_anew(size_t pages, size_t needed, bool huge)
{
    int error = grow_by(pages, needed, huge);
    while (error == -ENOSPC && (error = arena_add(pages)) == 0)
        error = grow_by(pages, needed, huge);
    return error;
}

/* A huge page that the sweeps cut was zeroed and divided for little, and the next one probably will
 * be. So the heap grows in small pages first, by so many times what was in huge pages that were
 * cut, and then tries again. */
static bool makes_up_for_cuts(size_t pages)
{
    enum { TIMES = 4 };
    size_t cut = load_relaxed(&pages_state.cut_pages);
    if (likely(cut == 0))
        return false;
    size_t left = cut - smaller_of(pages / TIMES, cut); /* another thread's growth may be missed */
    (void)compare_swap_acq_rel(&pages_state.cut_pages, &cut, left);
    return true;
}

/* Whether what the heap grows by may be in huge pages: it is large, the program has touched what it
 * took last, and huge pages have stayed whole. Not for one long run, of which nobody knows whether
 * it will be filled. Fences would divide them. */
static bool grows_huge(size_t pages)
{
    size_t committed = load_relaxed(&pages_state.committed_pages);
    return !config_fences && pages <= MOST_BATCH && committed >= ADVICE_FROM_BYTES >> PAGE_SHIFT &&
           huge_pages_fit(pages) && dense_is_filled() && !makes_up_for_cuts(pages);
}

bool pages_grow(size_t pages)
{
    size_t granule = os_page_size() >> PAGE_SHIFT;
    heed_soft_limit(pages);
    size_t needed = align_up(pages, granule);
    size_t batch = larger_of(
        LEAST_BATCH, smaller_of(load_relaxed(&pages_state.committed_pages) / 8, MOST_BATCH));
    size_t least = needed + fence_pages();
    batch = larger_of(align_up(batch, granule), least);
    bool huge = grows_huge(batch);
    return grow_by(batch, needed, huge) == 0 || grow_by(least, needed, false) == 0 ||
           grow_anew(batch, needed, huge) == 0 || grow_anew(least, needed, false) == 0;
}
