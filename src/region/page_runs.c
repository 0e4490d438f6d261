/* Pages for programs: see cairn/pages.h. Runs of the page layer, each page of them in the page map,
 * so that any part can be found again.
 *
 * Single pages wait in a few places in front of the page layer, each emptied and filled by one
 * exchange, so there is no list to break and nothing to lock. A thread begins at a place of its
 * own. A waiting page is tagged SPAN_MOVING: its second unmap finds no run there.
 */
#include "cairn/pages.h"

#include "base/bits.h"
#include "base/check.h"
#include "os/os.h"
#include "page/page.h"

#include <errno.h>
#include <string.h>

enum {
    PLACES = 32, /* single pages that wait at most */
    LOOKED_AT = 4,
    HUGE_MIN_BYTES = 32 << 20,
    HUGE_ALIGNMENT_BYTES = 4 << 20,
};

static cold void *fail(int error)
{
    errno = error;
    return NULL;
}

static struct span *places[PLACES] cache_aligned; /* atomic */

static size_t first_place(void)
{
    uintptr_t thread = thread_identity();
    return (thread >> 12 ^ thread >> 20) % (PLACES / LOOKED_AT) * LOOKED_AT;
}

static struct span *take_waiting(void)
{
    struct span **place = &places[first_place()];
    for (int i = 0; i < LOOKED_AT; i++) {
        if (load_relaxed(&place[i]) == NULL)
            continue;
        struct span *span =
            exchange_acq_rel(&place[i], (struct span *)NULL); /* pairs with put_waiting */
        if (span)
            return span;
    }
    return NULL;
}

static bool put_waiting(struct span *span)
{
    struct span **place = &places[first_place()];
    for (int i = 0; i < LOOKED_AT; i++) {
        struct span *none = NULL;
        if (load_relaxed(&place[i]) == NULL && compare_swap_acq_rel(&place[i], &none, span))
            return true;
    }
    return false;
}

static bool is_huge(const struct span *span) { return load_relaxed(&span->tag) == SPAN_RUN_HUGE; }

static void enter(struct span *span, unsigned tag)
{
    store_relaxed(&span->tag, (uint8_t)tag);
    page_map_set(span->base, span->pages, span);
}

static void give(struct span *span)
{
    page_map_set(span->base, span->pages, NULL);
    if (is_huge(span))
        pages_give_huge(span);
    else
        pages_give(span);
}

static struct span *map_span(size_t bytes, size_t align)
{
    struct span *span;
    if (bytes >= HUGE_MIN_BYTES || align > HUGE_ALIGNMENT_BYTES) {
        span = pages_map_huge(bytes, align);
        if (span && page_map_cover(span->base, bytes) != 0) {
            pages_give_huge(span);
            span = NULL;
        }
        if (span)
            enter(span, SPAN_RUN_HUGE);
        return span;
    }
    if (bytes == PAGE_BYTES && align <= PAGE_BYTES && (span = take_waiting()) != NULL) {
        store_relaxed(&span->tag, (uint8_t)SPAN_RUN);
        return span;
    }
    pages_tick();
    span = pages_take(bytes >> PAGE_SHIFT, align);
    if (span)
        enter(span, SPAN_RUN);
    return span;
}

/* Memory that is new to the program, as its flags say; `zero`: it reads zero already. */
static void prepare(char *start, size_t bytes, unsigned flags, bool zero)
{
    if ((flags & CAIRN_PAGES_HUGE) != 0) /* hints: refused, it works as well */
        (void)os_huge_pages(start, bytes, true);
    if ((flags & CAIRN_PAGES_POPULATE) != 0)
        (void)os_populate(start, bytes);
    if ((flags & CAIRN_PAGES_ZERO) != 0 && !zero)
        memset(start, 0, bytes);
}

api void *cairn_pages_map(size_t size, size_t align, unsigned flags)
{
    os_init();
    pages_start(); /* nothing else may have made fork safe */
    size_t granule = os_page_size();
    if (!is_power_of_two(align))
        return fail(EINVAL);
    if (size > PTRDIFF_MAX / 2 || align > PTRDIFF_MAX / 4)
        return fail(ENOMEM);
    size_t bytes = align_up(larger_of(size, 1), granule);
    struct span *span = map_span(bytes, larger_of(align, granule));
    if (span == NULL)
        return fail(ENOMEM);
    prepare(span->base, bytes, flags, span->zero);
    return span->base;
}

static struct span *find_run(const char *address)
{
    struct span *span = page_map_find(address);
    unsigned tag = load_relaxed(&span->tag);
    bool holds = (tag == SPAN_RUN || tag == SPAN_RUN_HUGE) &&
                 (size_t)(address - span->base) < (size_t)span->pages << PAGE_SHIFT;
    if (unlikely(!holds))
        die("pages: unmap of %p, which is not mapped by cairn_pages_map", (const void *)address);
    return span;
}

/* The end of the pages that hold the range. */
static char *range_end(const void *pointer, size_t size)
{
    if (unlikely(size > PTRDIFF_MAX / 2))
        die("pages: unmap of %zu bytes at %p, more than cairn_pages_map gives", size, pointer);
    return (char *)align_up((uintptr_t)pointer + larger_of(size, 1), os_page_size());
}

/* Dies unless all of it is mapped. */
static void check_range(const char *start, const char *end)
{
    while (start < end) {
        const struct span *span = find_run(start);
        start = span_end(span);
    }
}

