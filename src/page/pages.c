/* Taking and giving runs of pages: see page.h. */
#include "page/page.h"

#include "base/bits.h"
#include "os/os.h"
#include "page/apart.h"
#include "page/arena.h"
#include "page/bound.h"
#include "page/free_spans.h"
#include "page/grow.h"
#include "page/header.h"
#include "page/purge.h"
#include "page/room.h"
#include "page/state.h"

#include <string.h>

void pages_init(const struct slab_shape *shapes)
{
    page_map_init();
    pages_state.shapes = shapes;
    if (config_random_runs)
        pages_state.random = os_entropy();
    store_relaxed(&pages_state.interval_start_ms, os_now_ms());
}

/* Makes headers for a list that ran empty. False when memory is out. */
static bool refill_headers(unsigned cold_64, unsigned count)
{
    for (; count > 0; count--) {
        struct span *span = header_make(cold_64);
        if (span == NULL)
            return false;
        span->pages = 0;
        defer(span); /* the next holder of the lock puts it into its list */
    }
    return true;
}

/* Longer runs come and go often with other lengths, and what is given back for one of them is
 * missed by the next. As long as any slab's. */
enum { SHORT_PAGES = 64 };

enum outcome { TAKEN, DETACHED, EXHAUSTED };

/* What take_run lacked: true when it may try again. No pages to grow by: it takes what there is. */
static bool provide(bool admitted, bool spares, bool has_header, unsigned cold_64, size_t pages,
                    size_t grow_pages)
{
    if (!admitted)
        return purge_for_hard_limit(pages);
    bool provided = !spares      ? refill_headers(0, 8)
                    : has_header ? grow_pages != 0 && pages_grow(grow_pages)
                                 : refill_headers(cold_64, 1);
    return provided || room_purge(SIZE_MAX) != 0; /* the system may lack what room has */
}

/* Carves a run and pops its header, growing the header lists and, by `grow_pages`, the arenas as
 * needed. */
static enum outcome take_run(size_t pages, size_t alignment_pages, unsigned cold_64,
                             size_t grow_pages, struct span **header)
{
    for (unsigned refused = 0;;) {
        if (!lock_acquire(&pages_state.lock))
            return DETACHED;
        size_t freezes = pages_state.freezes;
        struct span *unmap = deferred_settle();
        struct span *spare = pages_state.headers[0];
        bool spares = spare && spare->next &&
                      spare->next->next; /* range_carve needs two, the run may need one */
        bool admitted = hard_limit_admits(pages);
        *header = spares && admitted ? header_pop(cold_64) : NULL;
        size_t dirty_pages = 0;
        char *run = *header ? range_carve(pages, alignment_pages, &dirty_pages) : NULL;
        if (run) {
            (*header)->base = run;
            store_relaxed(&(*header)->dirty_pages, dirty_pages);
        } else if (*header) {
            header_push(*header);
        }
        lock_release(&pages_state.lock);
        apart_give(unmap);
        if (run && dirty_pages < pages)
            heed_growth(pages <= SHORT_PAGES);
        if (run)
            return TAKEN;
        refused += !admitted;
        bool more = refused <= LIMIT_TRIES &&
                    provide(admitted, spares, *header != NULL, cold_64, pages, grow_pages);
        /* What failed because another thread forked meanwhile is no lack of memory. */
        if (!more && !load_acquire(&pages_state.lock.frozen) &&
            load_relaxed(&pages_state.freezes) == freezes)
            return EXHAUSTED;
    }
}

struct span *pages_take_slab(unsigned class)
{
    const struct slab_shape *shape = &pages_state.shapes[class];
    struct span *span;
    enum outcome outcome = take_run(shape->pages, 1, shape->cold_64, shape->pages, &span);
    if (outcome == DETACHED)
        span = apart_take(shape->pages, PAGE_BYTES, shape->cold_64,
                          (size_t)shape->pages << PAGE_SHIFT);
    if (outcome == EXHAUSTED || span == NULL)
        return NULL;
    /* No slab sees what another owner of its pages left. Where all were slabs, whose free blocks
     * are zero, nothing is left, and what was written since is seen when it is handed out. By
     * writing: it will touch most of them, and faults cost more. */
    if (config_cleared_slabs && span->dirty_pages != 0 && load_relaxed(&pages_state.unclean))
        memset(span->base, 0, (size_t)shape->pages << PAGE_SHIFT);
    store_relaxed(&span->tag, (uint8_t)(SPAN_SLAB + class));
    page_map_set(span->base, shape->pages, span);
    if (outcome == DETACHED)
        apart_add(span);
    return span;
}

