/* The places of revoked and ready addresses, and their memory: see revoked.h. */
#include "page/revoked.h"

#include "base/bits.h"
#include "base/random.h"
#include "os/memory.h"
#include "os/process.h"
#include "page/page_map.h"
#include "page/state.h"

/* Ready addresses have READY_DEPTH places for each remainder of the number of their pages. */
enum { REVOKED_COUNT = 64, READY_COUNT = 16, READY_DEPTH = 8 };
enum { KEPT_COUNT = REVOKED_COUNT + READY_COUNT * READY_DEPTH };

/* Longer blocks are unmapped at once, because other mappings will hardly use their addresses. Up to
 * it, a number of pages has 16 bits. */
static const size_t REVOKED_MAX_BYTES = (size_t)64 << 20;

/* Longer addresses do not become ready. When their memory has moved away they are mapped anew,
 * because under vm.overcommit_memory=2 they would count as much as with it. */
static const size_t READY_MAX_BYTES = (size_t)4 << 20;

/* Up to this length, each length uses all of its places, because programs free several blocks of a
 * length and then take as many. Longer ones use READY_LONG_DEPTH of them. */
static const size_t READY_SHORT_BYTES = (size_t)256 << 10;
enum { READY_LONG_DEPTH = 2 };

/* atomic: REVOKED_COUNT places for revoked spans, then those for ready ones. A word has the address
 * of the span and, from bit KEPT_SHIFT on, its dirty_pages; 0: none. */
static uintptr_t kept[KEPT_COUNT];
enum { KEPT_SHIFT = 48 };
static_check((int)ADDRESS_BITS <= (int)KEPT_SHIFT, "the pages have room above the address");

size_t revoked_memory_pages; /* atomic: sum of dirty_pages over these spans */
/* atomic, approximate: lowest revoked_memory_pages in this decay interval */
static size_t kept_low;
static uint64_t revoked_random; /* atomic: random state; racing threads may use the same number */

/* Notes that no memory is kept for the span any more. */
static void revoked_forget_memory(struct span *span)
{
    size_t now = fetch_sub_relaxed(&revoked_memory_pages, span->dirty_pages) - span->dirty_pages;
    if (now < load_relaxed(&kept_low))
        store_relaxed(&kept_low, now);
    store_relaxed(&span->dirty_pages, (size_t)0);
}

/* Unmaps the addresses of a span except the first `lost_bytes` of its block, which belong to
 * another mapping already. The page map forgets the span first, because afterwards another thread
 * may map these addresses. */
static void revoked_release_rest(struct span *span, size_t lost_bytes)
{
    size_t guard = guard_before(span);
    char *block = span->base;
    size_t bytes = ((size_t)span->pages + span->behind_pages) << PAGE_SHIFT;
    revoked_forget_memory(span);
    if (lost_bytes == 0) {
        page_map_set_page(block, NULL);
        (void)os_unmap(block - guard, guard + bytes);
    } else {
        if (guard != 0)
            (void)os_unmap(block - guard, guard);
        if (bytes > lost_bytes)
            (void)os_unmap(block + lost_bytes, bytes - lost_bytes);
    }
    header_return(span);
}

static void revoked_release_one(struct span *span) { revoked_release_rest(span, 0); }

/* The number of pages of memory that the span in a place has. */
static size_t revoked_pages_at(size_t place) { return load_relaxed(&kept[place]) >> KEPT_SHIFT; }

/* Exchanges the span in a place, NULL for none. */
static struct span *revoked_exchange(size_t place, struct span *span)
{
    uintptr_t word = (uintptr_t)span | (span ? (uintptr_t)span->dirty_pages << KEPT_SHIFT : 0);
    word = exchange_acq_rel(&kept[place], word); /* acquire and release: pairs with itself */
    return (struct span *)(word & (((uintptr_t)1 << KEPT_SHIFT) - 1));
}

/* The first place for ready addresses of a length; `*end` gets the place behind the last one. */
static size_t revoked_ready_places(size_t pages, size_t *end)
{
    size_t first = REVOKED_COUNT + pages % READY_COUNT * READY_DEPTH;
    bool is_short = pages <= READY_SHORT_BYTES >> PAGE_SHIFT;
    *end = first + (is_short ? READY_DEPTH : READY_LONG_DEPTH);
    return first;
}

