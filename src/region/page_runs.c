/* Pages for programs (cairn/pages.h): runs of the page layer. Every page of a run is in the page
 * map, so any part of a run can be found from its address.
 *
 * Freed single pages wait in a few places in front of the page layer. A place is filled and emptied
 * by one atomic operation each, so there is neither a list nor a lock. A thread begins its search
 * at a place that a hash of its identity chooses. A waiting page has the tag SPAN_MOVING, so a
 * second unmap finds no run there.
 *
 * Threads: any thread may call any function at any time; a run is one thread's at a time.
 */
#include "cairn/pages.h"

#include "base/bits.h"
#include "base/check.h"
#include "os/memory.h"
#include "page/page.h"

#include <errno.h>
#include <string.h>

enum {
    PLACES = 32, /* the maximum number of single pages that wait */
    LOOKED_AT = 4,
    HUGE_MIN_BYTES = 32 << 20,
    HUGE_ALIGNMENT_BYTES = 4 << 20,
};

#define KNOWN_FLAGS ((unsigned)(CAIRN_PAGES_ZERO | CAIRN_PAGES_HUGE | CAIRN_PAGES_POPULATE))

static cold void *page_runs_fail(int error)
{
    errno = error;
    return NULL;
}

/* atomic: compare and swap from NULL, exchange to NULL */
static struct span *places[PLACES] cache_aligned;

/* The first of the LOOKED_AT places that the calling thread uses. Threads may share them. */
static size_t page_runs_first_place(void)
{
    uintptr_t thread = thread_identity();
    return (thread >> 12 ^ thread >> 20) % (PLACES / LOOKED_AT) * LOOKED_AT;
}

static struct span *page_runs_take_waiting(void)
{
    struct span **place = &places[page_runs_first_place()];
    for (int i = 0; i < LOOKED_AT; i++) {
        if (load_relaxed(&place[i]) == NULL)
            continue;
        struct span *span =
            exchange_acq_rel(&place[i], (struct span *)NULL); /* pairs with page_runs_put_waiting */
        if (span)
            return span;
    }
    return NULL;
}

/* Puts a free page into one of the thread's places.
 * Returns: false when all of them are occupied. */
static bool page_runs_put_waiting(struct span *span)
{
    struct span **place = &places[page_runs_first_place()];
    for (int i = 0; i < LOOKED_AT; i++) {
        struct span *none = NULL;
        /* release: pairs with the exchanges of page_runs_take_waiting and cairn_pages_purge */
        if (load_relaxed(&place[i]) == NULL && compare_swap_acq_rel(&place[i], &none, span))
            return true;
    }
    return false;
}

static bool page_runs_is_huge(const struct span *span)
{
    return load_relaxed(&span->tag) == SPAN_RUN_HUGE;
}

/* Marks a new run as the program's. After that the page map finds it. */
static void page_runs_enter(struct span *span, unsigned tag)
{
    store_relaxed(&span->tag, (uint8_t)tag);
    page_map_set(span->base, span->pages, span);
}

static void page_runs_give(struct span *span)
{
    page_map_set(span->base, span->pages, NULL);
    if (page_runs_is_huge(span))
        pages_give_huge(span);
    else
        pages_give(span);
}

/* Takes a run: a mapping of its own for a large size or alignment, else a waiting page, else pages
 * of an arena. */
static struct span *page_runs_map_span(size_t bytes, size_t align)
{
    struct span *span;
    if (bytes >= HUGE_MIN_BYTES || align > HUGE_ALIGNMENT_BYTES) {
        span = pages_map_huge(bytes, align);
        if (span && page_map_cover(span->base, bytes) != 0) {
            pages_give_huge(span);
            span = NULL;
        }
        unsigned tag = SPAN_RUN_HUGE;
        /* At an address-space limit only the arenas may have addresses left. */
        if (span == NULL && (span = pages_take_free(bytes >> PAGE_SHIFT, align)) != NULL)
            tag = SPAN_RUN;
        if (span)
            page_runs_enter(span, tag);
        return span;
    }
    if (bytes == PAGE_BYTES && align <= PAGE_BYTES && (span = page_runs_take_waiting()) != NULL) {
        store_relaxed(&span->tag, (uint8_t)SPAN_RUN);
        return span;
    }
    pages_tick();
    span = pages_take(bytes >> PAGE_SHIFT, align);
    if (span)
        page_runs_enter(span, SPAN_RUN);
    return span;
}

/* Prepares memory that is new to the program as the flags request. `zero` says that it reads zero
 * already. */