static struct span *take_large(size_t pages, size_t alignment_bytes, bool grows)
{
    if (pages > UINT32_MAX / 2)
        return NULL;
    struct span *span;
    size_t alignment_pages = larger_of(alignment_bytes >> PAGE_SHIFT, 1);
    enum outcome outcome =
        take_run(pages, alignment_pages, 0, grows ? pages + alignment_pages - 1 : 0, &span);
    if (outcome == DETACHED)
        span = apart_take(pages, alignment_bytes, 0, pages << PAGE_SHIFT);
    if (outcome == EXHAUSTED || span == NULL)
        return NULL;
    store_relaxed(&span->zero, span->dirty_pages == 0);
    span->grew = false;
    span->pages = (uint32_t)pages;
    store_relaxed(&span->tag, (uint8_t)SPAN_LARGE);
    page_map_set_page(span->base, span);
    if (outcome == DETACHED)
        apart_add(span);
    return span;
}

struct span *pages_take(size_t pages, size_t alignment_bytes)
{
    return take_large(pages, alignment_bytes, true);
}

struct span *pages_take_free(size_t pages, size_t alignment_bytes)
{
    return take_large(pages, alignment_bytes, false);
}

/* The run is in no one's use any more; all of it may have been written. */
static void give(struct span *span, uint8_t was)
{
    span->until = was;
    store_relaxed(&span->dirty_pages, (size_t)span->pages);
    defer(span);
    if (!lock_acquire(&pages_state.lock))
        return;
    struct span *unmap = deferred_settle();
    lock_release(&pages_state.lock);
    apart_give(unmap);
    purge_excess();
}

void pages_give_slab(struct span *span) { pages_give_swept_slab(span, 0); }

void pages_give_swept_slab(struct span *span, size_t swept_pages)
{
    const struct slab_shape *shape = &pages_state.shapes[slab_class(span)];
    page_map_set(span->base, shape->pages, NULL);
    span->pages = shape->pages;
    span->swept_pages = swept_pages;
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    give(span, SPAN_WAS_SLAB);
    if (unlikely(swept_pages != 0))
        pages_heed_limits(); /* they count again, as dirty ones, and nobody admitted them */
}

void pages_give(struct span *span)
{
    if (config_cleared_slabs)
        store_relaxed(&pages_state.unclean, true);
    page_map_set_page(span->base, NULL);
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    give(span, 0);
}

struct span *pages_take_header(void) { return header_take(0); }

void pages_give_header(struct span *span)
{
    span->pages = 0;
    defer(span);
}

bool pages_extend(struct span *span, size_t pages)
{
    size_t more = pages - span->pages;
    if (!lock_acquire(&pages_state.lock))
        return false;
    struct arena *arena = arena_find(span->base);
    char *end = span_end(span);
    struct span *right = arena ? span_free_neighbour(arena, end) : NULL;
    if ((right == NULL || right->pages < more) && spans_merge())
        right = arena ? span_free_neighbour(arena, end) : NULL;
    bool fits = right && right->pages >= more && (right->pages == more || pages_state.headers[0]) &&
                hard_limit_admits(more);
    if (fits) {
        span_withdraw(right);
        size_t dirty_pages = bitmap_count(arena->dirty, arena_page(arena, end), more);
        if (right->pages > more)
            range_release(arena, end + (more << PAGE_SHIFT), right->pages - more,
                          right->dirty_pages - dirty_pages);
        header_push(right);
        note_dirty_low();
        store_relaxed(&span->pages, (uint32_t)pages);
    }
    lock_release(&pages_state.lock);
    if (fits)
        heed_growth(false);
    return fits;
}

bool pages_shrink(struct span *span, size_t pages)
{
    if (config_cleared_slabs)
        store_relaxed(&pages_state.unclean, true);
    if (!lock_acquire(&pages_state.lock))
        return false;
    struct arena *arena = arena_find(span->base);
    bool can = arena && pages_state.headers[0];
    if (can) {
        char *end = span->base + (pages << PAGE_SHIFT);
        size_t rest = span->pages - pages;
        bitmap_set(arena->dirty, arena_page(arena, end), rest);
        store_relaxed(&span->pages, (uint32_t)pages);
        range_release(arena, end, rest, rest);
    }
    lock_release(&pages_state.lock);
    purge_excess();
    return can;
}

void pages_clear(struct span *span, size_t size_bytes)
{
    enum { WORDS = 16 };
    size_t pages = (size_bytes + PAGE_BYTES - 1) >> PAGE_SHIFT;
    if (span->zero)
        return;
    uint64_t dirty[WORDS];
    for (size_t done = 0; done < pages;) {
        size_t first = done;
        size_t step = smaller_of(pages - done, (WORDS - 1) * 64);
        struct arena *arena = NULL;
        if (lock_acquire(&pages_state.lock)) {
            arena = arena_find(span->base);
            size_t page = arena_page(arena, span->base) + done;
            first = page / 64 * 64;
            for (size_t i = 0; i < WORDS && first + 64 * i < page + step; i++)
                dirty[i] = arena->dirty[first / 64 + i];
            first = page - first;
            lock_release(&pages_state.lock);
        }
        for (size_t i = 0; i < step; i++, done++)
            if (arena == NULL || (dirty[(first + i) / 64] >> (first + i) % 64 & 1) != 0)
                memset(span->base + (done << PAGE_SHIFT), 0, PAGE_BYTES);
    }
}
