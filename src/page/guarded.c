/* Guarded blocks: mappings of their own between pages without permissions. See page.h.
 *
 * Behind the block lie `behind_bytes` without permissions: one page at least, and what the block
 * may still grow into. Growing beyond moves page tables; all of a block stays one mapping of the
 * kernel's, so that it can be moved again: what it does not need is protected, not unmapped. A
 * block that could not be moved between guards has none: `behind_bytes` is 0. What becomes of a
 * freed one stands in trapped.h.
 *
 * Threading: a span belongs to whoever owns the block.
 */
#include "base/bits.h"
#include "os/os.h"
#include "page/bound.h"
#include "page/header.h"
#include "page/state.h"
#include "page/trapped.h"

#include <string.h>

/* Reserves room for a block with guards, `lead` bytes of which lie before its aligned start. */
static char *reserve(size_t size_bytes, size_t behind_bytes, size_t alignment_bytes)
{
    size_t guard = os_page_size();
    size_t slack = alignment_bytes > guard ? alignment_bytes : 0;
    size_t total = guard + size_bytes + behind_bytes + slack;
    char *start = os_reserve(total);
    if (start == NULL)
        return NULL;
    char *block = (char *)align_up((uintptr_t)start + guard, larger_of(alignment_bytes, guard));
    char *end = block + size_bytes + behind_bytes;
    if (block - guard > start)
        os_unmap(start, (size_t)(block - guard - start));
    if (start + total > end)
        os_unmap(end, (size_t)(start + total - end));
    return block;
}

/* Its guards, when its memory has gone elsewhere. */
static void unmap_guards(char *block, size_t size_bytes, size_t behind_bytes)
{
    if (behind_bytes == 0)
        return;
    (void)os_unmap(block - os_page_size(), os_page_size());
    (void)os_unmap(block + size_bytes, behind_bytes);
}

/* The memory of a ready span's former block moved away a moment before its addresses faulted: a
 * thread that wrote there in between has left a page. Locked memory is not purged. */
static bool drop_late_writes(char *block, size_t size_bytes)
{
    return os_purge(block, size_bytes) == 0 || os_trap(block, size_bytes) == 0;
}

/* The span becomes a block's. Memory that is there already is as another block left it. */
static struct span *hand_out(struct span *span, size_t size_bytes, bool resident)
{
    if (resident)
        memset(span->base, 0, size_bytes);
    store_relaxed(&span->zero, true);
    span->resident = resident;
    store_relaxed(&span->tag, (uint8_t)SPAN_HUGE);
    page_map_set_page(span->base, span);
    fetch_add_relaxed(&pages_state.huge_count, (size_t)1);
    return span;
}

static struct span *map_guarded(size_t size_bytes, size_t alignment_bytes, size_t spare_bytes)
{
    size_t guard = os_page_size();
    size_t bytes = align_up(size_bytes, guard);
    size_t behind = align_up(spare_bytes, guard) + guard;
    bool is_plain = spare_bytes == 0 && alignment_bytes <= guard;
    struct span *span = is_plain ? trapped_take_filled(bytes >> PAGE_SHIFT) : NULL;
    if (span) /* no system call */
        return hand_out(span, bytes, true);
    span = is_plain ? trapped_take_ready(bytes >> PAGE_SHIFT) : NULL;
    bool is_ready = span != NULL;
    if (!is_ready && (span = header_take(0)) == NULL)
        return NULL;
    char *block = is_ready ? span->base : NULL;
    if (is_ready)
        page_map_set_page(block, NULL); /* nobody's for now, as new addresses are */
    span->pages = 0;
    if (!is_ready)
        block = reserve(bytes, behind, alignment_bytes);
    enum os_moved moved = block && spare_bytes == 0 ? trapped_move(block, bytes) : OS_KEPT;
    if (moved == OS_LOST) {
        unmap_guards(block, bytes, behind);
        block = NULL;
    }
    bool is_stale = is_ready && moved != OS_MOVED;
    if (block && ((is_stale && !drop_late_writes(block, bytes)) ||
                  page_map_cover(block, PAGE_BYTES) != 0 || os_commit(block, bytes) != 0)) {
        (void)os_unmap(block - guard, guard + bytes + behind);
        block = NULL;
    }
    span->base = block;
    if (block == NULL) {
        defer(span);
        return NULL;
    }
    span->behind_bytes = behind;
    span->pages = (uint32_t)(bytes >> PAGE_SHIFT);
    return hand_out(span, bytes, moved == OS_MOVED);
}

