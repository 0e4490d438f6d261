/* Guarded blocks: huge blocks between pages without permissions, in builds with
 * config_guarded_blocks. See page.h; revoked.h says what happens to a freed one.
 *
 * Behind the block are `behind_pages` pages without permissions: at least one page, and the
 * addresses into which the block may still grow. Growing further moves page tables. All of a block
 * stays one mapping of the kernel, so that it can be moved again: unneeded parts are protected, not
 * unmapped. If a block could not be moved between guards, it has none, and `behind_pages` is 0.
 * Threads: a span belongs to the owner of the block. */
#include "base/bits.h"
#include "os/memory.h"
#include "page/limits.h"
#include "page/revoked.h"
#include "page/state.h"

#include <string.h>

/* Reserves addresses for a block, a guard page before it, and `behind_bytes` behind it.
 * Returns: the aligned start of the block, covered by the page map; NULL when out of memory. */
static char *guarded_reserve(size_t size_bytes, size_t behind_bytes, size_t alignment_bytes)
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
    if (page_map_cover(block, PAGE_BYTES) == 0)
        return block;
    os_unmap(block - guard, (size_t)(end - block) + guard);
    return NULL;
}

/* Unmaps the guards of a block whose own addresses are no longer its mapping. */
static void guarded_unmap_guards(char *block, size_t size_bytes, size_t behind_bytes)
{
    if (behind_bytes == 0)
        return;
    (void)os_unmap(block - os_page_size(), os_page_size());
    (void)os_unmap(block + size_bytes, behind_bytes);
}

static bool guarded_page_is_zero(const char *page)
{
    const uint64_t *words = (const uint64_t *)(const void *)page;
    for (size_t i = 0; i < PAGE_BYTES / sizeof *words; i++)
        if (words[i] != 0)
            return false;
    return true;
}

/* Whether an earlier block used most of this memory, or a quarter of it if it is short. Then
 * clearing all of it costs less than new pages for the parts that will be used. The middle page
 * of each eighth of the memory is read; if it is zero, the eighth counts as unused. Reading
 * makes no memory resident and, unlike mincore, is allowed in all sandboxes. */
static bool guarded_was_used(const char *block, size_t size_bytes)
{
    enum { PARTS = 8, SHORT_BYTES = 256 << 10, MIN_OF_SHORT = 2, MIN_OF_LONG = 6 };
    unsigned least = size_bytes <= SHORT_BYTES ? MIN_OF_SHORT : MIN_OF_LONG;
    unsigned used = 0;
    size_t pages = size_bytes >> PAGE_SHIFT;
    for (unsigned part = 0; part < PARTS && used < least && used + PARTS - part >= least; part++)
        used += !guarded_page_is_zero(block + (pages * (2 * part + 1) / (2 * PARTS) << PAGE_SHIFT));
    return used >= least;
}

/* Completes a block, with new memory or with memory that an earlier block left. */
static struct span *guarded_hand_out(struct span *span, size_t size_bytes, bool kept)
{
    if (kept && (guarded_was_used(span->base, size_bytes) || os_purge(span->base, size_bytes) != 0))
        memset(span->base, 0, size_bytes);
    store_relaxed(&span->zero, true);
    store_relaxed(&span->tag, (uint8_t)SPAN_HUGE);
    page_map_set_page(span->base, span);
    fetch_add_relaxed(&pages_state.huge_count, (size_t)1);
    return span;
}

/* Makes a block: from backed addresses, from ready addresses, or from new ones, with kept memory if
 * there is any. Returns: NULL when out of memory. */
static struct span *guarded_map(size_t bytes, size_t alignment_bytes, size_t spare_bytes)
{
    size_t guard = os_page_size();
    size_t behind = align_up(spare_bytes, guard) + guard;
    bool is_plain = spare_bytes == 0 && alignment_bytes <= guard;
    struct span *span = is_plain ? revoked_take(bytes >> PAGE_SHIFT, true) : NULL;
    if (span) /* backed addresses need no system call */
        return guarded_hand_out(span, bytes, true);
    span = is_plain ? revoked_take(bytes >> PAGE_SHIFT, false) : NULL;
    bool is_ready = span != NULL;
    if (is_ready)
        page_map_set_page(span->base, NULL); /* without an owner for now, like new addresses */
    else if ((span = header_take(shard_own(), 0)) != NULL)
        span->base = guarded_reserve(bytes, behind, alignment_bytes);
    else
        return NULL;
    char *block = span->base;
    enum os_moved moved = block && spare_bytes == 0 ? revoked_move(block, bytes) : OS_KEPT;
    if (moved == OS_LOST) {
        guarded_unmap_guards(block, bytes, behind);
        block = NULL;
    }
    /* The memory of the former block at ready addresses moved away a moment before they began to
     * fault. A thread may have written there in between, which brought pages back. Locked memory
     * cannot be purged, so it is mapped anew. */
    bool is_stale = is_ready && moved != OS_MOVED;
    if (block && ((is_stale && os_purge(block, bytes) != 0 && os_trap(block, bytes) != 0) ||
                  os_commit(block, bytes) != 0)) {
        (void)os_unmap(block - guard, guard + bytes + behind);
        block = NULL;
    }
    if (block == NULL) {
        header_return(span);
        return NULL;
    }
    span->behind_pages = (uint32_t)(behind >> PAGE_SHIFT);
    span->pages = (uint32_t)(bytes >> PAGE_SHIFT);
    return guarded_hand_out(span, bytes, moved == OS_MOVED);
}

