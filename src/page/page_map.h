/* From an address to the span that it lies in: a two-level table of offsets.
 *
 * leaf = map + root[address / 4 GiB]; span = leaf + leaf[page]. A root entry of 0 leads to the
 * all-zero leaf, which the map itself is; a leaf entry of 0 to the null span that stands first in
 * every leaf and whose owner is nobody. So a lookup never branches, and a foreign pointer finds a
 * null span. Addresses beyond ADDRESS_BITS are not user space; the fast path tells them by one
 * compare, page_map_find likewise.
 *
 * A leaf is 8 MiB of address space and a little, readable, writable where an arena has pages,
 * touched as they come into use; the all-zero leaf is made read-only at the start. Neither costs
 * memory under mlockall.
 *
 * Entries: every page of a slab, the first and last page of a free span, the first page of a large
 * or huge one.
 *
 * Threading: root entries are published once by compare and swap. Leaf entries are written by
 * whoever owns the span; a thread reads them for a pointer that it was handed, so the write
 * happened before.
 */
#ifndef CAIRN_PAGE_PAGE_MAP_H
#define CAIRN_PAGE_PAGE_MAP_H

#include "base/atomic.h"
#include "page/span.h"

enum {
    REGION_SHIFT = 32,
    REGION_COUNT = 1 << (ADDRESS_BITS - REGION_SHIFT),
    REGION_PAGES = 1 << (REGION_SHIFT - PAGE_SHIFT),
};

struct page_map {
    struct span null_span;
    uint64_t root[REGION_COUNT]; /* atomic: from the map to the region's leaf; 0 for none */
    uint64_t entries[REGION_PAGES] __attribute__((aligned(65536))); /* const: zero */
};

/* A leaf has the map's shape, so that the map can serve as one; its root is not used. */
enum { LEAF_BYTES = sizeof(struct page_map) };

extern hidden_data struct page_map page_map;

/* The fences against the compiler keep it from trading additions, which the processor's addressing
 * does for nothing, for instructions. */
inline_always char *page_map_leaf(uintptr_t address)
{
    char *map = (char *)&page_map;
    keep_in_register(map);
    const uint64_t *root = (uint64_t *)(void *)(map + offsetof(struct page_map, root));
    map += load_folded(&root[address >> REGION_SHIFT]);
    keep_in_register(map);
    return map;
}

inline_always uint64_t *page_map_entry(char *leaf, uintptr_t address)
{
    size_t page = (uint32_t)address >> PAGE_SHIFT;
    keep_in_register(page);
    return (uint64_t *)(void *)(leaf + offsetof(struct page_map, entries)) + page;
}

inline_always bool page_map_reaches(uintptr_t address)
{
    return address >> REGION_SHIFT < REGION_COUNT;
}

/* For an address that the map reaches. */
inline_always struct span *page_map_find_reached(uintptr_t address)
{
    char *leaf = page_map_leaf(address);
    return (struct span *)(void *)(leaf + load_folded(page_map_entry(leaf, address)));
}

/* Never NULL: a null span for an address that is not ours. */
inline_always struct span *page_map_find(const void *address)
{
    return likely(page_map_reaches((uintptr_t)address)) ? page_map_find_reached((uintptr_t)address)
                                                        : &page_map.null_span;
}

/* Whether the address has an entry. */
inline_always bool page_map_holds(uintptr_t address)
{
    return load_relaxed(page_map_entry(page_map_leaf(address), address)) != 0;
}

/* Makes the zero leaf read-only. */
void page_map_init(void);

/* Makes an address range's entries writable. 0 or a negative errno. */
int page_map_cover(const void *start, size_t size_bytes);

/* The range is covered. A NULL span clears. */
void page_map_set(const void *start, size_t pages, struct span *span);

/* Gives back the map's own memory for a covered range that has no entries: one page for 2 MiB. The
 * caller holds the range, as for page_map_set; readers see zero before and after. */
void page_map_purge(const void *start, size_t pages);

#endif
