/* See trapped.h. */
#include "page/trapped.h"

#include "base/bits.h"
#include "base/random.h"
#include "page/page_map.h"
#include "page/state.h"

enum { TRAP_COUNT = 64, READY_COUNT = 16, READY_DEPTH = 4 };
enum { FILLED_COUNT = READY_COUNT * READY_DEPTH, KEPT_COUNT = TRAP_COUNT + FILLED_COUNT };

/* Longer blocks are unmapped at once: nothing else comes to lie there soon. */
static const size_t TRAP_MOST_BYTES = (size_t)64 << 20;

/* Longer ones do not wait for another block of their length. And when their memory has moved away
 * they are mapped anew: under vm.overcommit_memory=2 they would count as much as with it. */
static const size_t READY_MOST_BYTES = (size_t)4 << 20;

/* Shorter ones have READY_DEPTH places for a length, since programs free several of a length, then
 * take as many; longer ones a single place. */
static const size_t READY_SHORT_BYTES = (size_t)256 << 10;

static struct span *trapped[KEPT_COUNT]; /* atomic: behind TRAP_COUNT the filled ones, by
                                            the number of pages */
static struct span *ready[READY_COUNT][READY_DEPTH]; /* atomic: by the number of pages, without
                                                        memory */
static uint32_t kept_at[KEPT_COUNT]; /* atomic, hint: dirty_pages of the span at this place */
size_t trapped_kept;                 /* atomic: sum of dirty_pages over trapped spans */
static size_t kept_low;      /* atomic, hint: lowest trapped_kept since the last interval began */
static uint64_t trap_random; /* atomic: racing threads may take the same number */

/* The trapped span's memory is not kept any more. */
static void forget_kept(struct span *span)
{
    size_t now = fetch_sub_relaxed(&trapped_kept, span->dirty_pages) - span->dirty_pages;
    if (now < load_relaxed(&kept_low))
        store_relaxed(&kept_low, now);
    store_relaxed(&span->dirty_pages, (size_t)0);
}

/* Gives a trapped span's addresses back but the first `lost_bytes` of its block, which are not ours
 * any more. The page map forgets it first: then it may be another thread's. */
