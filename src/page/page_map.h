/* From an address to the span that it lies in: a two-level table of offsets.
 *
 * leaf = map + root[address / 512 MiB]; span = leaf + leaf[page]. So a lookup never branches: where
 * an entry is 0, it stays where it is, and finds what stands first in the map and in every leaf, a
 * null span whose owner is nobody. A root entry of 0 makes the map itself the leaf, and the root
 * its entries: those are 0, or lead to another leaf, which begins with a null span as well. So a
 * foreign pointer finds a null span. Addresses beyond ADDRESS_BITS are not user space; the fast
 * path tells them by one compare, page_map_find likewise.
 *
 * Regions of 512 MiB make the sum of the two tables that every process has, root and one leaf,
 * as small as it can be: 3 MiB of addresses, which count where memory is locked or limited.
 * Untouched they have no memory. The first leaf lies in the map, so a process that has no addresses
 * left can still begin.
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
    REGION_COUNT = 1 << 18,
    REGION_SHIFT = ADDRESS_BITS - 18,
    REGION_PAGES = 1 << (REGION_SHIFT - PAGE_SHIFT),
};

/* What changes its permissions has pages of its own, also where those are large. */
#define page_map_pages __attribute__((aligned(65536)))

struct page_leaf {
    struct span null_span;                         /* const: zero */
    uint64_t entries[REGION_PAGES] page_map_pages; /* atomic: owner of the span */
};

struct page_map {
    struct span null_span;                      /* const: zero */
    uint64_t root[REGION_COUNT] page_map_pages; /* atomic: from the map to the leaf; 0: none */
    struct page_leaf first page_map_pages;      /* the leaf of the region that came first */
};
static_check(offsetof(struct page_map, root) == offsetof(struct page_leaf, entries) &&
                 REGION_COUNT >= REGION_PAGES,
             "the map serves as the leaf of a region that has none");

/* Leaves that nobody uses yet. */
struct page_map_spares {
    char *leaf; /* the first one, whose first entry has the address of the next; NULL: none */
};

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
    size_t page;
    if (config_shifted_fields) { /* else the compiler masks: one instruction more */
        uint32_t shifted = (uint32_t)address << (32 - REGION_SHIFT);
        keep_in_register(shifted);
        page = shifted >> (32 - REGION_SHIFT + PAGE_SHIFT);
    } else {
        page = address >> PAGE_SHIFT & (REGION_PAGES - 1);
    }
    keep_in_register(page);
    return (uint64_t *)(void *)(leaf + offsetof(struct page_leaf, entries)) + page;
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

/* Whether the address has an entry; its region has a leaf. */
inline_always bool page_map_holds(uintptr_t address)
{
    return load_relaxed(page_map_entry(page_map_leaf(address), address)) != 0;
}

/* Makes read-only what nobody writes. */
void page_map_init(void);

/* Gives an address range entries that can be written. 0 or a negative errno. */
int page_map_cover(const void *start, size_t size_bytes);

/* The same in two steps, for a place that is not known yet: what the first one has ready, the
 * second cannot lack. What it did not need, the third gives back. 0 or a negative errno. */
int page_map_prepare(size_t size_bytes, struct page_map_spares *spares);
void page_map_cover_prepared(const void *start, size_t size_bytes, struct page_map_spares *spares);
void page_map_drop(struct page_map_spares *spares);

/* The page, or the range, is covered. A NULL span clears. */
inline_always void page_map_set_page(const void *address, struct span *span)
{
    char *leaf = page_map_leaf((uintptr_t)address);
    uint64_t value = span ? (uint64_t)((char *)span - leaf) : 0;
    store_relaxed(page_map_entry(leaf, (uintptr_t)address), value);
}
void page_map_set(const void *start, size_t pages, struct span *span);

/* Gives back the map's own memory for a covered range that has no entries: one page for 2 MiB. The
 * caller holds the range, as for page_map_set; readers see zero before and after. */
void page_map_purge(const void *start, size_t pages);

#endif
