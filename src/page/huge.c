/* Huge blocks: one mapping each, so that growing them moves page tables, not bytes.
 *
 * Only the first page is in the page map, but for the runs of other allocators, which enter the
 * others themselves. Threading: a span belongs to whoever owns the block; the
 * counters are atomic.
 */
#include "base/bits.h"
#include "os/os.h"
#include "page/bound.h"
#include "page/detached.h"
#include "page/room.h"
#include "page/state.h"

#include <string.h>

struct span *pages_map_huge(size_t size_bytes, size_t alignment_bytes)
{
    size_t pages = align_up(size_bytes, os_page_size()) >> PAGE_SHIFT;
    if (pages > UINT32_MAX)
        return NULL;
    if (!huge_claim(pages))
        return NULL;
    struct span *span = detached_take(pages, alignment_bytes, 0, PAGE_BYTES);
    if (unlikely(span == NULL) && room_purge(SIZE_MAX) != 0)
        span = detached_take(pages, alignment_bytes, 0, PAGE_BYTES);
    if (span == NULL) {
        huge_unclaim(pages);
        return NULL;
    }
    store_relaxed(&span->zero, true);
    store_relaxed(&span->tag, (uint8_t)SPAN_HUGE);
    page_map_set_page(span->base, span);
    fetch_add_relaxed(&pages_state.huge_count, (size_t)1);
    return span;
}

struct span *pages_map_growing(size_t size_bytes)
{
    struct span *span = room_take((size_bytes + PAGE_BYTES - 1) >> PAGE_SHIFT);
    if (span)
        return span;
    span = pages_map_huge(size_bytes + size_bytes / 8, PAGE_BYTES);
    if (span)
        span->grew = true;
    return span;
}

bool pages_extend_huge(struct span *span, size_t pages)
{
    return pages > span->pages && room_extend(span, pages);
}

void pages_give_huge(struct span *span)
{
    if (config_room && span->grew && room_give(span))
        return;
    page_map_set_page(span->base, NULL);
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    fetch_sub_relaxed(&pages_state.huge_pages, (size_t)span->pages);
    fetch_sub_relaxed(&pages_state.huge_count, (size_t)1);
    detached_give(span);
}

/* Whether a huge page that is filled by half hardly counts: beside the block, or, one for each
 * such block and one for the frontier, beside all there is. */
static bool is_large_for_huge_pages(size_t block_bytes)
{
    if (likely(block_bytes < ADVICE_FROM_BYTES / 4))
        return false;
    size_t fronts = load_relaxed(&pages_state.huge_count) + 1;
    return block_bytes >= ADVICE_FROM_BYTES ||
           counted_pages() << PAGE_SHIFT >= fronts * ADVICE_FROM_BYTES;
}

/* All of the mapping, since the kernel moves only one that is the same from its start to its end.
 */
void pages_expect_filled(struct span *span)
{
    size_t bytes = (size_t)span->pages << PAGE_SHIFT;
    uint8_t tag = load_relaxed(&span->tag);
    if (config_fences || !is_large_for_huge_pages(bytes) ||
        (tag != SPAN_HUGE && tag != SPAN_RESIZED)) /* of these only huge ones come here */
        return;
    if (huge_pages_fit(0)) /* it is counted */
        (void)os_huge_pages(span->base, align_up(bytes, os_page_size()), true);
}

/* Moves the mapping to where the kernel finds room. The page map has what it needs for any place
 * before anything moves, so that no failure leaves the block where free cannot find it. */
static bool move(struct span *span, size_t old_bytes, size_t new_bytes)
{
    bool every_page = load_relaxed(&span->tag) == SPAN_RUN_HUGE;
    size_t covered = every_page ? new_bytes : PAGE_BYTES;
    struct page_map_spares spares;
    if (page_map_prepare(covered, &spares) != 0)
        return false;
    /* First: once moved, the old address may be another thread's. */
    page_map_set_page(span->base, NULL);
    char *place = os_move(span->base, old_bytes, new_bytes);
    if (unlikely(place == NULL) && room_purge(SIZE_MAX) != 0)
        place = os_move(span->base, old_bytes, new_bytes);
    if (place) {
        page_map_cover_prepared(place, covered, &spares);
        span->base = place;
    }
    page_map_set_page(span->base, span);
    page_map_drop(&spares);
    return place != NULL;
}

bool pages_resize_huge(struct span *span, size_t size_bytes, bool may_move)
{
    room_join(span); /* else it would be in the way, or lie behind nothing */
    size_t old_bytes = (size_t)span->pages << PAGE_SHIFT;
    size_t new_bytes = align_up(size_bytes, os_page_size());
    if (new_bytes >> PAGE_SHIFT > UINT32_MAX)
        return false;
    size_t more = new_bytes > old_bytes ? (new_bytes - old_bytes) >> PAGE_SHIFT : 0;
    if (more != 0 && !huge_claim(more))
        return false;
    bool in_place = os_resize(span->base, old_bytes, new_bytes) == 0;
    /* Grown in place it may reach into a region that the page map does not know; only its first
     * page needs to. */
    if (!in_place && (new_bytes < old_bytes || !may_move || !move(span, old_bytes, new_bytes))) {
        huge_unclaim(more);
        return false;
    }
    if (new_bytes < old_bytes)
        huge_unclaim((old_bytes - new_bytes) >> PAGE_SHIFT);
    store_relaxed(&span->pages, (uint32_t)(new_bytes >> PAGE_SHIFT));
    span->grew = span->grew || (more != 0 && load_relaxed(&span->tag) != SPAN_RUN_HUGE);
    if (more != 0 && old_bytes < ADVICE_FROM_BYTES) /* else it was asked for, or is not to be */
        pages_expect_filled(span);
    return true;
}

void pages_move_bytes(struct span *destination, struct span *source, size_t size_bytes)
{
    enum { STEP_BYTES = 4 << 20 };
    for (size_t done = 0; done < size_bytes; done += STEP_BYTES) {
        size_t step = smaller_of(size_bytes - done, STEP_BYTES);
        memcpy(destination->base + done, source->base + done, step);
        char *from = (char *)align_up((uintptr_t)source->base + done, os_page_size());
        char *to = (char *)align_down((uintptr_t)source->base + done + step, os_page_size());
        if (size_bytes > 2 * (size_t)STEP_BYTES && to > from)
            (void)os_purge(from,
                           (size_t)(to - from)); /* refused, it only costs memory for a while */
    }
}
