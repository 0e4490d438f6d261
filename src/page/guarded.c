/* Guarded blocks: mappings of their own between pages without permissions. See page.h.
 *
 * Behind the block lie `behind_bytes` without permissions: one page at least, and what the block
 * may still grow into. Growing beyond moves page tables; all of a block stays one mapping of the
 * kernel's, so that it can be moved again: what it does not need is protected, not unmapped.
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
#include "page/state.h"

#include <string.h>

enum { TRAP_COUNT = 64 };

/* Longer blocks are unmapped at once: nothing else comes to lie there soon. */
static const size_t TRAP_MOST_BYTES = (size_t)64 << 20;

static struct span *trapped[TRAP_COUNT]; /* atomic */
static uint32_t kept_at[TRAP_COUNT];     /* atomic, hint: dirty_pages of the span at this place */
static size_t kept_pages;                /* atomic: sum of dirty_pages over trapped spans */
static size_t kept_low;      /* atomic, hint: lowest kept_pages since the last interval began */
static uint64_t trap_random; /* atomic: racing threads may take the same number */

/* The trapped span's memory is not kept any more. */
static void forget_kept(struct span *span)
{
    size_t now = fetch_sub_relaxed(&kept_pages, span->dirty_pages) - span->dirty_pages;
    if (now < load_relaxed(&kept_low))
        store_relaxed(&kept_low, now);
    span->dirty_pages = 0;
}

static void release(struct span *span)
{
    size_t guard = os_page_size();
    forget_kept(span);
    page_map_set(span->base, 1, NULL);
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    os_unmap(span->base - guard, guard + ((size_t)span->pages << PAGE_SHIFT) + span->behind_bytes);
    span->pages = 0;
    defer(span);
}

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

size_t guarded_kept_pages(void) { return load_relaxed(&kept_pages); }

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
    store_relaxed(&kept_low, load_relaxed(&kept_pages));
    (void)guarded_purge(unneeded);
}

/* Moves memory that was kept to new addresses, which are all of a block's. The shortest that is
 * long enough, and not so long that most of it would be lost. */
static bool move_kept(char *block, size_t size_bytes)
{
    size_t pages = size_bytes >> PAGE_SHIFT;
    size_t best = TRAP_COUNT;
    size_t best_pages = 2 * pages + 1;
    for (size_t i = 0; i < TRAP_COUNT; i++) {
        size_t kept = load_relaxed(&kept_at[i]);
        if (kept >= pages && kept < best_pages) {
            best = i;
            best_pages = kept;
        }
    }
    struct span *span = best < TRAP_COUNT ? take_trapped(best) : NULL;
    if (span == NULL)
        return false;
    bool moved = span->dirty_pages >= pages && os_move_memory(span->base, size_bytes, block) == 0;
    if (!moved) /* the kernel may have unmapped it first */
        (void)os_trap(block, size_bytes);
    drop_kept(span);
    put_trapped(best, span);
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

/* The page map's entry for a block's first page becomes writable; as a rule it is already, since
 * one page of the map covers 2 MiB, and remembering that saves the system call. */
static int cover(const char *block)
{
    enum { WINDOW_SHIFT = PAGE_SHIFT + 9, WINDOW_COUNT = 256 };
    static uintptr_t covered[WINDOW_COUNT]; /* atomic: numbers of windows */
    uintptr_t window = (uintptr_t)block >> WINDOW_SHIFT;
    uintptr_t *known = &covered[window % WINDOW_COUNT];
    if (load_relaxed(known) == window)
        return 0;
    int error = page_map_cover(block, PAGE_BYTES);
    if (error == 0)
        store_relaxed(known, window);
    return error;
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
    bool moved = block && spare_bytes == 0 && move_kept(block, bytes);
    if (block && (cover(block) != 0 || os_commit(block, bytes) != 0)) {
        os_unmap(block - guard, guard + bytes + behind);
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
    if (moved)
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
    heed_soft_limit(size_bytes >> PAGE_SHIFT);
    struct span *span = map_guarded(size_bytes, alignment_bytes, spare_bytes);
    if (unlikely(span == NULL) && release_trapped())
        span = map_guarded(size_bytes, alignment_bytes, spare_bytes);
    return span;
}

/* Whether to keep a freed block's memory: within the cap, as for the arenas (purge.c), and if most
 * of it is there. Counted when true. */
static bool keep(struct span *span, size_t size_bytes)
{
    size_t used = load_relaxed(&pages_state.huge_pages);
    size_t cap = larger_of(pages_state.limits.dirty_cap_bytes >> PAGE_SHIFT, used);
    bool fits = fetch_add_relaxed(&kept_pages, (size_t)span->pages) + span->pages <= cap;
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

/* Moves page tables to a larger place. The page map knows the place before anything moves, and
 * forgets the old address first: once moved, it may be another thread's. */
static bool move(struct span *span, size_t old_bytes, size_t new_bytes)
{
    size_t guard = os_page_size();
    size_t spare = align_up(new_bytes / 8, guard);
    char *place = reserve(new_bytes, spare + guard, guard);
    if (place == NULL)
        return false;
    char *old = span->base;
    bool covered = cover(place) == 0;
    if (covered)
        page_map_set(old, 1, NULL);
    if (!covered || os_move(old, old_bytes, place, new_bytes + spare) != 0) {
        if (covered)
            page_map_set(old, 1, span);
        os_unmap(place - guard, guard + new_bytes + spare + guard);
        return false;
    }
    (void)os_protect(place + new_bytes, spare, OS_NONE); /* refused, the guard lies further back */
    os_unmap(old - guard, guard);
    os_unmap(old + old_bytes, span->behind_bytes);
    span->base = place;
    span->behind_bytes = spare + guard;
    page_map_set(place, 1, span);
    return true;
}

bool pages_resize_guarded(struct span *span, size_t size_bytes)
{
    size_t guard = os_page_size();
    size_t old_bytes = (size_t)span->pages << PAGE_SHIFT;
    size_t new_bytes = align_up(size_bytes, guard);
    if (new_bytes >> PAGE_SHIFT >= UINT32_MAX)
        return false;
    if (new_bytes > old_bytes)
        heed_soft_limit((new_bytes - old_bytes) >> PAGE_SHIFT);
    if (new_bytes < old_bytes) {
        char *rest = span->base + new_bytes;
        if (os_protect(rest, old_bytes - new_bytes, OS_NONE) != 0)
            return false;
        (void)os_purge(rest, old_bytes - new_bytes);
        span->behind_bytes += old_bytes - new_bytes;
    } else if (new_bytes - old_bytes + guard <= span->behind_bytes) {
        if (os_commit(span->base + old_bytes, new_bytes - old_bytes) != 0)
            return false;
        span->behind_bytes -= new_bytes - old_bytes;
    } else if (!move(span, old_bytes, new_bytes)) {
        return false;
    }
    fetch_add_relaxed(&pages_state.huge_pages,
                      (new_bytes >> PAGE_SHIFT) - (old_bytes >> PAGE_SHIFT));
    span->pages = (uint32_t)(new_bytes >> PAGE_SHIFT);
    return true;
}
