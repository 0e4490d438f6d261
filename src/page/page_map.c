/* The storage of the page map and its growth: see page_map.h. A leaf is made when its region is
 * first used, and stays for ever. */
#include "page/page_map.h"

#include "base/bits.h"
#include "os/memory.h"
#include "page/meta.h"

#include <errno.h>

struct page_map page_map;

static bool first_is_taken; /* atomic: whether the leaf within the map is in use */

static size_t leaf_bytes(void) { return align_up(sizeof(struct page_leaf), os_page_size()); }

/* The size of the part of a leaf that can be made read-only: 0 where the null span's system page
 * holds entries, too. */
static size_t page_map_null_bytes(void)
{
    return align_down(offsetof(struct page_leaf, entries), os_page_size());
}

void page_map_init(void)
{
    if (page_map_null_bytes() != 0) { /* optional: a refusal changes nothing */
        (void)os_protect(&page_map, page_map_null_bytes(), OS_READ);
        (void)os_protect(&page_map.first, page_map_null_bytes(), OS_READ);
    }
    /* Few pages of the root are ever touched, so it gets no huge pages. */
    uintptr_t from = align_up((uintptr_t)page_map.root, os_page_size());
    uintptr_t to = align_down((uintptr_t)page_map.root + sizeof page_map.root, os_page_size());
    (void)os_huge_pages((void *)from, to - from, false);
}

static uint64_t *page_map_entries_of(char *leaf)
{
    return (uint64_t *)(void *)(leaf + offsetof(struct page_leaf, entries));
}

static char *page_map_new_leaf(void)
{
    size_t entries_at = page_map_null_bytes();
    char *leaf = fenced_reserve(leaf_bytes(), false);
    if (leaf == NULL)
        return NULL;
    if ((entries_at == 0 || os_protect(leaf, entries_at, OS_READ) == 0) &&
        os_commit(leaf + entries_at, leaf_bytes() - entries_at) == 0) {
        os_name(leaf, leaf_bytes(), "cairn: metadata");
        return leaf;
    }
    fenced_unmap(leaf, leaf_bytes());
    return NULL;
}

/* Takes a leaf without entries: a spare one, the leaf within the map, or a new one.
 * Returns: NULL when out of memory. */
static char *page_map_take_leaf(struct page_map_spares *spares)
{
    char *leaf = spares ? spares->leaf : NULL;
    if (leaf) {
        uint64_t *entries = page_map_entries_of(leaf);
        spares->leaf = (char *)(uintptr_t)entries[0]; /* NOLINT(performance-no-int-to-ptr) */
        entries[0] = 0;
        return leaf;
    }
    if (!load_relaxed(&first_is_taken) && !exchange_acq_rel(&first_is_taken, true))
        return (char *)&page_map.first;
    return page_map_new_leaf();
}

/* Returns an unused leaf to the spares or, without spares, to the map or the system. */
static void page_map_give_leaf(char *leaf, struct page_map_spares *spares)
{
    if (spares) {
        page_map_entries_of(leaf)[0] = (uintptr_t)spares->leaf;
        spares->leaf = leaf;
    } else if (leaf == (char *)&page_map.first) {
        store_relaxed(&first_is_taken, false);
    } else {
        fenced_unmap(leaf, leaf_bytes());
    }
}

/* Makes the leaf of a region if it has none. Returns: false when out of memory. */
static bool page_map_has_leaf(uintptr_t region, struct page_map_spares *spares)
{
    uint64_t *root = &page_map.root[region];
    uint64_t distance = load_acquire(root); /* pairs with the publication below */
    if (distance != 0)
        return true;
    char *leaf = page_map_take_leaf(spares);
    if (leaf == NULL)
        return false;
    uint64_t mine = (uint64_t)(leaf - (char *)&page_map);
    if (!compare_swap_acq_rel(root, &distance, mine))
        page_map_give_leaf(leaf, spares); /* another thread published one first */
    return true;
}

int page_map_cover_prepared(const void *start, size_t size_bytes, struct page_map_spares *spares)
{
    uintptr_t first = (uintptr_t)start >> REGION_SHIFT;
    uintptr_t last = ((uintptr_t)start + size_bytes - 1) >> REGION_SHIFT;
    if (last >= REGION_COUNT)
        return -EADDRNOTAVAIL;
    for (; first <= last; first++)
        if (!page_map_has_leaf(first, spares))
            return -ENOMEM;
    return 0;
}

int page_map_cover(const void *start, size_t size_bytes)
{
    return page_map_cover_prepared(start, size_bytes, NULL);
}

int page_map_prepare(size_t size_bytes, struct page_map_spares *spares)
{
    *spares = (struct page_map_spares){NULL};
    size_t regions = ((size_bytes - 1) >> REGION_SHIFT) + (size_bytes > PAGE_BYTES ? 2 : 1);
    for (; regions > 0; regions--) {
        char *leaf = page_map_new_leaf();
        if (leaf == NULL) {
            page_map_drop(spares);
            return -ENOMEM;
        }
        page_map_give_leaf(leaf, spares);
    }
    return 0;
}

void page_map_drop(struct page_map_spares *spares)
{
    while (spares->leaf)
        page_map_give_leaf(page_map_take_leaf(spares), NULL);
}

void page_map_purge(const void *start, size_t pages)
{
    uintptr_t first = (uintptr_t)start >> PAGE_SHIFT;
    uintptr_t end = first + pages;
    while (first < end) {
        /* the end of the range in this region */
        uintptr_t next = smaller_of(end, align_up(first + 1, REGION_PAGES));
        char *leaf = page_map_leaf(first << PAGE_SHIFT);
        uint64_t *last_entry = page_map_entry(leaf, (next - 1) << PAGE_SHIFT);
        uintptr_t from =
            align_up((uintptr_t)page_map_entry(leaf, first << PAGE_SHIFT), os_page_size());
        uintptr_t to = align_down((uintptr_t)(last_entry + 1), os_page_size());
        if (from < to)
            (void)os_purge((void *)from, to - from); /* a refusal costs only memory */
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
        size_t count = smaller_of(pages, (size_t)REGION_PAGES - first); /* entries in this leaf */
        for (uint64_t *end = entry + count; entry < end; entry++)
            store_relaxed(entry, value);
        pages -= count;
        address += count << PAGE_SHIFT;
    }
}
