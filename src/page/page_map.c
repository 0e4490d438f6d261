/* The page map's storage and its growth: see page_map.h. Leaves are made as regions come into use, and stay. */
#include "page/page_map.h"

#include "os/os.h"

#include <errno.h>

struct page_map page_map __attribute__((aligned(PAGE_BYTES))) = {.null_span = {.tag = SPAN_NONE}};

static int claim_region(uintptr_t region)
{
    uint8_t wanted = (uint8_t)(1 + (region >> 16));
    uint8_t found = 0;
    if (compare_swap_acq_rel(&page_map.claims[region % REGION_COUNT], &found, wanted) || found == wanted)
        return 0;
    return -EADDRINUSE;
}

static int make_leaf(uintptr_t region)
{
    uint64_t *root = &page_map.root[region % REGION_COUNT];
    if (load_acquire(root) != 0) /* pairs with the publication below */
        return 0;
    size_t bytes = REGION_PAGES * sizeof(uint64_t);
    char *leaf = os_map(bytes);
    if (leaf == NULL)
        return -ENOMEM;
    uint64_t none = 0;
    if (!compare_swap_acq_rel(root, &none, (uint64_t)(leaf - (char *)page_map.zero_leaf)))
        os_unmap(leaf, bytes); /* another thread was first */
    return 0;
}

int page_map_cover(const void *start, size_t size_bytes)
{
    uintptr_t last = ((uintptr_t)start + size_bytes - 1) >> REGION_SHIFT;
    if (last >> 22 != 0)
        return -EADDRINUSE; /* beyond 48 bits */
    for (uintptr_t region = (uintptr_t)start >> REGION_SHIFT; region <= last; region++) {
        int error = claim_region(region);
        if (error == 0)
            error = make_leaf(region);
        if (error != 0)
            return error;
    }
    return 0;
}

void page_map_set(const void *start, size_t pages, struct span *span)
{
    char *map = (char *)&page_map;
    uint64_t value = span ? (uint64_t)((char *)span - map) : 0;
    for (uintptr_t address = (uintptr_t)start; pages > 0; pages--, address += PAGE_BYTES)
        store_relaxed(page_map_entry_in(map, address), value);
}
