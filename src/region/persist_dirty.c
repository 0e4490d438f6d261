/* Which pages of the persistent heap were written since its last commit.
 *
 * Four ways, each with what the kernel and the process have to give:
 *
 *   USERFAULT  PAGEMAP_SCAN over pages that userfaultfd protects asynchronously: exact; the scan
 *              protects what it finds in the same step. A stretch of memory below one page table
 *              is armed once something was found in it: all of its entries are protected, also
 *              the empty ones, and the faster kind of scan is enough from then on.
 *   SCAN       PAGEMAP_SCAN for copied pages. A page stays copied after its commit, so each one is
 *              compared with its last committed image.
 *   PAGEMAP    the same by reading /proc/self/pagemap.
 *   PROTECT    pages are read-only until they are written; SIGSEGV notes them.
 *
 * dirty_find only adds to heap->dirty; a commit that succeeds and an abort take bits away. So what
 * a failed commit found is found again.
 *
 * Invariant: a page that was written since the last commit is in heap->dirty, or the next
 * dirty_find puts it there. Pages with nothing but free memory (heap->dead) may be left out.
 *
 * Threading: heap->lock, but for the handler of SIGSEGV. It and the capture take a lock of their
 * own around "note, make writable" and "take the notes, make read-only": were they interleaved, a
 * page could be writable and not noted. Within, neither writes to the heap.
 */
#include "base/atomic.h"
#include "os/os.h"
#include "region/persist_heap.h"

#include <errno.h>

enum { RANGES_MOST = 512, TRAPPING_HEAPS_MOST = 64 };

/* The heaps of the way PROTECT, for the handler. */
static struct cairn_persist *trapping[TRAPPING_HEAPS_MOST]; /* atomic: by compare and swap */

static void lock_traps(struct tracker *tracker)
{
    while (exchange_acquire(&tracker->trap_lock, 1u) != 0) /* pairs with unlock_traps */
        pause_processor();
}

static void unlock_traps(struct tracker *tracker) { store_release(&tracker->trap_lock, 0u); }

/* Too many separate mappings, most likely: then all of it is writable and noted. */
static bool open_all(struct cairn_persist *heap)
{
    if (os_protect(heap->base, heap->mapped_bytes, OS_WRITE) != 0)
        return false;
    bitmap_set(heap->tracker.trapped, 0, persist_pages(heap));
    return true;
}

static bool open_page(struct cairn_persist *heap, size_t page)
{
    char *start = heap->base + page * heap->page_bytes;
    if (os_process_id() != heap->process) /* a fork's child, where the lock may be held for ever */
        return os_protect(start, heap->page_bytes, OS_WRITE) == 0;
    lock_traps(&heap->tracker);
    bitmap_set(heap->tracker.trapped, page, 1);
    bool resolved = os_protect(start, heap->page_bytes, OS_WRITE) == 0 || open_all(heap);
    unlock_traps(&heap->tracker);
    return resolved;
}

static bool note_write(const void *address)
{
    for (unsigned i = 0; i < TRAPPING_HEAPS_MOST; i++) {
        struct cairn_persist *heap = load_acquire(&trapping[i]); /* pairs with dirty_watch */
        if (heap == NULL)
            continue;
        uintptr_t offset = (uintptr_t)address - (uintptr_t)heap->base;
        if (offset >= load_relaxed(&heap->mapped_bytes))
            continue;
        return open_page(heap, offset / heap->page_bytes);
    }
    return false;
}

static int start_trapping(struct cairn_persist *heap)
{
    int error = os_catch_writes(note_write);
    for (unsigned i = 0; error == 0 && i < TRAPPING_HEAPS_MOST; i++) {
        struct cairn_persist *none = NULL;
        if (compare_swap_acq_rel(&trapping[i], &none, heap))
            return 0;
    }
    return error != 0 ? error : -EMFILE;
}

static void stop_trapping(const struct cairn_persist *heap)
{
    for (unsigned i = 0; i < TRAPPING_HEAPS_MOST; i++)
        if (load_relaxed(&trapping[i]) == heap)
            store_release(&trapping[i], (struct cairn_persist *)NULL);
}

static bool can_scan(struct cairn_persist *heap)
{
    struct os_page_range range;
    uintptr_t from = (uintptr_t)heap->base;
    return heap->tracker.pagemap >= 0 &&
           os_pagemap_scan(heap->tracker.pagemap, &from, from + heap->page_bytes, OS_SCAN_COPIES,
                           &range, 1) >= 0;
}

