/* Finds the pages of the persistent heap that were written since its last commit.
 *
 * Four ways, each with different needs of the kernel and of the process:
 *
 *   USERFAULT  PAGEMAP_SCAN over pages that userfaultfd protects asynchronously. It is exact, and
 *              the scan protects what it finds in the same step. A stretch is the memory of one
 *              page table. It is armed once a page in it was found: then all of its entries are
 *              protected, also the empty ones, and the faster kind of scan suffices.
 *   SCAN       PAGEMAP_SCAN for copied pages. A page stays copied after its commit, so each copied
 *              page is compared with its last committed image.
 *   PAGEMAP    finds copied pages by reading /proc/self/pagemap, and compares them too.
 *   PROTECT    pages are read-only until they are written; the handler of SIGSEGV notes them.
 *
 * dirty_find only adds pages to heap->dirty. A commit that succeeds, an abort and a trim remove
 * them. So the next commit has the pages that a failed commit found.
 *
 * Invariant: a page that was written since the last commit is in heap->dirty, or the next
 * dirty_find adds it. Pages that a commit omits (persist_to_log) may be left out.
 *
 * Threads: heap->lock, except in the handler of SIGSEGV. The handler notes a page and makes it
 *     writable; the capture removes the note and makes the page read-only. Both hold trap_lock for
 *     their two steps, because interleaved steps could leave a page writable and not noted. With
 *     trap_lock held neither writes to the heap's pages, and signals wait: the handler of one
 *     might write to them. The handler of SIGSEGV reads the header of a heap only if the written
 *     page is the heap's, because another one may be closed meanwhile.
 */
#include "base/atomic.h"
#include "os/dirty_pages.h"
#include "os/file.h"
#include "os/memory.h"
#include "os/process.h"
#include "region/persist_heap.h"

#include <errno.h>

enum { RANGES_MAX = 512, TRAPPING_HEAPS_MAX = 64 };

/* The heaps with the way PROTECT, for the handler of SIGSEGV. A place with 0 bytes is free. */
static struct trapping {
    size_t bytes;    /* atomic: the heap's capacity; written first, and last at its end */
    uintptr_t start; /* atomic: the heap's first byte */
    struct cairn_persist *heap; /* atomic: NULL outside the heap's life */
} trapping[TRAPPING_HEAPS_MAX];

/* Returns: what persist_unlock_traps gets. */
static uint64_t persist_lock_traps(struct tracker *tracker)
{
    uint64_t signals = os_signals_block();
    while (exchange_acquire(&tracker->trap_lock, 1u) != 0) /* pairs with persist_unlock_traps */
        while (load_relaxed(&tracker->trap_lock) != 0)
            pause_processor();
    return signals;
}

static void persist_unlock_traps(struct tracker *tracker, uint64_t signals)
{
    /* pairs with persist_lock_traps */
    store_release(&tracker->trap_lock, 0u);
    os_signals_restore(signals);
}

/* Makes all pages writable and notes them all. This function is called when one page cannot be made
 * writable, most likely because the process has too many separate mappings. */
static bool persist_open_all(struct cairn_persist *heap)
{
    if (os_protect(heap->base, heap->mapped_bytes, OS_WRITE) != 0)
        return false;
    bitmap_set(heap->tracker.faulted, 0, persist_pages(heap));
    return true;
}

/* Notes a page and makes it writable.
 * Threads: in the handler of SIGSEGV. */
static bool persist_open_page(struct cairn_persist *heap, size_t page)
{
    char *start = heap->base + page * heap->page_bytes;
    /* in a child of fork a thread that is gone may hold trap_lock */
    if (os_process_id() != heap->process)
        return os_protect(start, heap->page_bytes, OS_WRITE) == 0;
    uint64_t signals = persist_lock_traps(&heap->tracker);
    bitmap_set(heap->tracker.faulted, page, 1);
    bool resolved = os_protect(start, heap->page_bytes, OS_WRITE) == 0 || persist_open_all(heap);
    persist_unlock_traps(&heap->tracker, signals);
    return resolved;
}

/* The heap of a place if its address space has the address, without a look at its header. The place
 * of the heap with the address does not change, because the writing thread keeps that heap open.
 * Another place may change meanwhile: `heap` is cleared first and set last. So if `start` and
 * `bytes` are of two heaps, the second reads differ from the first ones.
 * Returns: NULL if it has not. */