/* Puts a ready span into a free place, or into one without memory, whose span is unmapped. If all
 * have memory, the span itself is unmapped. */
static void revoked_put_ready(struct span *span)
{
    size_t end;
    size_t place = revoked_ready_places(span->pages, &end);
    size_t chosen = KEPT_COUNT;
    for (; place < end && (chosen == KEPT_COUNT || load_relaxed(&kept[chosen]) != 0); place++)
        if (revoked_pages_at(place) == 0)
            chosen = place;
    if (chosen != KEPT_COUNT)
        span = revoked_exchange(chosen, span);
    if (span)
        revoked_release_one(span);
}

/* Makes the addresses of a revoked span ready, between their guards. They are unmapped if they have
 * memory, or if their length makes another use improbable. */
static void revoked_retire(struct span *span)
{
    if (span->dirty_pages == 0 && (size_t)span->behind_pages << PAGE_SHIFT == os_page_size() &&
        span->pages <= READY_MAX_BYTES >> PAGE_SHIFT)
        revoked_put_ready(span);
    else
        revoked_release_one(span);
}

struct span *revoked_take(size_t pages, bool backed)
{
    size_t end;
    for (size_t place = revoked_ready_places(pages, &end); place < end; place++) {
        if (revoked_pages_at(place) != (backed ? pages : 0) || load_relaxed(&kept[place]) == 0)
            continue;
        struct span *span = revoked_exchange(place, NULL);
        if (span && span->pages == pages && (span->dirty_pages != 0) == backed) {
            if (backed)
                revoked_forget_memory(span);
            return span;
        }
        if (span)
            revoked_put_ready(span);
    }
    return NULL;
}

/* Returns a span to the place from which its memory was examined, or puts a revoked span into its
 * place. A revoked span that was there instead becomes ready. */
static void revoked_put_back(size_t place, struct span *span)
{
    if (place >= REVOKED_COUNT)
        revoked_put_ready(span);
    else if ((span = revoked_exchange(place, span)) != NULL)
        revoked_retire(span);
}

bool revoked_release(void)
{
    bool some = false;
    for (size_t i = 0; i < KEPT_COUNT; i++) {
        struct span *span = revoked_exchange(i, NULL);
        if (span)
            revoked_release_one(span);
        some |= span != NULL;
    }
    return some;
}

/* Purges and counts the memory of a span, and makes its addresses fault. If the system refuses, the
 * memory stays kept. */
static size_t revoked_drop_memory(struct span *span)
{
    size_t pages = span->dirty_pages;
    if (os_trap(span->base, (size_t)span->pages << PAGE_SHIFT) != 0)
        return 0;
    revoked_forget_memory(span);
    return pages;
}

size_t revoked_purge(size_t pages)
{
    size_t purged = 0;
    for (size_t i = 0; i < KEPT_COUNT && purged < pages; i++) {
        struct span *span = revoked_pages_at(i) != 0 ? revoked_exchange(i, NULL) : NULL;
        if (span == NULL)
            continue;
        purged += revoked_drop_memory(span);
        revoked_put_back(i, span);
    }
    return purged;
}

void revoked_decay(void)
{
    size_t unneeded = load_relaxed(&kept_low);
    store_relaxed(&kept_low, load_relaxed(&revoked_memory_pages));
    (void)revoked_purge(unneeded);
}

/* The place of the shortest kept memory of at least `pages` and at most twice as many pages, so
 * that little of it is lost; KEPT_COUNT if there is none. */
static size_t revoked_find_memory(size_t pages)
{
    size_t best = KEPT_COUNT;
    size_t best_pages = 2 * pages + 1;
    for (size_t i = 0; i < KEPT_COUNT; i++) {
        size_t found = revoked_pages_at(i);
        if (found >= pages && found < best_pages) {
            best = i;
            best_pages = found;
        }
    }
    return best;
}

/* Moves the memory of a span away; its addresses stay reserved. If the system needs two calls for
 * that, another thread may map the addresses between them; then `*ours` becomes false. */