/* One way, with all it needs; what it took is given back by dirty_end. */
static int start_way(struct cairn_persist *heap, enum cairn_persist_tracking way)
{
    struct tracker *tracker = &heap->tracker;
    tracker->way = way;
    if (way == CAIRN_PERSIST_PROTECT)
        return start_trapping(heap);
    tracker->pagemap = os_pagemap_open();
    if (tracker->pagemap < 0)
        return tracker->pagemap;
    if (way != CAIRN_PERSIST_PAGEMAP && !can_scan(heap))
        return -ENOTSUP;
    if (way != CAIRN_PERSIST_USERFAULT)
        return 0;
    tracker->userfault = os_userfault_open();
    if (tracker->userfault < 0)
        return -ENOTSUP;
    return os_userfault_watch(tracker->userfault, heap->base, heap->page_bytes); /* to try it */
}

void dirty_end(struct cairn_persist *heap)
{
    struct tracker *tracker = &heap->tracker;
    if (tracker->way == CAIRN_PERSIST_PROTECT)
        stop_trapping(heap);
    os_file_close(tracker->userfault);
    os_file_close(tracker->pagemap);
    tracker->userfault = tracker->pagemap = -1;
}

int dirty_start(struct cairn_persist *heap, enum cairn_persist_tracking way)
{
    heap->tracker.userfault = heap->tracker.pagemap = -1;
    if (way != CAIRN_PERSIST_AUTO)
        return start_way(heap, way);
    int error = -ENOTSUP;
    for (unsigned i = CAIRN_PERSIST_USERFAULT; i <= CAIRN_PERSIST_PROTECT && error != 0; i++) {
        error = start_way(heap, (enum cairn_persist_tracking)i);
        if (error != 0)
            dirty_end(heap);
    }
    return error;
}

/* Of the memory whose entries make one page table. */
static size_t stretch_bytes(const struct cairn_persist *heap)
{
    return heap->page_bytes / sizeof(uint64_t) * heap->page_bytes;
}

int dirty_watch(struct cairn_persist *heap, size_t from_bytes, size_t to_bytes)
{
    char *start = heap->base + from_bytes;
    size_t size = to_bytes - from_bytes;
    switch (heap->tracker.way) {
    case CAIRN_PERSIST_USERFAULT:
        bitmap_clear(heap->tracker.armed, from_bytes / stretch_bytes(heap), 1); /* it goes on */
        return os_userfault_watch(heap->tracker.userfault, start, size);
    case CAIRN_PERSIST_PROTECT:
        return os_protect(start, size, OS_READ);
    default:
        return 0;
    }
}

/* The notes of one word, and their pages read-only again. The bits are taken with the lock held, so
 * that they and the protection change together. */
static int take_traps(struct cairn_persist *heap, size_t word)
{
    uint64_t taken = heap->tracker.trapped[word];
    heap->tracker.trapped[word] = 0;
    heap->dirty[word] |= taken;
    size_t first = word * 64;
    while (taken != 0) {
        unsigned skip = lowest_bit(taken);
        uint64_t rest = ~(taken >> skip);
        unsigned count = rest == 0 ? 64 : lowest_bit(rest);
        int error = os_protect(heap->base + (first + skip) * heap->page_bytes,
                               count * heap->page_bytes, OS_READ);
        if (error != 0)
            return error; /* stays writable: noted again, so that the next commit has it, too */
        taken = skip + count == 64 ? 0 : taken & ~(uint64_t)0 << (skip + count);
    }
    return 0;
}

static void find_trapped(struct cairn_persist *heap)
{
    size_t words = (persist_pages(heap) + 63) / 64;
    lock_traps(&heap->tracker);
    for (size_t i = 0; i < words; i++) {
        uint64_t taken = heap->tracker.trapped[i];
        if (taken != 0 && take_traps(heap, i) != 0)
            heap->tracker.trapped[i] |= taken;
    }
    unlock_traps(&heap->tracker);
}

/* A copied page is dirty if it differs from what was committed last. */
static int compare_range(struct cairn_persist *heap, size_t first, size_t end)
{
    for (size_t page = first; page < end; page++) {
        if (bit_is_set(heap->dirty, page) || bit_is_set(heap->dead, page))
            continue;
        int error = log_read_image(heap, page, heap->buffer);
        if (error != 0)
            return error;
        if (page_differs(heap->buffer, heap->base + page * heap->page_bytes, heap->page_bytes))
            bitmap_set(heap->dirty, page, 1);
    }
    return 0;
}