struct span *pages_map_guarded(size_t size_bytes, size_t alignment_bytes, size_t spare_bytes)
{
    if (size_bytes >> PAGE_SHIFT >= UINT32_MAX)
        return NULL;
    size_t claimed = align_up(size_bytes, os_page_size()) >> PAGE_SHIFT;
    if (!huge_claim(claimed))
        return NULL;
    struct span *span = map_guarded(size_bytes, alignment_bytes, spare_bytes);
    if (unlikely(span == NULL) && trapped_release())
        span = map_guarded(size_bytes, alignment_bytes, spare_bytes);
    if (span == NULL)
        huge_unclaim(claimed);
    return span;
}

void pages_give_guarded(struct span *span)
{
    fetch_sub_relaxed(&pages_state.huge_pages, (size_t)span->pages);
    fetch_sub_relaxed(&pages_state.huge_count, (size_t)1);
    trapped_add(span);
}

/* Puts the block, which the kernel has moved with its spare bytes, between the guards of a place.
 * False when it stays where it is. */
static bool settle(char *block, size_t size_bytes, size_t spare_bytes, char *place)
{
    size_t guard = os_page_size();
    size_t bytes = size_bytes + spare_bytes;
    enum os_moved moved = os_move_onto(block, bytes, place);
    if (moved == OS_LOST) {
        unmap_guards(place, bytes, guard);
        return false;
    }
    if (moved == OS_KEPT && os_commit(place, size_bytes) != 0) {
        (void)os_unmap(place - guard, guard + bytes + guard);
        return false;
    }
    if (moved == OS_KEPT) {
        memcpy(place, block, size_bytes);
        (void)os_unmap(block, bytes);
    } else { /* refused, the guard lies further back */
        (void)os_protect(place + size_bytes, spare_bytes, OS_NONE);
    }
    return true;
}

/* Moves page tables to a larger place: to where the kernel finds one, and from there between
 * guards; without them, if that cannot be. Not to there at once: refused to grow, the place might
 * be lost. The page map has what it needs for any place before anything moves, and forgets the old
 * address first: once moved, it may be another thread's. */
static bool move(struct span *span, size_t old_bytes, size_t new_bytes)
{
    size_t guard = os_page_size();
    size_t spare = align_up(new_bytes / 8, guard);
    struct page_map_spares spares;
    if (page_map_prepare(PAGE_BYTES, &spares) != 0)
        return false;
    char *old = span->base;
    page_map_set_page(old, NULL);
    char *block = os_move(old, old_bytes, new_bytes + spare);
    if (block) {
        unmap_guards(old, old_bytes, span->behind_bytes);
        page_map_cover_prepared(block, PAGE_BYTES, &spares);
        char *place = reserve(new_bytes, spare + guard, guard);
        if (place && page_map_cover(place, PAGE_BYTES) != 0) {
            (void)os_unmap(place - guard, guard + new_bytes + spare + guard);
            place = NULL;
        }
        bool settled = place && settle(block, new_bytes, spare, place);
        if (!settled)
            (void)os_unmap(block + new_bytes, spare);
        span->base = settled ? place : block;
        span->behind_bytes = settled ? spare + guard : 0;
    }
    page_map_set_page(span->base, span);
    page_map_drop(&spares);
    return block != NULL;
}

static bool resize_guarded(struct span *span, size_t size_bytes, bool may_move)
{
    size_t guard = os_page_size();
    size_t old_bytes = (size_t)span->pages << PAGE_SHIFT;
    size_t new_bytes = align_up(size_bytes, guard);
    if (new_bytes >> PAGE_SHIFT >= UINT32_MAX)
        return false;
    if (new_bytes < old_bytes) {
        if (guard_before(span) == 0)
            return false;
        char *rest = span->base + new_bytes;
        if (os_protect(rest, old_bytes - new_bytes, OS_NONE) != 0)
            return false;
        (void)os_purge(rest, old_bytes - new_bytes);
        span->behind_bytes += old_bytes - new_bytes;
    } else if (new_bytes - old_bytes + guard <= span->behind_bytes) {
        if (os_commit(span->base + old_bytes, new_bytes - old_bytes) != 0)
            return false;
        span->behind_bytes -= new_bytes - old_bytes;
    } else if (!may_move || !move(span, old_bytes, new_bytes)) {
        return false;
    }
    span->resident = span->resident && new_bytes <= old_bytes;
    store_relaxed(&span->pages, (uint32_t)(new_bytes >> PAGE_SHIFT));
    return true;
}

bool pages_resize_guarded(struct span *span, size_t size_bytes, bool may_move)
{
    size_t pages = align_up(size_bytes, os_page_size()) >> PAGE_SHIFT;
    size_t old_pages = span->pages;
    size_t more = pages - smaller_of(pages, old_pages);
    if (more != 0 && !huge_claim(more))
        return false;
    bool resized = resize_guarded(span, size_bytes, may_move);
    huge_unclaim(!resized ? more : old_pages - smaller_of(pages, old_pages));
    return resized;
}