static enum os_moved revoked_move_away(struct span *span, size_t size_bytes, char *destination,
                                       bool *ours)
{
    enum os_moved moved = os_move_leaving(span->base, size_bytes, destination);
    if (moved != OS_KEPT)
        return moved;
    page_map_set_page(span->base, NULL);
    moved = os_move_onto(span->base, size_bytes, destination);
    *ours = moved != OS_MOVED || os_reserve_at(span->base, size_bytes);
    if (*ours)
        page_map_set_page(span->base, span);
    return moved;
}

enum os_moved revoked_move(char *block, size_t size_bytes)
{
    size_t place = revoked_find_memory(size_bytes >> PAGE_SHIFT);
    struct span *span = place < KEPT_COUNT ? revoked_exchange(place, NULL) : NULL;
    if (span == NULL)
        return OS_KEPT;
    bool is_revoked = place < REVOKED_COUNT;
    enum os_moved moved = OS_KEPT;
    bool ours = true;
    if (span->dirty_pages >= size_bytes >> PAGE_SHIFT)
        moved = revoked_move_away(span, size_bytes, block, &ours);
    if (ours) {
        bool is_bare = moved == OS_MOVED && span->dirty_pages == size_bytes >> PAGE_SHIFT;
        if (is_bare && is_revoked && size_bytes <= READY_MAX_BYTES)
            revoked_forget_memory(span);
        else
            (void)revoked_drop_memory(span);
        revoked_put_back(place, span);
    } else {
        revoked_release_rest(span, size_bytes);
    }
    return moved;
}

/* Decides whether to keep the memory of a freed block: up to the cap, or as many pages as huge
 * blocks use. If so, it is counted. */
static bool revoked_keep_memory(struct span *span)
{
    size_t used = load_relaxed(&pages_state.huge_pages);
    size_t cap = larger_of(load_relaxed(&pages_state.limits.dirty_cap_bytes) >> PAGE_SHIFT, used);
    if (load_relaxed(&pages_state.pressed))
        cap = 0;
    bool fits = fetch_add_relaxed(&revoked_memory_pages, (size_t)span->pages) + span->pages <= cap;
    store_relaxed(&span->dirty_pages, (size_t)span->pages);
    if (!fits)
        revoked_forget_memory(span);
    return fits;
}

/* Moves the kept memory of a freed block to ready addresses of its length, which then are backed.
 * If there are none, or the system refuses, the memory stays. */
static void revoked_back(struct span *span, size_t size_bytes)
{
    struct span *next = revoked_take(span->pages, false);
    if (next == NULL)
        return;
    enum os_moved moved = os_move_leaving(span->base, size_bytes, next->base);
    if (moved == OS_LOST) {
        revoked_release_rest(next, size_bytes);
        return;
    }
    if (moved == OS_MOVED) {
        store_relaxed(&next->dirty_pages, (size_t)next->pages);
        store_relaxed(&span->dirty_pages, (size_t)0);
    }
    revoked_put_ready(next);
}

/* Revokes the access to a freed block, and purges its memory unless that is kept.
 * Returns: false when the system refuses. */
static bool revoked_revoke(struct span *span, size_t size_bytes)
{
    if (revoked_keep_memory(span)) {
        revoked_back(span, size_bytes);
        if (os_protect(span->base, size_bytes, OS_NONE) == 0)
            return true;
        revoked_forget_memory(span);
    }
    return os_trap(span->base, size_bytes) == 0;
}

void revoked_add(struct span *span)
{
    size_t bytes = (size_t)span->pages << PAGE_SHIFT;
    store_relaxed(&span->dirty_pages, (size_t)0);
    store_relaxed(&span->tag, (uint8_t)SPAN_REVOKED);
    if (bytes > REVOKED_MAX_BYTES) {
        revoked_release_one(span);
        return;
    }
    uint64_t state = load_relaxed(&revoked_random);
    if (unlikely(state == 0))
        state = os_random();
    size_t place = random_below(&state, REVOKED_COUNT);
    store_relaxed(&revoked_random, state);
    /* The span that was in the place may have this block's length and get its memory. */
    struct span *replaced = revoked_exchange(place, NULL);
    if (replaced)
        revoked_retire(replaced);
    if (revoked_revoke(span, bytes))
        revoked_put_back(place, span);
    else
        revoked_release_one(span);
}