struct span *pages_map_guarded(size_t size_bytes, size_t alignment_bytes, size_t spare_bytes)
{
    size_t bytes = align_up(size_bytes, os_page_size());
    if (bytes >> PAGE_SHIFT >= UINT32_MAX || !limits_claim_mapping(bytes >> PAGE_SHIFT))
        return NULL;
    struct span *span = guarded_map(bytes, alignment_bytes, spare_bytes);
    if (unlikely(span == NULL) && revoked_release())
        span = guarded_map(bytes, alignment_bytes, spare_bytes);
    if (span == NULL)
        limits_unclaim_mapping(bytes >> PAGE_SHIFT);
    else
        limits_heed_growth(0);
    return span;
}

void pages_give_guarded(struct span *span)
{
    fetch_sub_relaxed(&pages_state.huge_pages, (size_t)span->pages);
    fetch_sub_relaxed(&pages_state.huge_count, (size_t)1);
    revoked_add(span);
}

/* Moves the block, which the kernel has already moved with its spare bytes, between the guards of
 * `place`. Returns: false when the block stays where it is. */
static bool guarded_finish(char *block, size_t size_bytes, size_t spare_bytes, char *place)
{
    size_t guard = os_page_size();
    size_t bytes = size_bytes + spare_bytes;
    enum os_moved moved = os_move_onto(block, bytes, place);
    if (moved == OS_LOST) {
        guarded_unmap_guards(place, bytes, guard);
        return false;
    }
    if (moved == OS_MOVED) { /* a refusal moves the guard further back */
        (void)os_protect(place + size_bytes, spare_bytes, OS_NONE);
        return true;
    }
    if (os_commit(place, size_bytes) != 0) {
        (void)os_unmap(place - guard, guard + bytes + guard);
        return false;
    }
    memcpy(place, block, size_bytes);
    (void)os_unmap(block, bytes);
    return true;
}

/* Moves the block to a larger place: first to addresses that the kernel chooses, and from there
 * between guards. If the second step fails, the block has no guards. The block is not moved between
 * guards directly, because the place might be lost if the system then refuses to grow it.
 *
 * The leaves of the page map for any place are prepared before anything moves. The map forgets the
 * old address first, because afterwards another thread may map it.
 * Returns: false when the system refuses; then nothing has changed. */
static bool guarded_move(struct span *span, size_t old_bytes, size_t new_bytes)
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
        guarded_unmap_guards(old, old_bytes, (size_t)span->behind_pages << PAGE_SHIFT);
        (void)page_map_cover_prepared(block, PAGE_BYTES, &spares);
        char *place = guarded_reserve(new_bytes, spare + guard, guard);
        bool settled = place && guarded_finish(block, new_bytes, spare, place);
        if (!settled)
            (void)os_unmap(block + new_bytes, spare);
        span->base = settled ? place : block;
        span->behind_pages = settled ? (uint32_t)((spare + guard) >> PAGE_SHIFT) : 0;
    }
    page_map_set_page(span->base, span);
    page_map_drop(&spares);
    return block != NULL;
}

/* Resizes a block, without counting its pages. */
static bool guarded_resize(struct span *span, size_t old_bytes, size_t new_bytes, bool may_move)
{
    if (new_bytes < old_bytes) {
        char *end = span->base + new_bytes;
        if (guard_before(span) == 0 || os_protect(end, old_bytes - new_bytes, OS_NONE) != 0)
            return false;
        (void)os_purge(end, old_bytes - new_bytes);
    } else if (new_bytes - old_bytes + os_page_size() > (size_t)span->behind_pages << PAGE_SHIFT) {
        return may_move && guarded_move(span, old_bytes, new_bytes);
    } else if (os_commit(span->base + old_bytes, new_bytes - old_bytes) != 0) {
        return false;
    }
    span->behind_pages += (uint32_t)(old_bytes >> PAGE_SHIFT);
    span->behind_pages -= (uint32_t)(new_bytes >> PAGE_SHIFT);
    return true;
}

bool pages_resize_guarded(struct span *span, size_t size_bytes, bool may_move)
{
    size_t old_bytes = (size_t)span->pages << PAGE_SHIFT;
    size_t new_bytes = align_up(size_bytes, os_page_size());
    size_t more = (new_bytes - smaller_of(new_bytes, old_bytes)) >> PAGE_SHIFT;
    size_t less = (old_bytes - smaller_of(new_bytes, old_bytes)) >> PAGE_SHIFT;
    if (new_bytes >> PAGE_SHIFT >= UINT32_MAX || (more != 0 && !limits_claim_mapping(more)))
        return false;
    bool resized = guarded_resize(span, old_bytes, new_bytes, may_move);
    limits_unclaim_mapping(resized ? less : more);
    if (resized)
        store_relaxed(&span->pages, (uint32_t)(new_bytes >> PAGE_SHIFT));
    if (resized && more != 0)
        limits_heed_growth(0);
    return resized;
}