static struct cairn_persist *persist_trapping_at(const struct trapping *place, uintptr_t address)
{
    struct cairn_persist *heap = load_acquire(&place->heap); /* pairs with persist_start_trapping */
    uintptr_t start = load_acquire(&place->start);
    size_t bytes = load_acquire(&place->bytes);
    bool is_whole = load_acquire(&place->heap) == heap && load_relaxed(&place->start) == start;
    return heap != NULL && is_whole && address - start < bytes ? heap : NULL;
}

/* The handler of SIGSEGV: handles a write to a page of a heap.
 * Returns: false when the address is in no heap. */
static bool persist_note_write(const void *address)
{
    for (unsigned i = 0; i < TRAPPING_HEAPS_MAX; i++) {
        struct cairn_persist *heap = persist_trapping_at(&trapping[i], (uintptr_t)address);
        if (heap == NULL)
            continue;
        size_t offset = (size_t)((const char *)address - heap->base);
        return offset < load_relaxed(&heap->mapped_bytes) &&
               persist_open_page(heap, offset / heap->page_bytes);
    }
    return false;
}

static int persist_start_trapping(struct cairn_persist *heap)
{
    int error = os_catch_writes(persist_note_write);
    for (unsigned i = 0; error == 0 && i < TRAPPING_HEAPS_MAX; i++) {
        size_t none = 0;
        if (!compare_swap_acq_rel(&trapping[i].bytes, &none, heap->capacity_bytes))
            continue;
        store_release(&trapping[i].start, (uintptr_t)heap->base);
        store_release(&trapping[i].heap, heap); /* both pair with persist_trapping_at */
        return 0;
    }
    return error != 0 ? error : -EMFILE;
}

static void persist_stop_trapping(const struct cairn_persist *heap)
{
    for (unsigned i = 0; i < TRAPPING_HEAPS_MAX; i++)
        if (load_relaxed(&trapping[i].heap) == heap) {
            store_relaxed(&trapping[i].heap, (struct cairn_persist *)NULL);
            store_release(&trapping[i].bytes, (size_t)0); /* the place is free */
        }
}

static bool persist_can_scan(struct cairn_persist *heap)
{
    struct os_page_range range;
    uintptr_t from = (uintptr_t)heap->base;
    return heap->tracker.pagemap >= 0 &&
           os_pagemap_scan(heap->tracker.pagemap, &from, from + heap->page_bytes, OS_SCAN_COPIES,
                           &range, 1) >= 0;
}

/* Starts one way. dirty_end releases what it took, also after a failure. */
static int persist_start_way(struct cairn_persist *heap, enum cairn_persist_tracking way)
{
    struct tracker *tracker = &heap->tracker;
    tracker->way = way;
    if (way == CAIRN_PERSIST_PROTECT)
        return persist_start_trapping(heap);
    tracker->pagemap = os_pagemap_open();
    if (tracker->pagemap < 0) /* -ENOENT: without /proc */
        return tracker->pagemap == -ENOENT ? -ENOTSUP : tracker->pagemap;
    if (way != CAIRN_PERSIST_PAGEMAP && !persist_can_scan(heap))
        return -ENOTSUP;
    if (way != CAIRN_PERSIST_USERFAULT)
        return 0;
    tracker->userfault = os_userfault_open();
    if (tracker->userfault < 0)
        return -ENOTSUP;
    /* one page, to try it */
    return os_userfault_watch(tracker->userfault, heap->base, heap->page_bytes);
}

void dirty_end(struct cairn_persist *heap)
{
    struct tracker *tracker = &heap->tracker;
    if (tracker->way == CAIRN_PERSIST_PROTECT)
        persist_stop_trapping(heap);
    os_file_close(tracker->userfault);
    os_file_close(tracker->pagemap);
    tracker->userfault = tracker->pagemap = -1;
}

int dirty_start(struct cairn_persist *heap, enum cairn_persist_tracking way)
{
    heap->tracker.userfault = heap->tracker.pagemap = -1;
    if (way != CAIRN_PERSIST_AUTO)
        return persist_start_way(heap, way);
    int error = -ENOTSUP;
    for (unsigned i = CAIRN_PERSIST_USERFAULT; i <= CAIRN_PERSIST_PROTECT && error != 0; i++) {
        error = persist_start_way(heap, (enum cairn_persist_tracking)i);
        if (error != 0)
            dirty_end(heap);
    }
    return error;
}