static void release_rest(struct span *span, size_t lost_bytes)
{
    size_t guard = guard_before(span);
    char *block = span->base;
    size_t bytes = ((size_t)span->pages << PAGE_SHIFT) + span->behind_bytes;
    forget_kept(span);
    if (lost_bytes == 0) {
        page_map_set_page(block, NULL);
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

static size_t depth_for(size_t pages)
{
    return pages <= READY_SHORT_BYTES >> PAGE_SHIFT ? READY_DEPTH : 1;
}

/* Its addresses wait between their guards for a block of the same length, and fault until then.
 * With memory, or where nothing as long is likely to come, they go back; so do those that wait in
 * the first place, when there is no other. */
static void retire(struct span *span)
{
    bool is_plain = span->dirty_pages == 0 && span->behind_bytes == os_page_size() &&
                    span->pages <= READY_MOST_BYTES >> PAGE_SHIFT;
    if (is_plain) {
        struct span **places = ready[span->pages % READY_COUNT];
        for (size_t i = 0; i < depth_for(span->pages); i++) {
            struct span *none = NULL; /* pairs with trapped_take_ready's exchange */
            if (load_relaxed(&places[i]) == NULL && compare_swap_acq_rel(&places[i], &none, span))
                return;
        }
        span = exchange_acq_rel(&places[0], span); /* pairs with itself */
    }
    if (span)
        release(span);
}

struct span *trapped_take_ready(size_t pages)
{
    struct span **places = ready[pages % READY_COUNT];
    for (size_t i = 0; i < READY_DEPTH; i++) {
        if (load_relaxed(&places[i]) == NULL)
            continue;
        struct span *span = exchange_acq_rel(&places[i], (struct span *)NULL); /* with retire */
        if (span && span->pages == pages)
            return span;
        if (span)
            retire(span);
    }
    return NULL;
}

/* A trapped span comes to a place; the one that was there is retired. */
static void put_trapped(size_t place, struct span *span)
{
    uint32_t kept = (uint32_t)span->dirty_pages;
    span = exchange_acq_rel(&trapped[place], span); /* pairs with itself */
    store_relaxed(&kept_at[place], kept);
    if (span)
        retire(span);
}

static struct span *take_trapped(size_t place)
{
    store_relaxed(&kept_at[place], (uint32_t)0);
    return exchange_acq_rel(&trapped[place], (struct span *)NULL);
}

static size_t filled_place(size_t pages) { return TRAP_COUNT + pages % READY_COUNT * READY_DEPTH; }

/* A free place for filled spans of that length; KEPT_COUNT if there is none. */
static size_t find_filled_room(size_t pages)
{
    size_t first = filled_place(pages);
    for (size_t place = first; place < first + depth_for(pages); place++)
        if (load_relaxed(&trapped[place]) == NULL)
            return place;
    return KEPT_COUNT;
}

/* Without room its memory goes back, and its addresses. */
static void put_filled(struct span *span)
{
    size_t place = find_filled_room(span->pages);
    struct span *none = NULL; /* pairs with take_trapped's exchange */
    uint32_t kept = (uint32_t)span->dirty_pages;
    if (place < KEPT_COUNT && compare_swap_acq_rel(&trapped[place], &none, span))
        store_relaxed(&kept_at[place], kept);
    else
        release(span);
}

struct span *trapped_take_filled(size_t pages)
{
    size_t first = filled_place(pages);
    for (size_t place = first; place < first + READY_DEPTH; place++) {
        if (load_relaxed(&kept_at[place]) != pages)
            continue;
        struct span *span = take_trapped(place);
        if (span && span->pages == pages) {
            forget_kept(span);
            return span;
        }
        if (span)
            put_filled(span);
    }
    return NULL;
}

bool trapped_release(void)
{
    bool some = false;
    for (size_t i = 0; i < KEPT_COUNT; i++) {
        struct span *span = take_trapped(i);
        if (span)
            release(span);
        some |= span != NULL;
    }
    for (size_t i = 0; i < READY_COUNT * READY_DEPTH; i++) {
        struct span **place = &ready[i / READY_DEPTH][i % READY_DEPTH];
        struct span *span = exchange_acq_rel(place, (struct span *)NULL); /* as in retire */
        if (span)
            release(span);
        some |= span != NULL;
    }
    return some;
}

/* Gives the memory of a trapped span back; the number of pages. Refused, it stays kept. */
static size_t drop_kept(struct span *span)
{
    size_t pages = span->dirty_pages;
    if (os_trap(span->base, (size_t)span->pages << PAGE_SHIFT) != 0)
        return 0;
    forget_kept(span);
    return pages;
}

/* A span whose memory was looked for comes back to its place, but without memory it is not filled.
 */
static void put_back(size_t place, struct span *span)
{
    if (place < TRAP_COUNT)
        put_trapped(place, span);
    else if (span->dirty_pages == 0)
        retire(span);
    else
        put_filled(span);
}

size_t trapped_kept_pages(void) { return load_relaxed(&trapped_kept); }

size_t trapped_purge(size_t pages)
{
    size_t purged = 0;
    for (size_t i = 0; i < KEPT_COUNT && purged < pages; i++) {
        struct span *span = load_relaxed(&kept_at[i]) != 0 ? take_trapped(i) : NULL;
        if (span == NULL)
            continue;
        purged += drop_kept(span);
        put_back(i, span);
    }
    return purged;
}

void trapped_tick(void)
{
    size_t unneeded = load_relaxed(&kept_low);
    store_relaxed(&kept_low, load_relaxed(&trapped_kept));
    (void)trapped_purge(unneeded);
}

/* The place of the shortest kept memory that is long enough, and not so long that most of it would
 * be lost; KEPT_COUNT if there is none. */
static size_t find_kept(size_t pages)
{
    size_t best = KEPT_COUNT;
    size_t best_pages = 2 * pages + 1;
    for (size_t i = 0; i < KEPT_COUNT; i++) {
        size_t kept = load_relaxed(&kept_at[i]);
        if (kept >= pages && kept < best_pages) {
            best = i;
            best_pages = kept;
        }
    }
    return best;
}

/* Moves a trapped span's memory; its addresses stay taken. Where only two calls can do that another
 * thread may map there between them: then they are not `ours` any more. */
static enum os_moved move_away(struct span *span, size_t size_bytes, char *destination, bool *ours)
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

enum os_moved trapped_move(char *block, size_t size_bytes)
{
    size_t place = find_kept(size_bytes >> PAGE_SHIFT);
    struct span *span = place < KEPT_COUNT ? take_trapped(place) : NULL;
    if (span == NULL)
        return OS_KEPT;
    bool is_trapped = place < TRAP_COUNT;
    enum os_moved moved = OS_KEPT;
    bool ours = true;
    if (span->dirty_pages >= size_bytes >> PAGE_SHIFT)
        moved = move_away(span, size_bytes, block, &ours);
    if (ours) {
        bool is_bare = moved == OS_MOVED && span->dirty_pages == size_bytes >> PAGE_SHIFT;
        if (is_bare && is_trapped && size_bytes <= READY_MOST_BYTES)
            forget_kept(span);
        else
            (void)drop_kept(span);
        put_back(place, span);
    } else {
        release_rest(span, size_bytes);
    }
    return moved;
}

/* Whether so much of a freed block's memory is there that clearing all of it costs less than new
 * pages for what will be used of it: most of a long block's, or a quarter of a short one's. */
static bool is_resident(const struct span *span, size_t size_bytes)
{
    enum { SHORT_BYTES = 256 << 10 };
    size_t least = size_bytes <= SHORT_BYTES ? size_bytes / 4 : size_bytes / 4 * 3;
    return os_resident(span->base, size_bytes) >= least;
}

/* Whether to keep a freed block's memory: within the cap, as for the arenas (purge.c), and if
 * enough of it is there. Counted when true. */
static bool keep(struct span *span, size_t size_bytes, bool resident)
{
    size_t used = load_relaxed(&pages_state.huge_pages);
    size_t cap = larger_of(load_relaxed(&pages_state.limits.dirty_cap_bytes) >> PAGE_SHIFT, used);
    if (load_relaxed(&pages_state.pressed))
        cap = 0;
    bool fits = fetch_add_relaxed(&trapped_kept, (size_t)span->pages) + span->pages <= cap;
    store_relaxed(&span->dirty_pages, (size_t)span->pages);
    if (fits && (resident || is_resident(span, size_bytes)))
        return true;
    forget_kept(span);
    return false;
}

/* Moves a freed block's kept memory on to addresses that wait for a block of its length, which will
 * then need no system call. Where there are none, or it is refused, it stays. */
static void fill(struct span *span, size_t size_bytes)
{
    size_t pages = span->pages;
    struct span *next = find_filled_room(pages) < KEPT_COUNT ? trapped_take_ready(pages) : NULL;
    if (next == NULL)
        return;
    enum os_moved moved = os_move_leaving(span->base, size_bytes, next->base);
    if (moved == OS_LOST) {
        release_rest(next, size_bytes);
    } else if (moved == OS_KEPT) {
        retire(next);
    } else {
        store_relaxed(&next->dirty_pages, pages);
        store_relaxed(&span->dirty_pages, (size_t)0);
        put_filled(next);
    }
}

/* Takes the access to a freed block away, and its memory unless that is kept. */
static bool trap(struct span *span, size_t size_bytes, bool resident)
{
    if (keep(span, size_bytes, resident)) {
        fill(span, size_bytes);
        if (os_protect(span->base, size_bytes, OS_NONE) == 0)
            return true;
        forget_kept(span);
    }
    return os_trap(span->base, size_bytes) == 0;
}

void trapped_add(struct span *span)
{
    size_t bytes = (size_t)span->pages << PAGE_SHIFT;
    bool resident = span->resident;
    store_relaxed(&span->dirty_pages, (size_t)0);
    store_relaxed(&span->tag, (uint8_t)SPAN_TRAPPED);
    if (bytes > TRAP_MOST_BYTES) {
        release(span);
        return;
    }
    uint64_t state = load_relaxed(&trap_random);
    if (unlikely(state == 0))
        state = os_entropy();
    size_t place = random_below(&state, TRAP_COUNT);
    store_relaxed(&trap_random, state);
    struct span *replaced = take_trapped(place); /* may be as long as this, and serve its memory */
    if (replaced)
        retire(replaced);
    if (trap(span, bytes, resident))
        put_trapped(place, span);
    else
        release(span);
}
