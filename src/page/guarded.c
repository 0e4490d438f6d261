/* Guarded blocks: mappings of their own between pages without permissions. See page.h.
 *
 * Behind the block lie `behind_bytes` without permissions: one page at least, and what the block
 * may still grow into. Growing beyond moves page tables; all of a block stays one mapping of the
 * kernel's, so that it can be moved again: what it does not need is protected, not unmapped. A
 * block that could not be moved between guards has none: `behind_bytes` is 0.
 *
 * A freed block is trapped: its addresses stay taken and fault, until another freed block takes its
 * place among TRAP_COUNT, chosen at random. Its memory goes back, or is kept for a coming block, as
 * far as the dirty cap and the decay allow: then it is moved to the addresses of that one and
 * cleared there, which costs a fraction of faulting in as many pages. What was hardly used is not
 * kept: clearing it would bring in pages that it never had.
 *
 * Threading: a span belongs to whoever owns the block, the places of trapped ones are exchanged
 * atomically; whoever takes a span out of its place owns it.
 */
#include "base/bits.h"
#include "base/random.h"
#include "os/os.h"
#include "page/header.h"
#include "page/state.h"

#include <string.h>

enum { TRAP_COUNT = 64 };

/* Longer blocks are unmapped at once: nothing else comes to lie there soon. */
static const size_t TRAP_MOST_BYTES = (size_t)64 << 20;

static struct span *trapped[TRAP_COUNT]; /* atomic */
static uint32_t kept_at[TRAP_COUNT];     /* atomic, hint: dirty_pages of the span at this place */
size_t guarded_kept;                     /* atomic: sum of dirty_pages over trapped spans */
static size_t kept_low;      /* atomic, hint: lowest guarded_kept since the last interval began */
static uint64_t trap_random; /* atomic: racing threads may take the same number */

/* The trapped span's memory is not kept any more. */
static void forget_kept(struct span *span)
{
    size_t now = fetch_sub_relaxed(&guarded_kept, span->dirty_pages) - span->dirty_pages;
    if (now < load_relaxed(&kept_low))
        store_relaxed(&kept_low, now);
    span->dirty_pages = 0;
}

/* Of the guard before the block, 0 where there are none. */
static size_t lead_guard(const struct span *span)
{
    return span->behind_bytes != 0 ? os_page_size() : 0;
}

/* Gives a trapped span's addresses back but the first `lost_bytes` of its block, which are not ours
 * any more. The page map forgets it first: then it may be another thread's. */
static void release_rest(struct span *span, size_t lost_bytes)
{
    size_t guard = lead_guard(span);
    char *block = span->base;
    size_t bytes = ((size_t)span->pages << PAGE_SHIFT) + span->behind_bytes;
    forget_kept(span);
    if (lost_bytes == 0) {
        page_map_set(block, 1, NULL);
        (void)os_unmap(block - guard, guard + bytes);
    } else {
        if (guard != 0)
            (void)os_unmap(block - guard, guard);
        if (bytes > lost_bytes)
            (void)os_unmap(block + lost_bytes, bytes - lost_bytes);
    }
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    span->pages = 0;
    defer(span);
}

static void release(struct span *span) { release_rest(span, 0); }

/* A trapped span comes to a place; the one that was there is released. */
static void put_trapped(size_t place, struct span *span)
{
    uint32_t kept = (uint32_t)span->dirty_pages;
    span = exchange_acq_rel(&trapped[place], span); /* pairs with itself */
    store_relaxed(&kept_at[place], kept);
    if (span)
        release(span);
}

static struct span *take_trapped(size_t place)
{
    store_relaxed(&kept_at[place], (uint32_t)0);
    return exchange_acq_rel(&trapped[place], (struct span *)NULL);
}

/* Gives the trapped addresses back; false when there were none. */
static bool release_trapped(void)
{
    bool some = false;
    for (size_t i = 0; i < TRAP_COUNT; i++) {
        struct span *span = take_trapped(i);
        if (span)
            release(span);
        some |= span != NULL;
    }
    return some;
}