/* The size of a stretch: the memory of one page table. */
static size_t persist_stretch_bytes(const struct cairn_persist *heap)
{
    return heap->page_bytes / sizeof(uint64_t) * heap->page_bytes;
}

int dirty_watch(struct cairn_persist *heap, size_t from_bytes, size_t to_bytes)
{
    char *start = heap->base + from_bytes;
    size_t size = to_bytes - from_bytes;
    switch (heap->tracker.way) {
    case CAIRN_PERSIST_USERFAULT:
        bitmap_clear(heap->tracker.armed, from_bytes / persist_stretch_bytes(heap),
                     1); /* the stretch may be armed, and now has more memory */
        return os_userfault_watch(heap->tracker.userfault, start, size);
    case CAIRN_PERSIST_PROTECT:
        return os_protect(start, size, OS_READ);
    default:
        return 0;
    }
}

/* Moves the notes of one word of the bitmap to heap->dirty, and makes their pages read-only.
 * Locking: lock and trap_lock held, so that notes and protection change together.
 * Returns: 0 or a negative errno. */
static int persist_take_traps(struct cairn_persist *heap, size_t word)
{
    uint64_t taken = heap->tracker.faulted[word];
    heap->tracker.faulted[word] = 0;
    heap->dirty[word] |= taken;
    size_t first = word * 64;
    while (taken != 0) {
        unsigned skip = lowest_bit(taken);
        uint64_t rest = ~(taken >> skip);
        unsigned count = rest == 0 ? 64 : lowest_bit(rest);
        int error = os_protect(heap->base + (first + skip) * heap->page_bytes,
                               count * heap->page_bytes, OS_READ);
        if (error != 0)
            /* the pages stay writable; the caller notes them again for the next commit */
            return error;
        taken = skip + count == 64 ? 0 : taken & ~(uint64_t)0 << (skip + count);
    }
    return 0;
}

static void persist_find_faulted(struct cairn_persist *heap)
{
    size_t words = (persist_pages(heap) + 63) / 64;
    uint64_t signals = persist_lock_traps(&heap->tracker);
    for (size_t i = 0; i < words; i++) {
        uint64_t taken = heap->tracker.faulted[i];
        if (taken != 0 && persist_take_traps(heap, i) != 0)
            heap->tracker.faulted[i] |= taken;
    }
    persist_unlock_traps(&heap->tracker, signals);
}

/* Adds those of the copied pages from `first` up to `end` to heap->dirty that differ from their
 * last committed image. */
static int persist_compare_range(struct cairn_persist *heap, size_t first, size_t end)
{
    for (size_t page = first; page < end; page++) {
        if (bit_is_set(heap->dirty, page) || !persist_is_to_log(heap, page))
            continue;
        int error = log_read_image(heap, page, heap->buffer);
        if (error != 0)
            return error;
        if (page_differs(heap->buffer, heap->base + page * heap->page_bytes, heap->page_bytes))
            bitmap_set(heap->dirty, page, 1);
    }
    return 0;
}

static int persist_compare_copies(struct cairn_persist *heap, const struct os_page_range *range)
{
    return persist_compare_range(heap,
                                 (size_t)(range->start - (uintptr_t)heap->base) / heap->page_bytes,
                                 (size_t)(range->end - (uintptr_t)heap->base) / heap->page_bytes);
}

static int persist_scan_copies(struct cairn_persist *heap)
{
    struct os_page_range ranges[RANGES_MAX];
    const struct tracker *tracker = &heap->tracker;
    uintptr_t from = (uintptr_t)heap->base;
    uintptr_t end = from + heap->mapped_bytes;
    while (from < end) {
        int found =
            tracker->way == CAIRN_PERSIST_PAGEMAP
                ? os_pagemap_read(tracker->pagemap, &from, end, ranges, RANGES_MAX)
                : os_pagemap_scan(tracker->pagemap, &from, end, OS_SCAN_COPIES, ranges, RANGES_MAX);
        if (found < 0)
            return found;
        for (int i = 0; i < found; i++) {
            int error = persist_compare_copies(heap, &ranges[i]);
            if (error != 0)
                return error;
        }
    }
    return 0;
}

