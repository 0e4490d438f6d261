/* The page map's storage and its growth: see page_map.h. Leaves are made as regions come into use,
 * and stay. */
#include "page/page_map.h"

#include "base/bits.h"
#include "os/os.h"
#include "page/fence.h"

#include <errno.h>

struct page_map page_map;

static bool first_is_taken; /* atomic: the leaf within the map */

void page_map_init(void)
{
    /* Refused or not: nobody writes there. */
    (void)os_protect(&page_map, offsetof(struct page_map, root), OS_READ);
    (void)os_protect(&page_map.first, offsetof(struct page_leaf, entries), OS_READ);
    /* A page of it is in use. */
    (void)os_huge_pages(page_map.root, sizeof page_map.root, false);
}

static uint64_t *entries_of(char *leaf)
{
    return (uint64_t *)(void *)(leaf + offsetof(struct page_leaf, entries));
}

static char *map_leaf(void)
{
    enum { ENTRIES_AT = offsetof(struct page_leaf, entries) };
    char *leaf = fenced_reserve(sizeof(struct page_leaf), false);
    if (leaf == NULL)
        return NULL;
    if (os_protect(leaf, ENTRIES_AT, OS_READ) == 0 &&
        os_commit(leaf + ENTRIES_AT, sizeof(struct page_leaf) - ENTRIES_AT) == 0) {
        os_name(leaf, sizeof(struct page_leaf), "cairn: metadata");
        return leaf;
    }
    fenced_unmap(leaf, sizeof(struct page_leaf));
    return NULL;
}

/* A leaf without entries: a spare one, the one within the map, or a new one. NULL when memory is
 * out. */
static char *take_leaf(struct page_map_spares *spares)
{
    char *leaf = spares ? spares->leaf : NULL;
    if (leaf) {
        uint64_t *entries = entries_of(leaf);
        spares->leaf = (char *)(uintptr_t)entries[0]; /* NOLINT(performance-no-int-to-ptr) */
        entries[0] = 0;
        return leaf;
    }
    if (!load_relaxed(&first_is_taken) && !exchange_acq_rel(&first_is_taken, true))
        return (char *)&page_map.first;
    return map_leaf();
}

static void give_leaf(char *leaf, struct page_map_spares *spares)
{
    if (spares) {
        entries_of(leaf)[0] = (uintptr_t)spares->leaf;
        spares->leaf = leaf;
    } else if (leaf == (char *)&page_map.first) {
        store_relaxed(&first_is_taken, false);
    } else {
        fenced_unmap(leaf, sizeof(struct page_leaf));
    }
}

/* False when memory is out. */
static bool has_leaf(uintptr_t region, struct page_map_spares *spares)
{
    uint64_t *root = &page_map.root[region];
    uint64_t distance = load_acquire(root); /* pairs with the publication below */
    if (distance != 0)
        return true;
    char *leaf = take_leaf(spares);
    if (leaf == NULL)
        return false;
    uint64_t mine = (uint64_t)(leaf - (char *)&page_map);
    if (!compare_swap_acq_rel(root, &distance, mine))
        give_leaf(leaf, spares); /* another thread was first */
    return true;
}

static int cover(const void *start, size_t size_bytes, struct page_map_spares *spares)
{
    uintptr_t first = (uintptr_t)start >> REGION_SHIFT;
    uintptr_t last = ((uintptr_t)start + size_bytes - 1) >> REGION_SHIFT;
    if (last >= REGION_COUNT)
        return -EADDRNOTAVAIL;
    for (; first <= last; first++)
        if (!has_leaf(first, spares))
            return -ENOMEM;
    return 0;
}

int page_map_cover(const void *start, size_t size_bytes) { return cover(start, size_bytes, NULL); }

int page_map_prepare(size_t size_bytes, struct page_map_spares *spares)
{
    *spares = (struct page_map_spares){NULL};
    size_t regions = ((size_bytes - 1) >> REGION_SHIFT) + (size_bytes > PAGE_BYTES ? 2 : 1);
    for (; regions > 0; regions--) {
        char *leaf = map_leaf();
        if (leaf == NULL) {
            page_map_drop(spares);
            return -ENOMEM;
        }
        give_leaf(leaf, spares);
    }
    return 0;
}

void page_map_cover_prepared(const void *start, size_t size_bytes, struct page_map_spares *spares)
{
    (void)cover(start, size_bytes, spares);
}

void page_map_drop(struct page_map_spares *spares)
{
    while (spares->leaf)
        give_leaf(take_leaf(spares), NULL);
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
    uintptr_t address = (uintptr_t)start;
    while (pages > 0) {
        char *leaf = page_map_leaf(address);
        uint64_t value = span ? (uint64_t)((char *)span - leaf) : 0;
        uint64_t *entry = page_map_entry(leaf, address);
        size_t first = address >> PAGE_SHIFT & (REGION_PAGES - 1);
        size_t count = smaller_of(pages, (size_t)REGION_PAGES - first); /* in this leaf */
        for (uint64_t *end = entry + count; entry < end; entry++)
            store_relaxed(entry, value);
        pages -= count;
        address += count << PAGE_SHIFT;
    }
}
