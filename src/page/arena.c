/* The list of arenas, their reservation and the claims to their pages: see arena.h. */
#include "page/arena.h"

#include "base/bits.h"
#include "base/test_delay.h"
#include "os/memory.h"
#include "page/meta.h"
#include "page/state.h"

#include <errno.h>

enum {
    FIRST_PAGES = (1 << 20) >> PAGE_SHIFT,
    STEP_PAGES = (64 << 20) >> PAGE_SHIFT,
    GROWTH = 8, /* an arena is 8 times what is reserved, at most a step or a quarter of it */
    SMALLEST_PAGES = (64 << 10) >> PAGE_SHIFT,
    ALIGNED_FROM_BYTES = 2 * HUGE_PAGE_BYTES, /* from here on it begins at a huge page's start */
};

/* 4 GiB. The bitmaps of an arena, each one bit for each page, must fit into a piece of metadata. */
static const size_t LARGEST_PAGES = (size_t)1 << 20;

struct arena *arenas_added[ARENA_LIMIT];
size_t arenas_count;

/* Acquire: pairs with arena_insert. */
size_t arena_count(void) { return load_acquire(&arenas_count); }

static bool arena_holds(const struct arena *arena, const void *address)
{
    return arena->base <= (const char *)address && arena_page(arena, address) < arena->pages;
}

struct arena *arena_of(const void *address)
{
    for (size_t i = 0; i < arena_count(); i++)
        if (arena_holds(arenas_added[i], address))
            return arenas_added[i];
    return NULL;
}

bool pages_holds(const void *address)
{
    struct arena *arena = arena_of(address);
    return arena && arena_page(arena, address) < load_relaxed(&arena->frontier);
}

struct arena *span_arena(const struct span *span)
{
    /* Acquire: pairs with arena_insert. */
    for (struct arena *arena = load_acquire(&shard_of(span)->arenas); arena; arena = arena->next)
        if (arena_holds(arena, span->base))
            return arena;
    return NULL;
}

struct arena *arena_with_room(const struct page_shard *shard, size_t pages)
{
    struct arena *best = NULL; /* the fullest one, so that the others stay whole */
    for (struct arena *arena = shard->arenas; arena; arena = arena->next) {
        size_t room = arena->pages - arena->frontier;
        if (room >= pages && (best == NULL || room < best->pages - best->frontier))
            best = arena;
    }
    return best;
}

/* Gives reserved addresses what each part of an arena has. */
static void arena_prepare(char *start, size_t size_bytes)
{
    os_name(start, size_bytes, "cairn: arena");
    if (pages_are_huge())
        (void)os_huge_pages(start, size_bytes, true);
}

static struct arena *arena_reserve(struct page_shard *shard, size_t pages)
{
    size_t size_bytes = pages << PAGE_SHIFT;
    bool aligned = size_bytes >= ALIGNED_FROM_BYTES;
    char *base = aligned ? fenced_reserve_aligned(size_bytes, HUGE_PAGE_BYTES)
                         : fenced_reserve(size_bytes, true);
    if (base == NULL)
        return NULL;
    bool covered = page_map_cover(base, size_bytes) == 0;
    struct arena *arena = covered ? meta_take(META_HOT, sizeof *arena) : NULL;
    size_t words = pages / 64 + 1;
    size_t huge_words = (pages >> HUGE_PAGE_SHIFT) / 64 + 2;
    size_t map_words = 3 * words + huge_words;
    uint64_t *dirty = arena ? meta_take(META_HOT, map_words * sizeof(uint64_t)) : NULL;
    if (dirty == NULL) {
        fenced_unmap(base, size_bytes);
        return NULL;
    }
    *arena = (struct arena){.base = base,
                            .pages = pages,
                            .dirty = dirty,
                            .purged = dirty + words,
                            .holes = dirty + 2 * words,
                            .whole = dirty + 3 * words,
                            .shard = shard};
    arena_prepare(base, size_bytes);
    return arena;
}

