/* From an address to the span that it lies in: a two-level table of offsets.
 *
 * span = map + leaf(root[address / 4 GiB])[page], where a root entry of 0 stands for an all-zero
 * leaf and a leaf entry of 0 for the null span, whose owner is nobody. So a lookup never branches,
 * and a foreign pointer finds the null span. Addresses beyond ADDRESS_BITS are not user space; the
 * fast path tells them by one compare, page_map_find likewise.
 *
 * A leaf is 8 MiB of address space, readable, writable where an arena has pages, touched as they
 * come into use; the all-zero leaf is made read-only at the start. Neither costs memory under
 * mlockall.
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
    uint64_t root[REGION_COUNT]; /* atomic: from zero_leaf to the region's leaf; 0 for none */
    uint64_t zero_leaf[REGION_PAGES] __attribute__((aligned(65536))); /* const: zero */
};

extern hidden_data struct page_map page_map;

/* `map` is &page_map, in a register. The fences against the compiler keep it from trading
 * additions, which the processor's addressing does for nothing, for instructions. */
inline_always uint64_t *page_map_entry_in(char *map, uintptr_t address)
{
    const uint64_t *root = (uint64_t *)(void *)(map + offsetof(struct page_map, root));
    char *leaf = map + load_folded(&root[address >> REGION_SHIFT]);
    size_t page = (uint32_t)address >> PAGE_SHIFT;
    keep_in_register(leaf);
    keep_in_register(page);
    return (uint64_t *)(void *)(leaf + offsetof(struct page_map, zero_leaf)) + page;
}

inline_always bool page_map_reaches(uintptr_t address)
{
    return address >> REGION_SHIFT < REGION_COUNT;
}

/* Offset of the span's header from the map itself; 0 is the null span. Readable for every address
 * that the map reaches. */
inline_always uint64_t page_map_offset(char *map, uintptr_t address)
{
    return load_folded(page_map_entry_in(map, address));
}

/* Never NULL: the null span for an address that is not ours. */
inline_always struct span *page_map_find(const void *address)
{
    char *map = (char *)&page_map;
    if (unlikely(!page_map_reaches((uintptr_t)address)))
        return &page_map.null_span;
    return (struct span *)(void *)(map + page_map_offset(map, (uintptr_t)address));
}

/* Makes the zero leaf read-only. */
void page_map_init(void);

/* Makes an address range's entries writable. 0 or a negative errno. */
int page_map_cover(const void *start, size_t size_bytes);

/* The range is covered. A NULL span clears. */
void page_map_set(const void *start, size_t pages, struct span *span);

#endif
