/* Guard pages between the parts of the address space, and where those parts lie.
 *
 * A fence is a page without permissions. In every build one stands before and behind each arena,
 * each range of metadata and each leaf of the page map, so that a linear overflow of a block,
 * whatever its length, ends before it reaches any of them. Reserved with what they enclose, they
 * cost no system call; where that is without permissions, too, not even a mapping of the kernel's.
 *
 * In hardened builds (docs/HARDENING.md) one stands within arenas, too, every STRETCH_PAGES to
 * twice as many pages, at random. These belong to no span and stay for good, so runs come and go
 * without a system call for them; their cost is one division of the kernel's mapping each, which it
 * bounds (vm.max_map_count): where it refuses one, there is none.
 */
#include "base/bits.h"
#include "base/random.h"
#include "os/os.h"
#include "page/state.h"

/* A run is not longer than a stretch, unless one was asked for: enough for a slab of any class but
 * the largest. */
enum { STRETCH_PAGES = 32 };

/* Where arenas are put: below the stacks and mappings of the program, which the kernel keeps in the
 * upper half, and above what it may have mapped at low addresses. */
static void *random_place(void)
{
    enum { LOWEST_SHIFT = 40, HIGHEST_SHIFT = ADDRESS_BITS - 1 };
    uintptr_t place = os_entropy() & (((uintptr_t)1 << HIGHEST_SHIFT) - 1);
    return (void *)align_down(place | (uintptr_t)1 << LOWEST_SHIFT, os_page_size());
}

char *fenced_reserve(size_t size_bytes, bool anywhere)
{
    size_t fence = os_page_size();
    size_t bytes = size_bytes + 2 * fence;
    /* ThreadSanitizer wants to know all places beforehand. */
    bool random = config_random_runs && anywhere && !config_tsan;
    char *start = random ? os_reserve_near(random_place(), bytes) : os_reserve(bytes);
    return start ? start + fence : NULL;
}

void fenced_unmap(char *start, size_t size_bytes)
{
    size_t fence = os_page_size();
    (void)os_unmap(start - fence, size_bytes + 2 * fence);
}

char *fenced_map(size_t size_bytes)
{
    char *start = fenced_reserve(size_bytes, false);
    if (start && os_commit(start, size_bytes) != 0) {
        fenced_unmap(start, size_bytes);
        start = NULL;
    }
    return start;
}

char *fenced_steal(size_t size_bytes)
{
    size_t fence = os_page_size();
    char *start = pages_steal((size_bytes + 2 * fence) >> PAGE_SHIFT);
    if (start == NULL)
        return NULL;
    char *end = start + fence + size_bytes;
    if (os_protect(start, fence, OS_NONE) == 0 && os_protect(end, fence, OS_NONE) == 0) {
        (void)os_purge(start, fence);
        (void)os_purge(end, fence);
    }
    return start + fence;
}

size_t fence_pages(void) { return config_fences ? os_page_size() >> PAGE_SHIFT : 0; }

void defer_fenced(struct span *span, size_t least)
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
        rest->dirty_pages = 0;
        span->pages = (uint32_t)stretch;
        defer(span);
        span = rest;
        least = smaller_of(least, span->pages - fence); /* the end may be shorter */
    }
    defer(span);
}