static int compare_copies(struct cairn_persist *heap, const struct os_page_range *range)
{
    return compare_range(heap, (size_t)(range->start - (uintptr_t)heap->base) / heap->page_bytes,
                         (size_t)(range->end - (uintptr_t)heap->base) / heap->page_bytes);
}

static int scan_copies(struct cairn_persist *heap)
{
    struct os_page_range ranges[RANGES_MOST];
    const struct tracker *tracker = &heap->tracker;
    uintptr_t from = (uintptr_t)heap->base;
    uintptr_t end = from + heap->mapped_bytes;
    while (from < end) {
        int found = tracker->way == CAIRN_PERSIST_PAGEMAP
                        ? os_pagemap_read(tracker->pagemap, &from, end, ranges, RANGES_MOST)
                        : os_pagemap_scan(tracker->pagemap, &from, end, OS_SCAN_COPIES, ranges,
                                          RANGES_MOST);
        if (found < 0)
            return found;
        for (int i = 0; i < found; i++) {
            int error = compare_copies(heap, &ranges[i]);
            if (error != 0)
                return error;
        }
    }
    return 0;
}

static void set_dirty(struct cairn_persist *heap, const struct os_page_range *range)
{
    bitmap_set(heap->dirty, (size_t)(range->start - (uintptr_t)heap->base) / heap->page_bytes,
               (size_t)(range->end - range->start) / heap->page_bytes);
}

/* A stretch of which only entries with pages are protected: the rest, too. Failure costs time. */
static void arm(struct cairn_persist *heap, size_t stretch)
{
    struct os_page_range ranges[RANGES_MOST / 8];
    size_t bytes = stretch_bytes(heap);
    uintptr_t from = (uintptr_t)heap->base + stretch * bytes;
    uintptr_t end = (uintptr_t)heap->base + smaller_of((stretch + 1) * bytes, heap->mapped_bytes);
    while (from < end)
        if (os_pagemap_scan(heap->tracker.pagemap, &from, end, OS_SCAN_EMPTY, ranges,
                            (unsigned)countof(ranges)) < 0)
            return;
    bitmap_set(heap->tracker.armed, stretch, 1);
}

static int scan_first(struct cairn_persist *heap, uintptr_t from, uintptr_t end)
{
    struct os_page_range ranges[RANGES_MOST];
    while (from < end) {
        int found =
            os_pagemap_scan(heap->tracker.pagemap, &from, end, OS_SCAN_FIRST, ranges, RANGES_MOST);
        for (int i = 0; i < found; i++) {
            if (!(ranges[i].categories & OS_PAGE_OF_FILE))
                set_dirty(heap, &ranges[i]);
            size_t stretch = (ranges[i].start - (uintptr_t)heap->base) / stretch_bytes(heap);
            size_t last = (ranges[i].end - 1 - (uintptr_t)heap->base) / stretch_bytes(heap);
            for (; stretch <= last; stretch++)
                if (!bit_is_set(heap->tracker.armed, stretch))
                    arm(heap, stretch);
        }
        if (found < 0)
            return found;
    }
    return 0;
}

static int scan_again(struct cairn_persist *heap, uintptr_t from, uintptr_t end)
{
    struct os_page_range ranges[RANGES_MOST];
    while (from < end) {
        int found =
            os_pagemap_scan(heap->tracker.pagemap, &from, end, OS_SCAN_AGAIN, ranges, RANGES_MOST);
        for (int i = 0; i < found; i++)
            set_dirty(heap, &ranges[i]);
        if (found < 0)
            return found;
    }
    return 0;
}

/* Rows of stretches that are armed or not, one after the other. */
static int scan_watched(struct cairn_persist *heap)
{
    size_t bytes = stretch_bytes(heap);
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
        error = armed ? scan_again(heap, base + first * bytes, stop)
                      : scan_first(heap, base + first * bytes, stop);
        first = end;
    }
    return error;
}

int dirty_find(struct cairn_persist *heap)
{
    if (heap->tracker.way == CAIRN_PERSIST_USERFAULT)
        return scan_watched(heap);
    if (heap->tracker.way != CAIRN_PERSIST_PROTECT)
        return scan_copies(heap);
    find_trapped(heap);
    return 0;
}

int dirty_forget(struct cairn_persist *heap)
{
    size_t words = (persist_pages(heap) + 63) / 64;
    int error = 0;
    if (heap->tracker.way == CAIRN_PERSIST_USERFAULT)
        error = scan_watched(heap);
    else if (heap->tracker.way == CAIRN_PERSIST_PROTECT)
        find_trapped(heap);
    if (error == 0)
        __builtin_memset(heap->dirty, 0, words * sizeof *heap->dirty);
    return error;
}
