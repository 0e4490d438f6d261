/* See steal.h. */
#include "page/steal.h"

#include "base/bits.h"
#include "os/os.h"
#include "page/arena.h"
#include "page/bins.h"
#include "page/free_spans.h"
#include "page/state.h"

#include <string.h>

/* Where what was stolen begins. It never comes back, and strewn over the arenas it would leave no
 * room for long runs; so more is stolen right before it. */
enum { PLACES = 64 };
static char *places[PLACES]; /* page lock */
static size_t place_count;   /* page lock: in all, the last ones are known */

/* A free span of so many pages right before one of them; NULL if none. */
static struct span *find_beside(size_t pages)
{
    for (size_t i = smaller_of(place_count, PLACES); i-- > 0;) {
        struct span *span = span_free_neighbour(arena_find(places[i]), places[i] - PAGE_BYTES);
        if (span && span->pages >= pages)
            return span;
    }
    return NULL;
}

static void note_place(char *stolen, const char *end)
{
    size_t known = smaller_of(place_count, PLACES);
    size_t i = 0;
    while (i < known && places[i] != end)
        i++;
    places[i < known ? i : place_count++ % PLACES] = stolen;
}

/* From the tail of a free span; something stays of it, so that no header is needed or left over.
 * They begin where a page of the system's does, so they may become more. */
static char *steal_free(size_t *pages)
{
    if (!lock_acquire(&pages_state.lock))
        return NULL;
    char *stolen = NULL;
    (void)spans_merge();
    size_t least = *pages + (os_page_size() >> PAGE_SHIFT);
    struct span *span = find_beside(least);
    if (span == NULL)
        span = bins_find(least, 1);
    if (span) {
        struct arena *arena = arena_find(span->base);
        char *end = span_end(span);
        stolen = (char *)align_down((uintptr_t)end - (*pages << PAGE_SHIFT), os_page_size());
        *pages = (size_t)(end - stolen) >> PAGE_SHIFT;
        span_withdraw(span);
        span->pages -= (uint32_t)*pages;
        store_relaxed(&span->dirty_pages,
                      bitmap_count(arena->dirty, arena_page(arena, span->base), span->pages));
        span_release(arena, span);
        note_dirty_low();
        note_place(stolen, end);
    }
    lock_release(&pages_state.lock);
    if (stolen)
        memset(stolen, 0, *pages << PAGE_SHIFT);
    return stolen;
}

/* Zero. NULL when no arena has them, or while the lock is frozen. */
static char *steal(size_t pages)
{
    int error = 0;
    char *start = arena_commit(&pages, pages, false, &error);
    if (start == NULL)
        start = steal_free(&pages);
    if (start) /* neither free nor in the use of a span from now on */
        fetch_sub_relaxed(&pages_state.committed_pages, pages);
    return start;
}

char *fenced_steal(size_t size_bytes)
{
    size_t fence = os_page_size();
    char *start = steal((size_bytes + 2 * fence) >> PAGE_SHIFT);
    if (start == NULL)
        return NULL;
    char *end = start + fence + size_bytes;
    if (os_protect(start, fence, OS_NONE) == 0 && os_protect(end, fence, OS_NONE) == 0) {
        (void)os_purge(start, fence);
        (void)os_purge(end, fence);
    }
    return start + fence;
}