/* Gives the memory of a trapped span back. Refused, it is there, and may as well stay. */
static void drop_kept(struct span *span)
{
    (void)os_trap(span->base, (size_t)span->pages << PAGE_SHIFT);
    forget_kept(span);
}

size_t guarded_kept_pages(void) { return load_relaxed(&guarded_kept); }

size_t guarded_purge(size_t pages)
{
    size_t purged = 0;
    for (size_t i = 0; i < TRAP_COUNT && purged < pages; i++) {
        struct span *span = load_relaxed(&kept_at[i]) != 0 ? take_trapped(i) : NULL;
        if (span == NULL)
            continue;
        purged += span->dirty_pages;
        drop_kept(span);
        put_trapped(i, span);
    }
    return purged;
}

void guarded_tick(void)
{
    size_t unneeded = load_relaxed(&kept_low);
    store_relaxed(&kept_low, load_relaxed(&guarded_kept));
    (void)guarded_purge(unneeded);
}

/* The place of the shortest kept memory that is long enough, and not so long that most of it would
 * be lost; TRAP_COUNT if there is none. */
static size_t find_kept(size_t pages)
{
    size_t best = TRAP_COUNT;
    size_t best_pages = 2 * pages + 1;
    for (size_t i = 0; i < TRAP_COUNT; i++) {
        size_t kept = load_relaxed(&kept_at[i]);
        if (kept >= pages && kept < best_pages) {
            best = i;
            best_pages = kept;
        }
    }
    return best;
}

/* Moves memory that was kept to new addresses, which are all of a block's. Its own stay taken,
 * unless another thread maps there in the moment between. */
static enum os_moved move_kept(char *block, size_t size_bytes)
{
    size_t place = find_kept(size_bytes >> PAGE_SHIFT);
    struct span *span = place < TRAP_COUNT ? take_trapped(place) : NULL;
    if (span == NULL)
        return OS_KEPT;
    enum os_moved moved = OS_KEPT;
    bool ours = true;
    if (span->dirty_pages >= size_bytes >> PAGE_SHIFT) {
        page_map_set(span->base, 1, NULL);
        moved = os_move_onto(span->base, size_bytes, block);
        ours = moved != OS_MOVED || os_reserve_at(span->base, size_bytes);
    }
    if (ours) {
        page_map_set(span->base, 1, span);
        drop_kept(span);
        put_trapped(place, span);
    } else {
        release_rest(span, size_bytes);
    }
    return moved;
}

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

