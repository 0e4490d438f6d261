/* See fence.h. */
#include "page/fence.h"

#include "base/bits.h"
#include "os/os.h"
#include "page/span.h"

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

size_t fence_pages(void) { return config_fences ? os_page_size() >> PAGE_SHIFT : 0; }
