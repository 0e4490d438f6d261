/* From an address to the span that it lies in: a two-level table of offsets.
 *
 * span = map + zero_leaf[root[address / 64 MiB] + page], where a root entry of 0 stands for an all-zero leaf and a leaf
 * entry of 0 for the null span, whose owner is nobody. So a lookup never branches, and a foreign pointer finds the null
 * span. The root is indexed by bits 26..41 alone: regions whose addresses differ above bit 41 cannot both be covered,
 * page_map_cover refuses the second, and the page layer then asks the kernel for another address. A pointer that
 * differs only there finds the wrong span, and fails the test of its offset that every free makes.
 *
 * Entries: every page of a slab, the first and last page of a free span, the first page of a large or huge one.
 *
 * Threading: root entries are published once by compare and swap. Leaf entries are written by whoever owns the span;
 * a thread reads them for a pointer that it was handed, so the write happened before.
 */
#ifndef CAIRN_PAGE_PAGE_MAP_H
#define CAIRN_PAGE_PAGE_MAP_H

#include "base/atomic.h"
#include "page/span.h"

enum {
    REGION_SHIFT = 26,
    REGION_COUNT = 1 << 16,
    REGION_PAGES = 1 << (REGION_SHIFT - PAGE_SHIFT),
};

struct page_map {
    struct span null_span;
    uint64_t zero_leaf[REGION_PAGES]; /* const: never written, so it costs no memory */
    uint64_t root[REGION_COUNT];      /* atomic: offset of the region's leaf from zero_leaf, 0 for none */
    uint8_t claims[REGION_COUNT];     /* atomic: 1 + bits 42..47 of the region's address, 0 for none */
};

extern struct page_map page_map;

inline_always uint64_t *page_map_entry_in(char *map, uintptr_t address)
{
    uint64_t leaf = load_relaxed((uint64_t *)(void *)(map + offsetof(struct page_map, root)) +
                                 (uint16_t)(address >> REGION_SHIFT));
    uint64_t within = (address >> (PAGE_SHIFT - 3)) & ((uint64_t)(REGION_PAGES - 1) << 3);
    return (uint64_t *)(void *)(map + offsetof(struct page_map, zero_leaf) + (leaf + within));
}

/* Offset of the span's header from the map itself; 0 is the null span. Always readable. */
inline_always uint64_t page_map_offset(char *map, uintptr_t address)
{
    return load_relaxed(page_map_entry_in(map, address));
}

/* Never NULL: the null span for an address that is not ours. */
inline_always struct span *page_map_find(const void *address)
{
    char *map = (char *)&page_map;
    return (struct span *)(void *)(map + page_map_offset(map, (uintptr_t)address));
}

/* Makes leaves for an address range. 0; -ENOMEM; -EADDRINUSE when the range collides with another region. */
int page_map_cover(const void *start, size_t size_bytes);

/* The range is covered. A NULL span clears. */
void page_map_set(const void *start, size_t pages, struct span *span);

#endif