/* Adds an arena to the lists. Not shard_acquire, because the page lock is needed in any case. */
static int arena_insert(struct arena *arena)
{
    struct page_shard *shard = arena->shard;
    if (!lock_acquire(&shard->lock))
        return -EAGAIN;
    bool locked = lock_acquire(&pages_state.lock);
    bool fits = locked && arenas_count != ARENA_LIMIT;
    if (fits) {
        arenas_added[arenas_count] = arena;
        test_delay();
        store_release(&arenas_count, arenas_count + 1); /* pairs with arena_count */
        store_relaxed(&pages_state.reserved_pages, pages_state.reserved_pages + arena->pages);
        arena->next = shard->arenas;
        store_release(&shard->arenas, arena); /* pairs with span_arena */
        store_relaxed(&shard->reserved_pages, shard->reserved_pages + arena->pages);
    }
    if (locked)
        lock_release(&pages_state.lock);
    lock_release(&shard->lock);
    return fits ? 0 : locked ? -ENOSPC : -EAGAIN;
}

int arena_add(struct page_shard *shard, size_t pages)
{
    if (lock_is_frozen(&pages_state.lock))
        return -EAGAIN; /* arena_insert would fail, and each try costs metadata */
    size_t least = larger_of(align_up(pages, os_page_size() >> PAGE_SHIFT), SMALLEST_PAGES);
    if (least > LARGEST_PAGES)
        return -ENOSPC;
    size_t reserved = load_relaxed(&shard->reserved_pages);
    size_t most = larger_of(align_up(reserved / 4, STEP_PAGES), STEP_PAGES);
    size_t step = smaller_of(larger_of(GROWTH * reserved, FIRST_PAGES), most);
    step = smaller_of(larger_of(step, least), LARGEST_PAGES);
    struct arena *arena;
    while ((arena = arena_reserve(shard, step)) == NULL && step > least)
        step = larger_of(align_up(step / 4, SMALLEST_PAGES), least);
    if (arena == NULL)
        return -ENOSPC;
    int error = arena_insert(arena);
    if (error != 0) /* rare: the arena's metadata is lost */
        fenced_unmap(arena->base, arena->pages << PAGE_SHIFT);
    return error;
}

/* Claims up to `*claimed` pages of the first hole that has `least`, or returns false if none has.
 * `*claimed` gets their number, `*first` the first one. The page at the frontier is no hole.
 * Locking: shard's lock held. */
static bool arena_claim_hole(struct arena *arena, size_t *claimed, size_t least, size_t *first)
{
    size_t end;
    for (size_t page = 0; page < arena->frontier && arena->hole_pages >= least; page = end + 1) {
        for (end = page; end - page < *claimed && bitmap_has(arena->holes, end);)
            end++;
        if (end - page >= least) {
            *first = page;
            *claimed = end - page;
            bitmap_clear(arena->holes, page, end - page);
            arena->hole_pages -= end - page;
            return true;
        }
        if (arena->holes[end / 64] == 0)
            end |= 63; /* the next word */
    }
    return false;
}

/* Claims `*claimed` pages for arena_commit, from a hole or at a frontier; `*first` gets the first
 * page. A hole of the `least` pages serves before a frontier.
 * Locking: shard's lock held.
 * Returns: NULL when no arena has enough pages. */
static struct arena *arena_claim(struct page_shard *shard, size_t *claimed, size_t least,
                                 bool to_huge_end, size_t *first)
{
    struct arena *arena = shard->arenas;
    for (; arena; arena = arena->next)
        if (arena_claim_hole(arena, claimed, least, first))
            return arena;
    arena = arena_with_room(shard, *claimed);
    if (arena && to_huge_end) {
        uintptr_t end = (uintptr_t)arena->base + ((arena->frontier + *claimed) << PAGE_SHIFT);
        size_t more = (align_up(end, HUGE_PAGE_BYTES) - end) >> PAGE_SHIFT;
        *claimed += more <= arena->pages - arena->frontier - *claimed ? more : 0;
    } else if (arena == NULL && (arena = arena_with_room(shard, least)) != NULL) {
        *claimed = arena->pages - arena->frontier;
    }
    if (arena) {
        *first = arena->frontier;
        store_relaxed(&arena->frontier, arena->frontier + *claimed);
    }
    return arena;
}

/* Makes pages that are not committed a hole, or moves the frontier back.
 * Locking: shard's lock held. */
static void arena_give_up_claim(struct arena *arena, size_t first, size_t pages)
{
    bitmap_set(arena->holes, first, pages);
    arena->hole_pages += pages;
    size_t frontier = arena->frontier;
    for (; frontier > 0 && bitmap_has(arena->holes, frontier - 1); frontier--)
        arena->hole_pages--;
    bitmap_clear(arena->holes, frontier, arena->frontier - frontier);
    store_relaxed(&arena->frontier, frontier);
}

