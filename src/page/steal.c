/* See steal.h. */
#include "page/steal.h"

#include "base/bits.h"
#include "os/os.h"
#include "page/arena.h"
#include "page/bins.h"
#include "page/free_spans.h"
#include "page/state.h"

#include <string.h>

/* From the tail of a free span; something stays of it, so that no header is needed or left over.
 * They begin where a page of the system's does, so they may become more. */
static char *steal_free(size_t *pages)
{
    if (!lock_acquire(&pages_state.lock))
        return NULL;
    char *stolen = NULL;
    (void)spans_merge();
    struct span *span = bins_find(*pages + (os_page_size() >> PAGE_SHIFT), 1);
    if (span) {
        struct arena *arena = arena_find(span->base);
        char *end = span->base + ((size_t)span->pages << PAGE_SHIFT);
        stolen = (char *)align_down((uintptr_t)end - (*pages << PAGE_SHIFT), os_page_size());
        *pages = (size_t)(end - stolen) >> PAGE_SHIFT;
        span_withdraw(span);
        span->pages -= (uint32_t)*pages;
        store_relaxed(&span->dirty_pages,
                      bitmap_count(arena->dirty, arena_page(arena, span->base), span->pages));
        span_release(arena, span);
        note_dirty_low();
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
