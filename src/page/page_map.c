/* The page map's storage and its growth: see page_map.h. Leaves are made as regions come into use,
 * and stay. */
#include "page/page_map.h"

#include "base/bits.h"
#include "os/os.h"
#include "page/state.h"

#include <errno.h>

struct page_map page_map __attribute__((aligned(PAGE_BYTES)));

void page_map_init(void)
{
    /* Refused or not: nobody writes there. Read-only, it costs nothing under mlockall and
     * RLIMIT_DATA. */
    (void)os_protect(page_map.entries, sizeof page_map.entries, OS_READ);
}

static char *make_leaf(uintptr_t region)
{
    uint64_t *root = &page_map.root[region];
    uint64_t distance = load_acquire(root); /* pairs with the publication below */
    if (distance != 0)
        return (char *)&page_map + distance;
    char *leaf = fenced_reserve(LEAF_BYTES, false);
    if (leaf == NULL)
        return NULL;
    uint64_t mine = (uint64_t)(leaf - (char *)&page_map);
    if (os_protect(leaf, LEAF_BYTES, OS_READ) == 0 && compare_swap_acq_rel(root, &distance, mine))
        return leaf;
    fenced_unmap(leaf, LEAF_BYTES); /* refused, or another thread was first */
    return distance != 0 ? (char *)&page_map + distance : NULL;
}

int page_map_cover(const void *start, size_t size_bytes)
{
    uintptr_t first = (uintptr_t)start >> PAGE_SHIFT;
    uintptr_t last = ((uintptr_t)start + size_bytes - 1) >> PAGE_SHIFT;
    if (last >> (ADDRESS_BITS - PAGE_SHIFT) != 0)
        return -EADDRNOTAVAIL;
    while (first <= last) {
        char *leaf = make_leaf(first / REGION_PAGES);
        if (leaf == NULL)
            return -ENOMEM;
        uintptr_t end =
            smaller_of(last + 1, align_up(first + 1, REGION_PAGES)); /* within this region */
        size_t from = align_down(first % REGION_PAGES * sizeof(uint64_t), os_page_size());
        size_t to = align_up(((end - 1) % REGION_PAGES + 1) * sizeof(uint64_t), os_page_size());
        int error =
            os_protect(leaf + offsetof(struct page_map, entries) + from, to - from, OS_WRITE);
        if (error != 0)
            return error;
        first = end;
    }
    return 0;
}

void page_map_purge(const void *start, size_t pages)
{
    uintptr_t first = (uintptr_t)start >> PAGE_SHIFT;
    uintptr_t end = first + pages;
    while (first < end) {
        uintptr_t next = smaller_of(end, align_up(first + 1, REGION_PAGES)); /* of this region */
        char *leaf = page_map_leaf(first << PAGE_SHIFT);
        uint64_t *last_entry = page_map_entry(leaf, (next - 1) << PAGE_SHIFT);
        uintptr_t from =
            align_up((uintptr_t)page_map_entry(leaf, first << PAGE_SHIFT), os_page_size());
        uintptr_t to = align_down((uintptr_t)(last_entry + 1), os_page_size());
        if (from < to)
            (void)os_purge((void *)from, to - from); /* refused, they stay */
        first = next;
    }
}

void page_map_set(const void *start, size_t pages, struct span *span)
{
    for (uintptr_t address = (uintptr_t)start; pages > 0; pages--, address += PAGE_BYTES) {
        char *leaf = page_map_leaf(address);
        uint64_t value = span ? (uint64_t)((char *)span - leaf) : 0;
        store_relaxed(page_map_entry(leaf, address), value);
    }
}