/* Requests for huge pages are recorded for each 64th of an arena, rounded up to whole huge pages.
 * So a withdrawal divides the kernel's mapping a few times, whatever the size of the heap. The bit
 * in `asked` is set after the request and cleared before its withdrawal: each range with a request
 * has its bit, except in the moment after the request. */
static bool any_asked; /* atomic: whether any request was ever made */

static uintptr_t arena_part_bytes(const struct arena *arena)
{
    return align_up(((arena->pages << PAGE_SHIFT) + HUGE_PAGE_BYTES) / 64 + 1, HUGE_PAGE_BYTES);
}

static uintptr_t arena_part_start(const struct arena *arena, size_t part)
{
    return align_down((uintptr_t)arena->base, HUGE_PAGE_BYTES) + part * arena_part_bytes(arena);
}

/* A bit for each 64th that the range touches. The range is in the arena. */
static uint64_t arena_parts_of(const struct arena *arena, uintptr_t from, uintptr_t to)
{
    size_t first = (from - arena_part_start(arena, 0)) / arena_part_bytes(arena);
    size_t last = (to - 1 - arena_part_start(arena, 0)) / arena_part_bytes(arena);
    return UINT64_MAX >> (63 - last) & UINT64_MAX << first;
}

static_check(HUGE_PAGE_BYTES >> PAGE_SHIFT == 1 << HUGE_PAGE_SHIFT, "in pages");

static uint64_t *arena_whole_word(const struct arena *arena, uintptr_t huge_page, uint64_t *bit)
{
    size_t index = (huge_page - arena_part_start(arena, 0)) / HUGE_PAGE_BYTES;
    *bit = (uint64_t)1 << index % 64;
    return &arena->whole[index / 64];
}

bool pages_in_huge_page(const char *address)
{
    struct arena *arena = load_relaxed(&any_asked) ? arena_of(address) : NULL;
    if (arena == NULL || load_relaxed(&pages_state.pressed))
        return false;
    uint64_t bit;
    uintptr_t huge_page = align_down((uintptr_t)address, HUGE_PAGE_BYTES);
    return (load_relaxed(arena_whole_word(arena, huge_page, &bit)) & bit) != 0;
}

/* Divides the huge pages in a range, and counts them, before a part of each is purged: otherwise
 * the kernel keeps the memory of the whole huge page until memory is short. MADV_COLD for the part
 * makes the kernel divide it (Linux 5.4; a refusal has no effect). Each is divided once, before its
 * first part is purged. */
static size_t arena_divide_huge_pages(const struct arena *arena, uintptr_t from, uintptr_t to)
{
    size_t divided = 0;
    for (uintptr_t page = align_down(from, HUGE_PAGE_BYTES); page < to; page += HUGE_PAGE_BYTES) {
        uint64_t bit;
        uint64_t *word = arena_whole_word(arena, page, &bit);
        if ((load_relaxed(word) & bit) == 0 || (fetch_and_acq_rel(word, ~bit) & bit) == 0)
            continue;
        uintptr_t first = larger_of(from, page);
        uintptr_t end = smaller_of(to, page + HUGE_PAGE_BYTES);
        if (end - first == HUGE_PAGE_BYTES)
            continue;
        (void)os_divide_huge_page((char *)first, end - first);
        divided++;
    }
    return divided;
}

size_t arena_whole_pages(char *start, size_t pages, char **whole)
{
    size_t granule = os_page_size();
    uintptr_t from = align_up((uintptr_t)start, granule);
    uintptr_t to = align_down((uintptr_t)start + (pages << PAGE_SHIFT), granule);
    *whole = (char *)from;
    return to > from ? (to - from) >> PAGE_SHIFT : 0;
}

void arena_mark_clean(struct arena *arena, const char *start, size_t pages)
{
    bitmap_clear(arena->dirty, arena_page(arena, start), pages);
    bitmap_set(arena->purged, arena_page(arena, start), pages);
}

/* Makes committed pages addresses again, without memory or advice; false if the system refuses. */
static bool arena_decommit(struct arena *arena, char *start, size_t size_bytes)
{
    if (load_relaxed(&any_asked))
        (void)arena_divide_huge_pages(arena, (uintptr_t)start, (uintptr_t)start + size_bytes);
    if (os_trap(start, size_bytes) != 0)
        return false;
    arena_prepare(start, size_bytes);
    return true;
}