/* The rest of a run from a page on, as a run of its own. */
static struct span *cut(struct span *span, size_t pages)
{
    struct span *rest = pages_split(span, pages, is_huge(span));
    if (rest)
        page_map_set(rest->base, rest->pages, rest);
    return rest;
}

/* Ends the first `pages` pages of the run, or all of it. */
static int unmap_start(struct span *span, size_t pages)
{
    if (pages < span->pages && cut(span, pages) == NULL)
        return ENOMEM;
    if (pages == 1 && span->pages == 1 && !is_huge(span)) {
        store_relaxed(&span->zero, false);
        store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
        if (put_waiting(span))
            return 0;
        store_relaxed(&span->tag, (uint8_t)SPAN_RUN);
    }
    give(span);
    return 0;
}

api int cairn_pages_unmap(void *pointer, size_t size)
{
    if (pointer == NULL)
        return 0;
    char *end = range_end(pointer, size);
    for (char *at = (char *)align_down((uintptr_t)pointer, os_page_size()); at < end;) {
        struct span *span = find_run(at);
        size_t before = (size_t)(at - span->base) >> PAGE_SHIFT;
        if (before > 0 && (span = cut(span, before)) == NULL)
            return ENOMEM;
        size_t pages = smaller_of((size_t)(end - at) >> PAGE_SHIFT, span->pages);
        int error = unmap_start(span, pages);
        if (error != 0)
            return error;
        at += pages << PAGE_SHIFT;
    }
    return 0;
}

/* The whole of a run at a new size, in place or, for a mapping of its own, moved with its page
 * tables. */
static bool resize_run(struct span *span, size_t bytes)
{
    size_t pages = bytes >> PAGE_SHIFT;
    size_t old_pages = span->pages;
    bool resized;
    if (is_huge(span)) {
        if (page_map_cover(span->base, bytes) !=
            0) /* first: in place it may grow into a new region */
            return false;
        page_map_set(span->base, old_pages, NULL);
        page_map_set_page(span->base, span);
        resized = pages_resize_huge(span, bytes, true);
    } else if (pages > old_pages) {
        resized = pages_extend(span, pages);
    } else {
        page_map_set(span->base + bytes, old_pages - pages, NULL);
        resized = pages_shrink(span, pages); /* refused during a fork, and outside of arenas */
    }
    page_map_set(span->base, span->pages, span);
    return resized;
}

/* In place; or, when it may, moved with its page tables. NULL: neither can be, nothing happened. */
static void *resize(void *pointer, size_t old_size, size_t new_size, bool may_move, unsigned flags)
{
    size_t granule = os_page_size();
    if (new_size > PTRDIFF_MAX / 2 || old_size > PTRDIFF_MAX / 2)
        return NULL;
    struct span *span = find_run(pointer);
    size_t old_bytes = align_up(larger_of(old_size, 1), granule);
    size_t new_bytes = align_up(larger_of(new_size, 1), granule);
    if (new_bytes == old_bytes)
        return pointer;
    bool whole = span->base == pointer && (size_t)span->pages << PAGE_SHIFT == old_bytes;
    bool huge = is_huge(span);
    if (!whole || (huge && new_bytes > old_bytes && !may_move) || !resize_run(span, new_bytes))
        return NULL;
    if (new_bytes > old_bytes)
        prepare(span->base + old_bytes, new_bytes - old_bytes, flags, huge);
    return span->base;
}

api void *cairn_pages_remap(void *pointer, size_t old_size, size_t new_size, size_t align,
                            unsigned flags)
{
    if (pointer == NULL)
        return cairn_pages_map(new_size, align, flags);
    if (!is_power_of_two(align))
        return fail(EINVAL);
    check_range(pointer, range_end(pointer, old_size));
    bool stays_aligned = align <= os_page_size();
    void *resized = stays_aligned || (uintptr_t)pointer % align == 0
                        ? resize(pointer, old_size, new_size, stays_aligned, flags)
                        : NULL;
    if (resized)
        return resized;
    void *moved = cairn_pages_map(new_size, align, flags);
    if (moved == NULL)
        return NULL;
    memcpy(moved, pointer, smaller_of(old_size, new_size));
    /* What cannot be cut stays mapped: the copy is made. */
    (void)cairn_pages_unmap(pointer, old_size);
    return moved;
}

api bool cairn_pages_purge(size_t keep_bytes)
{
    for (size_t i = 0; i < PLACES; i++) {
        struct span *span = exchange_acq_rel(&places[i], (struct span *)NULL);
        if (span)
            give(span);
    }
    return pages_trim(keep_bytes);
}

static void *allocator_alloc(void *context, size_t size, size_t align)
{
    (void)context;
    return cairn_pages_map(size, align, 0);
}

static void *allocator_resize(void *context, void *pointer, size_t old_size, size_t new_size)
{
    (void)context;
    return pointer ? resize(pointer, old_size, new_size, false, 0) : NULL;
}

static void allocator_free(void *context, void *pointer, size_t size)
{
    (void)context;
    if (pointer)
        (void)cairn_pages_unmap(pointer, size); /* whole blocks need no cut */
}

api cairn_allocator cairn_pages_allocator(void)
{
    static const struct cairn_allocator_operations operations = {
        .alloc = allocator_alloc,
        .resize = allocator_resize,
        .free = allocator_free,
        .capabilities =
            CAIRN_CAN_FREE | CAIRN_CAN_RESIZE | CAIRN_ANY_THREAD | CAIRN_ANY_THREAD_FREE,
        .name = "pages",
    };
    return (cairn_allocator){NULL, &operations};
}
