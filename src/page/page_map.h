/* The page map: finds the span that contains an address, by a two-level table of offsets.
 *
 *   leaf = map + root[address / region]     a region has 512 MiB, on aarch64 1 GiB
 *   span = leaf + leaf[page]
 *
 * A lookup never branches. An entry of 0 leaves the position unchanged, at the first bytes of the
 * map or of a leaf, and these are a null span, which has no owner. A root entry of 0 makes the map
 * itself the leaf and the root its entries: each of these is 0 or leads to another leaf, which
 * begins with a null span too. So the lookup of a foreign pointer finds a null span. Addresses
 * above ADDRESS_BITS are not user space; page_map_find and the fast path of free exclude them by
 * one compare.
 *
 * The length of a region makes the tables that each process needs, the root and one leaf, as small
 * as possible: 3 MiB of addresses (aarch64: 4 MiB), see decision 13. They have no memory before
 * they are touched. The first leaf is part of the map, so a process without free addresses can
 * still begin.
 *
 * Entries: each page of a slab, the first and the last page of a free span, the first page of a
 * large or huge block. The other allocators enter more pages of their runs.
 * Threads: a root entry is published once, by compare and swap. Leaf entries are written by
 * the owner of the span. A thread reads an entry for a pointer that was passed to it, and that
 * passing orders the write before the read. */
#ifndef CAIRN_PAGE_PAGE_MAP_H
#define CAIRN_PAGE_PAGE_MAP_H

#include "base/atomic.h"
#include "page/span.h"

/* The part of the map for one region. The null span is read-only, so it has pages of its own. */
struct page_leaf {
    struct span null_span;                       /* const: zero */
    uint64_t entries[REGION_PAGES] page_aligned; /* atomic, owner of the span writes: distance from
                                                    the leaf to the span; 0: none */
};

/* The root, and the leaf of the first region. */
struct page_map {
    struct span null_span;                    /* const: zero */
    uint64_t root[REGION_COUNT] page_aligned; /* atomic, set once: distance from the map to the
                                                 leaf; 0: none */
    struct page_leaf first page_aligned;      /* leaf of the region that was covered first */
};
static_check(offsetof(struct page_map, root) == offsetof(struct page_leaf, entries) &&
                 REGION_COUNT >= REGION_PAGES,
             "the map serves as the leaf of a region that has none");

/* Unused leaves that page_map_prepare made, as a list. */
struct page_map_spares {
    char *leaf; /* caller: first leaf, whose first entry is the address of the next; NULL: none */
};

extern hidden_data struct page_map page_map;

/* The leaf for an address: the map itself if the region has none. keep_in_register here and in
 * page_map_entry stops the compiler from replacing additions, which are free as part of an
 * addressing mode, by instructions. */
inline_always char *page_map_leaf(uintptr_t address)
{
    char *map = (char *)&page_map;
    keep_in_register(map);
    const uint64_t *root = (uint64_t *)(void *)(map + offsetof(struct page_map, root));
    map += (ptrdiff_t)load_folded(&root[address >> REGION_SHIFT]);
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

/* Whether the address is below the end of user space, so that the root has an entry for it. */
inline_always bool page_map_reaches(uintptr_t address)
{
    return address >> REGION_SHIFT < REGION_COUNT;
}

/* Finds the span for an address that page_map_reaches; a null span for one that is not Cairn's. */
inline_always struct span *page_map_find_reached(uintptr_t address)
{
    char *leaf = page_map_leaf(address);
    return (struct span *)(void *)(leaf + (ptrdiff_t)load_folded(page_map_entry(leaf, address)));
}

/* Finds the span for any address: never NULL, a null span for one that is not Cairn's. */
inline_always struct span *page_map_find(const void *address)
{
    return likely(page_map_reaches((uintptr_t)address)) ? page_map_find_reached((uintptr_t)address)
                                                        : &page_map.null_span;
}

/* Whether the address has an entry. The caller knows that the region of the address has a leaf. */
inline_always bool page_map_holds(uintptr_t address)
{
    return load_relaxed(page_map_entry(page_map_leaf(address), address)) != 0;
}

/* Makes the null spans read-only, where the system allows it. */
void page_map_init(void);

/* Makes the leaves for an address range, so that its entries can be written.
 * Returns: 0 or a negative errno. */
int page_map_cover(const void *start, size_t size_bytes);

/* Makes leaves for a range of `size_bytes` at a place that is not known yet. Afterwards
 * page_map_cover_prepared cannot fail. Returns: 0 or a negative errno. */
int page_map_prepare(size_t size_bytes, struct page_map_spares *spares);

/* Covers an address range like page_map_cover, with the leaves of page_map_prepare. */
int page_map_cover_prepared(const void *start, size_t size_bytes, struct page_map_spares *spares);

/* Unmaps the leaves that page_map_cover_prepared did not need. */
void page_map_drop(struct page_map_spares *spares);

/* Enters the span for one page, which is covered; a NULL span clears the entry. */
inline_always void page_map_set_page(const void *address, struct span *span)
{
    char *leaf = page_map_leaf((uintptr_t)address);
    uint64_t value = span ? (uint64_t)((char *)span - leaf) : 0;
    store_relaxed(page_map_entry(leaf, (uintptr_t)address), value);
}

/* Enters the span for each page of a covered range; a NULL span clears the entries. */
void page_map_set(const void *start, size_t pages, struct span *span);

/* Purges the map's own memory for a covered range that has no entries: one system page of the map
 * for 2 MiB of addresses, where those are 4 KiB. The caller owns the range. Readers see zero before
 * and after. */
void page_map_purge(const void *start, size_t pages);

#endif