static void page_runs_prepare(char *start, size_t bytes, unsigned flags, bool zero)
{
    if ((flags & CAIRN_PAGES_HUGE) != 0) /* the next two are hints: a refusal has no effect */
        (void)os_huge_pages(start, bytes, true);
    if ((flags & CAIRN_PAGES_POPULATE) != 0)
        (void)os_populate(start, bytes);
    if ((flags & CAIRN_PAGES_ZERO) != 0 && !zero)
        memset(start, 0, bytes);
}

api void *cairn_pages_map(size_t size, size_t align, unsigned flags)
{
    os_init();
    pages_start(); /* the page layer must be ready for fork, and no other call may have done that */
    size_t granule = os_page_size();
    if (!is_power_of_two(align) || (flags & ~KNOWN_FLAGS) != 0)
        return page_runs_fail(EINVAL);
    if (size > PTRDIFF_MAX / 2 || align > PTRDIFF_MAX / 4)
        return page_runs_fail(ENOMEM);
    size_t bytes = align_up(larger_of(size, 1), granule);
    struct span *span = page_runs_map_span(bytes, larger_of(align, granule));
    if (span == NULL)
        return page_runs_fail(ENOMEM);
    page_runs_prepare(span->base, bytes, flags, span->zero);
    return span->base;
}

/* The run that holds an address. Ends the process when there is none. */
static struct span *page_runs_find_run(const char *address)
{
    struct span *span = page_map_find(address);
    unsigned tag = load_relaxed(&span->tag);
    bool holds = (tag == SPAN_RUN || tag == SPAN_RUN_HUGE) &&
                 (size_t)(address - span->base) < (size_t)span->pages << PAGE_SHIFT;
    if (unlikely(!holds))
        die("pages: unmap of %p, which is not mapped by cairn_pages_map", (const void *)address);
    return span;
}

/* The end of the program's range. The range consists of whole pages, except that the last page of a
 * run may be given in part. Ends the process otherwise, because the rest of the page would be
 * unmapped too. */
static char *page_runs_range_end(const char *pointer, size_t size)
{
    size_t granule = os_page_size();
    if (unlikely(size > PTRDIFF_MAX / 2))
        die("pages: unmap of %zu bytes at %p, more than cairn_pages_map gives", size,
            (const void *)pointer);
    char *start = (char *)align_down((uintptr_t)pointer, granule);
    (void)page_runs_find_run(start);
    if (unlikely(start != pointer))
        die("pages: unmap of %p, which is inside a page", (const void *)pointer);
    char *end = (char *)align_up((uintptr_t)pointer + larger_of(size, 1), granule);
    if (larger_of(size, 1) % granule != 0 &&
        unlikely(span_end(page_runs_find_run(end - granule)) != end))
        die("pages: unmap of %zu bytes at %p, which end inside a page of a longer run", size,
            (const void *)pointer);
    return end;
}

/* Ends the process unless the whole range is mapped. */
static void page_runs_check_range(const char *start, size_t size)
{
    const char *end = page_runs_range_end(start, size);
    while (start < end) {
        const struct span *span = page_runs_find_run(start);
        start = span_end(span);
    }
}

/* Cuts a run after its first `pages` pages.
 * Returns: the rest, as a run of its own; NULL when out of memory. */
static struct span *page_runs_cut(struct span *span, size_t pages)
{
    struct span *rest = pages_split(span, pages, page_runs_is_huge(span));
    if (rest)
        page_map_set(rest->base, rest->pages, rest);
    return rest;
}

/* Unmaps the first `pages` pages of a run, or all of it.
 * Returns: 0, or ENOMEM when the run cannot be cut. */
static int page_runs_unmap_start(struct span *span, size_t pages)
{
    if (pages < span->pages && page_runs_cut(span, pages) == NULL)
        return ENOMEM;
    if (pages == 1 && span->pages == 1 && !page_runs_is_huge(span)) {
        store_relaxed(&span->zero, false);
        store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
        if (page_runs_put_waiting(span))
            return 0;
        store_relaxed(&span->tag, (uint8_t)SPAN_RUN);
    }
    page_runs_give(span);
    return 0;
}

api int cairn_pages_unmap(void *pointer, size_t size)
{
    if (pointer == NULL)
        return 0;
    char *end = page_runs_range_end(pointer, size);
    for (char *at = pointer; at < end;) {
        struct span *span = page_runs_find_run(at);
        size_t before = (size_t)(at - span->base) >> PAGE_SHIFT;
        if (before > 0 && (span = page_runs_cut(span, before)) == NULL)
            return ENOMEM;
        size_t pages = smaller_of((size_t)(end - at) >> PAGE_SHIFT, span->pages);
        int error = page_runs_unmap_start(span, pages);
        if (error != 0)
            return error;
        at += pages << PAGE_SHIFT;
    }
    return 0;
}

/* Resizes a whole run. A run in an arena is resized in place; a mapping of its own may move with
 * its page tables.
 * Returns: false when it cannot be resized. */