bool arena_uncommit(struct arena *arena, char *start, size_t pages)
{
    if (!arena_decommit(arena, start, pages << PAGE_SHIFT))
        return false;
    arena_mark_clean(arena, start, pages);
    arena_give_up_claim(arena, arena_page(arena, start), pages);
    return true;
}

/* Asks for huge pages for the whole huge pages within a run. A refusal costs only speed. */
static void arena_ask_for_huge_pages(struct arena *arena, char *start, size_t pages)
{
    uintptr_t from = align_up((uintptr_t)start, HUGE_PAGE_BYTES);
    uintptr_t to = align_down((uintptr_t)start + (pages << PAGE_SHIFT), HUGE_PAGE_BYTES);
    if (from >= to)
        return;
    (void)os_huge_pages((char *)from, to - from, true);
    for (uintptr_t page = from; page < to; page += HUGE_PAGE_BYTES) {
        uint64_t bit;
        uint64_t *word = arena_whole_word(arena, page, &bit);
        fetch_or_acq_rel(word, bit);
    }
    uint64_t parts = arena_parts_of(arena, from, to);
    fetch_or_acq_rel(&arena->asked, parts);
    fetch_or_acq_rel(&arena->begun, parts);
    store_relaxed(&any_asked, true);
}

void arena_mark_rests(struct arena *arena, uintptr_t from, uintptr_t to)
{
    if (from == to || (load_relaxed(&arena->begun) & arena_parts_of(arena, from, to)) == 0)
        return;
    size_t page = arena_page(arena, (const char *)from);
    for (size_t end = page + ((to - from) >> PAGE_SHIFT); page < end; page++)
        if (!bitmap_has(arena->purged, page))
            bitmap_set(arena->dirty, page, 1);
}

size_t arena_withdraw_advice(const char *start, size_t size_bytes)
{
    struct arena *arena = load_relaxed(&any_asked) ? arena_of(start) : NULL;
    if (arena == NULL)
        return 0;
    uintptr_t first = (uintptr_t)start;
    uint64_t parts = arena_parts_of(arena, first, first + size_bytes);
    uintptr_t end = (uintptr_t)arena->base + (arena->pages << PAGE_SHIFT);
    parts &= load_relaxed(&arena->asked);
    if (parts != 0)
        parts &= fetch_and_acq_rel(&arena->asked, ~parts);
    for (; parts != 0; parts &= parts - 1) {
        uintptr_t from = arena_part_start(arena, lowest_bit(parts));
        uintptr_t to = smaller_of(from + arena_part_bytes(arena), align_down(end, HUGE_PAGE_BYTES));
        from = larger_of(from, align_up((uintptr_t)arena->base, HUGE_PAGE_BYTES));
        if (from < to)
            (void)os_huge_pages((char *)from, to - from, false);
    }
    return arena_divide_huge_pages(arena, first, first + size_bytes);
}

/* Pages that another thread has claimed at a fork are addresses that the child never uses. */
char *arena_commit(struct page_shard *shard, size_t *claimed, size_t least, enum arena_step step,
                   int *error)
{
    *error = -EAGAIN;
    if (!lock_acquire(&shard->lock))
        return NULL;
    size_t first;
    struct arena *arena = arena_claim(shard, claimed, least, step != ARENA_EXACTLY, &first);
    size_t pages = *claimed;
    lock_release(&shard->lock);
    *error = -ENOSPC;
    if (arena == NULL)
        return NULL;
    char *base = arena->base + (first << PAGE_SHIFT);
    if (step == ARENA_IN_HUGE_PAGES)
        arena_ask_for_huge_pages(arena, base, pages);
    else if (step == ARENA_IN_SMALL_PAGES)
        (void)os_huge_pages(base, pages << PAGE_SHIFT, false); /* a refusal costs only memory */
    *error = os_commit(base, pages << PAGE_SHIFT);
    if (*error == 0)
        return base;
    (void)arena_decommit(arena, base, pages << PAGE_SHIFT); /* it may have committed a part */
    if (lock_acquire(&shard->lock)) { /* frozen for a fork: the addresses are lost */
        arena_give_up_claim(arena, first, pages);
        lock_release(&shard->lock);
    }
    return NULL;
}