static void persist_set_dirty(struct cairn_persist *heap, const struct os_page_range *range)
{
    bitmap_set(heap->dirty, (size_t)(range->start - (uintptr_t)heap->base) / heap->page_bytes,
               (size_t)(range->end - range->start) / heap->page_bytes);
}

/* Protects the empty entries of a stretch too. A failure only costs time. */
static void persist_arm(struct cairn_persist *heap, size_t stretch)
{
    struct os_page_range ranges[RANGES_MAX / 8];
    size_t bytes = persist_stretch_bytes(heap);
    uintptr_t from = (uintptr_t)heap->base + stretch * bytes;
    uintptr_t end = (uintptr_t)heap->base + smaller_of((stretch + 1) * bytes, heap->mapped_bytes);
    while (from < end)
        if (os_pagemap_scan(heap->tracker.pagemap, &from, end, OS_SCAN_EMPTY, ranges,
                            (unsigned)countof(ranges)) < 0)
            return;
    bitmap_set(heap->tracker.armed, stretch, 1);
}

/* Scans stretches that are not armed, and arms those in which it finds pages. */
static int persist_scan_first(struct cairn_persist *heap, uintptr_t from, uintptr_t end)
{
    struct os_page_range ranges[RANGES_MAX];
    while (from < end) {
        int found =
            os_pagemap_scan(heap->tracker.pagemap, &from, end, OS_SCAN_FIRST, ranges, RANGES_MAX);
        for (int i = 0; i < found; i++) {
            if (!(ranges[i].categories & OS_PAGE_OF_FILE))
                persist_set_dirty(heap, &ranges[i]);
            size_t stretch =
                (ranges[i].start - (uintptr_t)heap->base) / persist_stretch_bytes(heap);
            size_t last = (ranges[i].end - 1 - (uintptr_t)heap->base) / persist_stretch_bytes(heap);
            for (; stretch <= last; stretch++)
                if (!bit_is_set(heap->tracker.armed, stretch))
                    persist_arm(heap, stretch);
        }
        if (found < 0)
            return found;
    }
    return 0;
}

/* Scans armed stretches. */
static int persist_scan_again(struct cairn_persist *heap, uintptr_t from, uintptr_t end)
{
    struct os_page_range ranges[RANGES_MAX];
    while (from < end) {
        int found =
            os_pagemap_scan(heap->tracker.pagemap, &from, end, OS_SCAN_AGAIN, ranges, RANGES_MAX);
        for (int i = 0; i < found; i++)
            persist_set_dirty(heap, &ranges[i]);
        if (found < 0)
            return found;
    }
    return 0;
}

/* Scans runs of stretches that are all armed, or all not armed, one after the other. */
static int persist_scan_watched(struct cairn_persist *heap)
{
    size_t bytes = persist_stretch_bytes(heap);
    size_t count = (heap->mapped_bytes + bytes - 1) / bytes;
    size_t first = 0;
    int error = 0;
    while (error == 0 && first < count) {
        bool armed = bit_is_set(heap->tracker.armed, first);
        size_t end = first + 1;
        while (end < count && bit_is_set(heap->tracker.armed, end) == armed)
            end++;
        uintptr_t base = (uintptr_t)heap->base;
        uintptr_t stop = base + smaller_of(end * bytes, heap->mapped_bytes);
        error = armed ? persist_scan_again(heap, base + first * bytes, stop)
                      : persist_scan_first(heap, base + first * bytes, stop);
        first = end;
    }
    return error;
}

int dirty_find(struct cairn_persist *heap)
{
    if (heap->tracker.way == CAIRN_PERSIST_USERFAULT)
        return persist_scan_watched(heap);
    if (heap->tracker.way != CAIRN_PERSIST_PROTECT)
        return persist_scan_copies(heap);
    persist_find_faulted(heap);
    return 0;
}

int dirty_forget(struct cairn_persist *heap)
{
    size_t words = (persist_pages(heap) + 63) / 64;
    int error = 0;
    if (heap->tracker.way == CAIRN_PERSIST_USERFAULT)
        error = persist_scan_watched(heap);
    else if (heap->tracker.way == CAIRN_PERSIST_PROTECT)
        persist_find_faulted(heap);
    if (error == 0)
        __builtin_memset(heap->dirty, 0, words * sizeof *heap->dirty);
    return error;
}