static bool page_runs_resize_run(struct span *span, size_t bytes)
{
    size_t pages = bytes >> PAGE_SHIFT;
    size_t old_pages = span->pages;
    bool resized;
    if (page_runs_is_huge(span)) {
        if (page_map_cover(span->base, bytes) !=
            0) /* first, because it may grow in place into a new region of the map */
            return false;
        page_map_set(span->base, old_pages, NULL);
        page_map_set_page(span->base, span);
        resized = pages_resize_huge(span, bytes, true);
    } else if (pages > old_pages) {
        resized = pages_extend(span, pages);
    } else {
        page_map_set(span->base + bytes, old_pages - pages, NULL);
        resized = pages_shrink(span, pages); /* refused during a fork, and outside arenas */
    }
    page_map_set(span->base, span->pages, span);
    return resized;
}

/* Resizes a run in place or, if `may_move`, with its page tables.
 * Returns: the new address; NULL when neither is possible, and then nothing has changed. */
static void *page_runs_resize(void *pointer, size_t old_size, size_t new_size, bool may_move,
                              unsigned flags)
{
    size_t granule = os_page_size();
    if (new_size > PTRDIFF_MAX / 2 || old_size > PTRDIFF_MAX / 2)
        return NULL;
    struct span *span = page_runs_find_run(pointer);
    size_t old_bytes = align_up(larger_of(old_size, 1), granule);
    size_t new_bytes = align_up(larger_of(new_size, 1), granule);
    if (new_bytes == old_bytes)
        return pointer;
    bool whole = span->base == pointer && (size_t)span->pages << PAGE_SHIFT == old_bytes;
    bool huge = page_runs_is_huge(span);
    if (!whole || (huge && new_bytes > old_bytes && !may_move) ||
        !page_runs_resize_run(span, new_bytes))
        return NULL;
    if (new_bytes > old_bytes)
        page_runs_prepare(span->base + old_bytes, new_bytes - old_bytes, flags, huge);
    return span->base;
}

api void *cairn_pages_remap(void *pointer, size_t old_size, size_t new_size, size_t align,
                            unsigned flags)
{
    if (pointer == NULL)
        return cairn_pages_map(new_size, align, flags);
    if (!is_power_of_two(align) || (flags & ~KNOWN_FLAGS) != 0)
        return page_runs_fail(EINVAL);
    page_runs_check_range(pointer, old_size);
    bool stays_aligned = align <= os_page_size();
    void *resized = stays_aligned || (uintptr_t)pointer % align == 0
                        ? page_runs_resize(pointer, old_size, new_size, stays_aligned, flags)
                        : NULL;
    if (resized)
        return resized;
    void *moved = cairn_pages_map(new_size, align, flags);
    if (moved == NULL)
        return NULL;
    memcpy(moved, pointer, smaller_of(old_size, new_size));
    /* If the old run cannot be cut, it stays mapped. The copy is complete. */
    (void)cairn_pages_unmap(pointer, old_size);
    return moved;
}

api bool cairn_pages_purge(size_t keep_bytes)
{
    for (size_t i = 0; i < PLACES; i++) {
        /* pairs with page_runs_put_waiting */
        struct span *span = exchange_acq_rel(&places[i], (struct span *)NULL);
        if (span)
            page_runs_give(span);
    }
    return pages_trim(keep_bytes);
}

static void *page_runs_allocator_alloc(void *context, size_t size, size_t align)
{
    (void)context;
    return cairn_pages_map(size, align, 0);
}

static void *page_runs_allocator_resize(void *context, void *pointer, size_t old_size,
                                        size_t new_size)
{
    (void)context;
    return pointer ? page_runs_resize(pointer, old_size, new_size, false, 0) : NULL;
}

static void page_runs_allocator_free(void *context, void *pointer, size_t size)
{
    (void)context;
    if (pointer == NULL)
        return;
    const struct span *span = page_runs_find_run(pointer);
    size_t run = (size_t)span->pages << PAGE_SHIFT;
    if (unlikely(span->base != pointer || size > run ||
                 align_up(larger_of(size, 1), os_page_size()) != run))
        die("pages: free of %zu bytes at %p (%zu-byte run at %p)", size, pointer, run,
            (const void *)span->base);
    (void)cairn_pages_unmap(pointer, size); /* a whole run needs no cut, so this cannot fail */
}

api cairn_allocator cairn_pages_allocator(void)
{
    static const struct cairn_allocator_operations operations = {
        .alloc = page_runs_allocator_alloc,
        .resize = page_runs_allocator_resize,
        .free = page_runs_allocator_free,
        .capabilities =
            CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_ANY_THREAD | CAIRN_ANY_THREAD_FREE,
        .name = "pages",
    };
    return (cairn_allocator){NULL, &operations};
}