static struct span *map_guarded(size_t size_bytes, size_t alignment_bytes, size_t spare_bytes)
{
    size_t guard = os_page_size();
    size_t bytes = align_up(size_bytes, guard);
    size_t behind = align_up(spare_bytes, guard) + guard;
    struct span *span = header_take(0);
    if (span == NULL)
        return NULL;
    span->pages = 0;
    char *block = reserve(bytes, behind, alignment_bytes);
    enum os_moved moved = block && spare_bytes == 0 ? move_kept(block, bytes) : OS_KEPT;
    if (moved == OS_LOST) {
        (void)os_unmap(block - guard, guard);
        (void)os_unmap(block + bytes, behind);
        block = NULL;
    }
    if (block && (page_map_cover(block, PAGE_BYTES) != 0 || os_commit(block, bytes) != 0)) {
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
    span->zero = true;
    if (moved == OS_MOVED)
        memset(block, 0, bytes);
    store_relaxed(&span->tag, (uint8_t)SPAN_HUGE);
    page_map_set(block, 1, span);
    fetch_add_relaxed(&pages_state.huge_pages, (size_t)span->pages);
    fetch_add_relaxed(&pages_state.huge_count, (size_t)1);
    return span;
}

struct span *pages_map_guarded(size_t size_bytes, size_t alignment_bytes, size_t spare_bytes)
{
    if (size_bytes >> PAGE_SHIFT >= UINT32_MAX)
        return NULL;
    size_t claimed = align_up(size_bytes, os_page_size()) >> PAGE_SHIFT;
    if (!huge_claim(claimed))
        return NULL;
    struct span *span = map_guarded(size_bytes, alignment_bytes, spare_bytes);
    if (unlikely(span == NULL) && release_trapped())
        span = map_guarded(size_bytes, alignment_bytes, spare_bytes);
    huge_unclaim(claimed); /* the span is counted by now */
    return span;
}

/* Whether to keep a freed block's memory: within the cap, as for the arenas (purge.c), and if most
 * of it is there. Counted when true. */
static bool keep(struct span *span, size_t size_bytes)
{
    size_t used = load_relaxed(&pages_state.huge_pages);
    size_t cap = larger_of(load_relaxed(&pages_state.limits.dirty_cap_bytes) >> PAGE_SHIFT, used);
    if (load_relaxed(&pages_state.pressed))
        cap = 0;
    bool fits = fetch_add_relaxed(&guarded_kept, (size_t)span->pages) + span->pages <= cap;
    span->dirty_pages = span->pages;
    if (fits && os_resident(span->base, size_bytes) >= size_bytes / 4 * 3 &&
        os_protect(span->base, size_bytes, OS_NONE) == 0)
        return true;
    forget_kept(span);
    return false;
}

void pages_give_guarded(struct span *span)
{
    size_t bytes = (size_t)span->pages << PAGE_SHIFT;
    span->dirty_pages = 0;
    store_relaxed(&span->tag, (uint8_t)SPAN_TRAPPED);
    fetch_sub_relaxed(&pages_state.huge_pages, (size_t)span->pages);
    fetch_sub_relaxed(&pages_state.huge_count, (size_t)1);
    if (bytes <= TRAP_MOST_BYTES && (keep(span, bytes) || os_trap(span->base, bytes) == 0)) {
        uint64_t state = load_relaxed(&trap_random);
        if (unlikely(state == 0))
            state = os_entropy();
        size_t place = random_below(&state, TRAP_COUNT);
        store_relaxed(&trap_random, state);
        put_trapped(place, span);
    } else {
        release(span);
    }
}

/* Puts the block, which the kernel has moved with its spare bytes, between the guards of a place.
 * False when it stays where it is. */
static bool settle(char *block, size_t size_bytes, size_t spare_bytes, char *place)
{
    size_t guard = os_page_size();
    size_t bytes = size_bytes + spare_bytes;
    enum os_moved moved = os_move_onto(block, bytes, place);
    if (moved == OS_LOST) {
        (void)os_unmap(place - guard, guard);
        (void)os_unmap(place + bytes, guard);
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
 * guards; without them, if that cannot be. The page map has what it needs for any place before
 * anything moves, and forgets the old address first: once moved, it may be another thread's. */
static bool move(struct span *span, size_t old_bytes, size_t new_bytes)
{
    size_t guard = os_page_size();
    size_t spare = align_up(new_bytes / 8, guard);
    struct page_map_spares spares;
    if (page_map_prepare(PAGE_BYTES, &spares) != 0)
        return false;
    char *old = span->base;
    page_map_set(old, 1, NULL);
    char *block = os_move(old, old_bytes, new_bytes + spare);
    if (block) {
        if (lead_guard(span) != 0) {
            (void)os_unmap(old - guard, guard);
            (void)os_unmap(old + old_bytes, span->behind_bytes);
        }
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
    page_map_set(span->base, 1, span);
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
        if (lead_guard(span) == 0)
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
    fetch_add_relaxed(&pages_state.huge_pages,
                      (new_bytes >> PAGE_SHIFT) - (old_bytes >> PAGE_SHIFT));
    store_relaxed(&span->pages, (uint32_t)(new_bytes >> PAGE_SHIFT));
    return true;
}

bool pages_resize_guarded(struct span *span, size_t size_bytes, bool may_move)
{
    size_t pages = align_up(size_bytes, os_page_size()) >> PAGE_SHIFT;
    size_t more = pages - smaller_of(pages, (size_t)span->pages);
    if (more != 0 && !huge_claim(more))
        return false;
    bool resized = resize_guarded(span, size_bytes, may_move);
    huge_unclaim(more); /* the span is counted by now */
    return resized;
}
