/* The list of arenas and their reservation: see arena.h. */
#include "page/arena.h"

#include "base/bits.h"
#include "os/os.h"
#include "page/state.h"

#include <errno.h>

enum {
    ARENA_LIMIT = 4096,
    FIRST_PAGES = (64 << 20) >> PAGE_SHIFT,
    SMALLEST_PAGES = (1 << 20) >> PAGE_SHIFT,
};

/* Bounded by the bitmap, one bit a page, that must fit into a piece of metadata: 4 GiB. */
static const size_t LARGEST_PAGES = (size_t)1 << 20;

static struct arena *arenas[ARENA_LIMIT]; /* page lock: sorted by address */
static size_t count;                      /* page lock */

size_t arena_count(void) { return count; }

struct arena *arena_at(size_t index) { return arenas[index]; }

struct arena *arena_find(const void *address)
{
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (arenas[middle]->base <= (const char *)address)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0 || arena_page(arenas[low - 1], address) >= arenas[low - 1]->pages)
        return NULL;
    return arenas[low - 1];
}

struct arena *arena_with_room(size_t pages)
{
    struct arena *best = NULL; /* the fullest that has room, so that the others stay whole */
    for (size_t i = 0; i < count; i++) {
        size_t room = arenas[i]->pages - arenas[i]->frontier;
        if (room >= pages && (best == NULL || room < best->pages - best->frontier))
            best = arenas[i];
    }
    return best;
}

static struct arena *arena_reserve(size_t pages)
{
    char *base = fenced_reserve(pages << PAGE_SHIFT, true);
    if (base == NULL)
        return NULL;
    bool covered = page_map_cover(base, pages << PAGE_SHIFT) == 0;
    struct arena *arena = covered ? meta_take(META_HOT, sizeof *arena) : NULL;
    uint64_t *dirty = arena ? meta_take(META_HOT, pages / 8 + sizeof(uint64_t)) : NULL;
    if (dirty == NULL) {
        fenced_unmap(base, pages << PAGE_SHIFT);
        return NULL;
    }
    *arena = (struct arena){.base = base, .pages = pages, .dirty = dirty};
    os_name(base, pages << PAGE_SHIFT, "cairn: arena");
    if (pages_state.limits.huge_pages)
        os_huge_pages(base, pages << PAGE_SHIFT, true);
    return arena;
}

static int arena_insert(struct arena *arena)
{
    if (!lock_acquire(&pages_state.lock))
        return -EAGAIN;
    bool room = count < ARENA_LIMIT;
    if (room) {
        size_t place = count++;
        for (; place > 0 && arenas[place - 1]->base > arena->base; place--)
            arenas[place] = arenas[place - 1];
        arenas[place] = arena;
        store_relaxed(&pages_state.reserved_pages, pages_state.reserved_pages + arena->pages);
    }
    lock_release(&pages_state.lock);
    return room ? 0 : -ENOMEM;
}

int arena_add(size_t pages)
{
    size_t least = larger_of(align_up(pages, os_page_size() >> PAGE_SHIFT), SMALLEST_PAGES);
    if (least > LARGEST_PAGES)
        return -ENOMEM;
    size_t step = larger_of(FIRST_PAGES,
                            align_up(load_relaxed(&pages_state.reserved_pages) / 4, FIRST_PAGES));
    step = smaller_of(larger_of(step, least), LARGEST_PAGES);
    struct arena *arena = NULL;
    for (; arena == NULL; step = larger_of(align_up(step / 4, SMALLEST_PAGES), least)) {
        arena = arena_reserve(step);
        if (arena == NULL && step <= least)
            return -ENOMEM;
    }
    int error = arena_insert(arena);
    if (error != 0) /* its metadata is lost: a few bytes, hardly ever */
        fenced_unmap(arena->base, arena->pages << PAGE_SHIFT);
    return error;
}

/* No page is lost to a refusal or to a fork, since the frontier moves only once the system has
 * agreed. Two threads may commit the same pages; that harms nobody, one of them moves the frontier,
 * the other tries again behind it. */
char *arena_commit(size_t pages, int *error)
{
    for (;;) {
        *error = -EAGAIN;
        if (!lock_acquire(&pages_state.lock))
            return NULL;
        struct arena *arena = arena_with_room(pages);
        size_t first = arena ? arena->frontier : 0;
        lock_release(&pages_state.lock);
        *error = -ENOSPC;
        if (arena == NULL)
            return NULL;
        char *base = arena->base + (first << PAGE_SHIFT);
        *error = os_commit(base, pages << PAGE_SHIFT);
        if (*error != 0)
            return NULL;
        *error = -EAGAIN;
        if (!lock_acquire(&pages_state.lock))
            return NULL;
        bool ours = arena->frontier == first;
        if (ours)
            arena->frontier += pages;
        lock_release(&pages_state.lock);
        if (ours) {
            fetch_add_relaxed(&pages_state.committed_pages, pages);
            return base;
        }
    }
}

/* Commits pages and gives them to the bins, `needed` of them undivided. 0 or a negative errno,
 * -ENOSPC when no arena has room. */
static int grow_by(size_t pages, size_t needed)
{
    struct span *span = header_make(0);
    if (span == NULL)
        return -ENOMEM;
    int error = 0;
    char *base = arena_commit(pages, &error);
    span->base = base;
    span->pages = base ? (uint32_t)pages : 0; /* none: back to the list of headers */
    span->dirty_pages = 0;
    if (config_fences && base)
        defer_fenced(span, needed);
    else
        defer(span);
    return base ? 0 : error;
}

/* The same, with a new arena where there is no room. */
static int grow_anew(size_t pages, size_t needed)
{
    int error = grow_by(pages, needed);
    while (error == -ENOSPC && (error = arena_add(pages)) == 0)
        error = grow_by(pages, needed);
    return error;
}

bool pages_grow(size_t pages)
{
    enum { LEAST_BATCH = (256 << 10) >> PAGE_SHIFT, MOST_BATCH = (4 << 20) >> PAGE_SHIFT };
    size_t granule = os_page_size() >> PAGE_SHIFT;
    heed_soft_limit(pages);
    size_t needed = align_up(pages, granule);
    size_t batch = larger_of(
        LEAST_BATCH, smaller_of(load_relaxed(&pages_state.committed_pages) / 8, MOST_BATCH));
    size_t least = needed + fence_pages();
    batch = larger_of(align_up(batch, granule), least);
    return grow_by(batch, needed) == 0 || grow_by(least, needed) == 0 ||
           grow_anew(batch, needed) == 0 || grow_anew(least, needed) == 0;
}
