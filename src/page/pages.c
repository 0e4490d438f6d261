/* Taking and giving runs of pages, the start of the layer, and fork: see page.h.
 *
 * While the locks are frozen for a fork, other threads defer the runs that they give. The child
 * forgets these. Runs that were deferred before the freeze are processed by it, and runs that other
 * threads were purging are free in the child. The child keeps headers in lists without a lock and
 * chunks of metadata: it sees the writes to them in their order (decision 3). */
#include "base/alone.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "base/memory_marks.h"
#include "base/tagged.h"
#include "os/memory.h"
#include "os/process.h"
#include "page/arena.h"
#include "page/free_spans.h"
#include "page/grow.h"
#include "page/kept_mappings.h"
#include "page/limits.h"
#include "page/mappings.h"
#include "page/page.h"
#include "page/purge.h"
#include "page/state.h"

#include <errno.h>
#include <string.h>

static void (*on_fork)(void); /* const after the heap's start */
/* page lock, frozen: whether the process had one thread at the current or last fork */
static bool was_alone;

/* Whether no thread was changing shared data when the locks were frozen. If a signal handler forks,
 * this thread may have been. */
static bool pages_frozen_whole(void)
{
    bool whole = lock_is_frozen_whole(&pages_state.lock);
    for (unsigned i = 0; i < shard_count(); i++)
        whole = whole && lock_is_frozen_whole(&page_shards[i].lock);
    return whole;
}

void pages_on_fork(void (*in_child)(void)) { on_fork = in_child; }

/* The page lock is frozen before all others and thawed after them, so it says whether a fork is
 * under way. The first shard is frozen before the others are counted: its lock is taken to begin a
 * new one. */
void pages_freeze(void)
{
    lock_freeze(&pages_state.lock);
    fetch_add_relaxed(&pages_state.freezes, (size_t)1);
    for (unsigned i = 0; i < shard_count(); i++) {
        struct page_shard *shard = &page_shards[i];
        lock_freeze(&shard->lock);
        /* or a signal handler forks, and has interrupted a holder of the lock */
        if (lock_is_frozen_whole(&shard->lock)) {
            free_spans_settle(shard, NULL);
            headers_share(shard);
        }
    }
    if (pages_state.lock.nested == 0)
        was_alone = process_is_single_threaded();
}

void pages_thaw(void)
{
    for (unsigned i = shard_count(); i-- > 0;)
        lock_thaw(&page_shards[i].lock);
    fetch_add_relaxed(&pages_state.freezes, (size_t)1);
    lock_thaw(&pages_state.lock);
}

void pages_thaw_in_child(void)
{
    if (pages_frozen_whole()) {
        store_relaxed(&pages_state.purging_pages, (size_t)0);
        store_relaxed(&pages_state.purging_dirty, (size_t)0);
        pages_state.purging_resets++;
        for (unsigned i = 0; i < shard_count(); i++) {
            store_relaxed(&page_shards[i].deferred, (struct span *)NULL);
            spans_end_others_purges(&page_shards[i]);
        }
    }
    pages_thaw();
}

bool pages_forked_alone(void) { return was_alone; }

/* The locks that fork takes, and their list.
 *
 * The fork handlers freeze the list's own lock first and then each lock of the list. No thread
 * waits for one of these locks while it holds another, so the order does not matter. Each step of a
 * change of the list leaves it whole from `next` to `next`, for a signal handler that forks. */
static struct fork_lock fork_lock_list = {.next = &fork_lock_list, .prev = &fork_lock_list};
static uint32_t fork_generation; /* atomic: number of forks from the first process to this one */

void fork_lock_acquire(struct fork_lock *lock) { lock_acquire_after_fork(&lock->lock); }

void fork_lock_release(struct fork_lock *lock) { lock_release(&lock->lock); }

static void fork_lock_after(void)
{
    for (struct fork_lock *entry = fork_lock_list.next; entry != &fork_lock_list;
         entry = entry->next)
        lock_thaw(&entry->lock);
    lock_thaw(&fork_lock_list.lock);
}

uint32_t fork_lock_process(void) { return load_relaxed(&fork_generation); }

void fork_lock_watch(struct fork_lock *lock)
{
    fork_lock_acquire(&fork_lock_list);
    if (lock->next == NULL) {
        lock->next = &fork_lock_list;
        lock->prev = fork_lock_list.prev;
        /* release: pairs with a signal handler that forks */
        store_release(&fork_lock_list.prev->next, lock);
        fork_lock_list.prev = lock;
    }
    fork_lock_release(&fork_lock_list);
}

void fork_lock_unwatch(struct fork_lock *lock)
{
    fork_lock_acquire(&fork_lock_list);
    lock->next->prev = lock->prev;
    lock->prev->next = lock->next;
    lock->next = lock->prev = NULL;
    fork_lock_release(&fork_lock_list);
}

/* The locks that fork takes are frozen before those of the page layer, because a thread may take
 * the latter while it holds one of the former. */
static void pages_before_fork(void)
{
    lock_freeze(&fork_lock_list.lock);
    for (struct fork_lock *entry = fork_lock_list.next; entry != &fork_lock_list;
         entry = entry->next)
        lock_freeze(&entry->lock);
    pages_freeze();
}

static void pages_after_fork(void)
{
    pages_thaw();
    fork_lock_after();
}

static void pages_after_fork_in_child(void)
{
    pages_thaw_in_child();
    shards_forget_threads();
    os_random_after_fork();
    if (on_fork)
        on_fork();
    store_relaxed(&fork_generation, fork_generation + 1);
    fork_lock_after();
}

/* Also when the program or the library is loaded. A first use of an allocator may come while
 * another thread forks, and libc would let it wait for the fork. */
__attribute__((constructor(101))) at_process_start void pages_start(void)
{
    static bool started; /* atomic */
    if (likely(load_relaxed(&started)) || exchange_acq_rel(&started, true))
        return;
    os_init();
    meta_start(arena_pages_for_metadata);
    (void)os_fork_register(pages_before_fork, pages_after_fork, pages_after_fork_in_child);
}

void pages_init(const struct slab_shape *shapes)
{
    page_map_init();
    pages_state.shapes = shapes;
    if (config_random_runs)
        page_shards[0].random = os_random();
    store_relaxed(&pages_state.interval_start_ms, os_now_ms());
}

/* How a try to take a run ends: it is taken; another thread has frozen the locks; or what is
 * lacking: admission by the hard limit, spare headers, a header for the run, or a free run. */
enum outcome { TAKEN, FROZEN, NOT_ADMITTED, NO_SPARES, NO_HEADER, NO_RUN };

struct want {
    size_t pages;
    size_t alignment_pages;
    size_t grow_pages; /* by which an arena grows if no free run fits; 0: none grows */
    unsigned side_units;
    bool no_memory;    /* result: the system refused to commit more */
    struct span *span; /* result: the run, if it is taken */
};

/* Takes a run and its header from a shard. Locking: shard's lock held. */
static enum outcome pages_try_locked(struct page_shard *shard, struct want *want, bool only_dirty)
{
    free_spans_settle(shard, NULL);
    if (!limits_admit_hard(want->pages))
        return NOT_ADMITTED;
    /* range_carve needs two headers, and the run may need one */
    struct span *spare = shard->headers[0];
    if (spare == NULL || spare->next == NULL || spare->next->next == NULL)
        return NO_SPARES;
    struct span *span = header_pop(shard, want->side_units);
    if (span == NULL)
        return NO_HEADER;
    size_t dirty_pages;
    span->base = range_carve(shard, want->pages, want->alignment_pages, only_dirty, &dirty_pages);
    if (span->base == NULL) {
        header_push(span);
        return NO_RUN;
    }
    store_relaxed(&span->dirty_pages, dirty_pages);
    want->span = span;
    return TAKEN;
}

/* Takes a run and its header from a shard; with `only_dirty` only a run that has memory. */
static enum outcome pages_try(struct page_shard *shard, struct want *want, bool only_dirty)
{
    if (!shard_acquire(shard))
        return FROZEN;
    enum outcome outcome = pages_try_locked(shard, want, only_dirty);
    shard_release(shard);
    if (outcome == TAKEN && want->span->dirty_pages < want->pages) {
        cap_note_taken(want->pages - want->span->dirty_pages);
        limits_enforce_soft(0);
    }
    return outcome;
}

/* Provides what the shard lacked. Returns: whether pages_try should try again. */
static bool pages_provide(struct page_shard *shard, struct want *want, enum outcome lacking)
{
    if (lacking == NOT_ADMITTED)
        return limits_purge_for_hard(want->pages);
    int error = 0;
    if (lacking == NO_RUN)
        error = want->grow_pages != 0 ? pages_grow(shard, want->grow_pages) : -ENOSPC;
    else if (!headers_refill(shard, lacking == NO_HEADER ? want->side_units : 0))
        error = -ENOBUFS;
    want->no_memory |= error == -ENOMEM;
    /* unmapped ranges may give the system what it lacked */
    return error == 0 || kept_mapping_purge(SIZE_MAX) != 0;
}

/* Takes a run that has memory from a shard that lends, the next one first.
 * Returns: TAKEN, FROZEN, or NO_RUN if there is none. */
static enum outcome pages_borrow(struct want *want)
{
    uint64_t others = rotate_right(load_relaxed(&pages_state.lending), own_shard) & ~(uint64_t)1;
    for (; unlikely(others != 0); others &= others - 1) {
        struct page_shard *other = &page_shards[(own_shard + lowest_bit(others)) % SHARDS_MAX];
        enum outcome outcome;
        do
            outcome = pages_try(other, want, true);
        while ((outcome == NO_SPARES || outcome == NO_HEADER) &&
               pages_provide(other, want, outcome));
        if (outcome == TAKEN || outcome == FROZEN)
            return outcome;
    }
    return NO_RUN;
}

/* Takes a run from a shard, or from one that lends. Refills the header lists of the shard and, by
 * `grow_pages`, its arenas as needed.
 * Returns: FROZEN only while the locks are frozen for a fork. */
static enum outcome pages_take_from(struct page_shard *shard, struct want *want)
{
    for (unsigned refused = 0;;) {
        size_t freezes = load_relaxed(&pages_state.freezes);
        enum outcome outcome = pages_try(shard, want, false);
        if (outcome == NO_RUN)
            outcome = pages_borrow(want);
        if (outcome == TAKEN || outcome == FROZEN)
            return outcome;
        refused += outcome == NOT_ADMITTED;
        bool more = refused <= LIMIT_TRIES && pages_provide(shard, want, outcome);
        /* A failure during a fork of another thread does not mean that memory is out. The page lock
         * is frozen before the shard's, so only a fork run needs none of them. */
        if (!more && lock_is_frozen(&pages_state.lock))
            return FROZEN;
        if (!more && load_relaxed(&pages_state.freezes) == freezes)
            return outcome;
    }
}

/* Takes a run from this thread's shard, else from any. */
static enum outcome pages_take_from_any(struct want *want)
{
    unsigned count = shard_count();
    enum outcome outcome = NO_RUN;
    want->no_memory = false;
    for (unsigned i = 0; i < count && outcome > NOT_ADMITTED; i++)
        outcome = pages_take_from(&page_shards[(own_shard + i) % count], want);
    return outcome;
}

/* Takes a run and its header for a span that the caller then owns: from this thread's shard, and
 * from others in the cases that state.h names. If there is none, the threads' caches give theirs,
 * as limits_purge_for_hard has made them do where the hard limit refuses. If the system still
 * commits no more, free runs make room: as many as are needed, then all, for others may have used
 * the room. While the locks are frozen for a fork, a fork run serves. */
static struct span *pages_take_run(struct want *want)
{
    enum outcome outcome = pages_take_from_any(want);
    if (unlikely(outcome > NOT_ADMITTED) && limits_give_kept())
        outcome = pages_take_from_any(want);
    for (unsigned tries = 0;
         unlikely(outcome > NOT_ADMITTED) && want->no_memory && tries < LIMIT_TRIES &&
         grow_make_room(want->grow_pages, tries != 0);
         tries++)
        outcome = pages_take_from_any(want);
    if (outcome == FROZEN)
        return fork_run_take(want->pages, want->alignment_pages << PAGE_SHIFT, want->side_units);
    return outcome == TAKEN ? want->span : NULL;
}

struct span *pages_take_slab(unsigned class)
{
    const struct slab_shape *shape = &pages_state.shapes[class];
    struct want want = {.pages = shape->pages,
                        .alignment_pages = shape->alignment_pages,
                        .grow_pages = (size_t)shape->pages + shape->alignment_pages - 1,
                        .side_units = shape->side_units};
    struct span *span = pages_take_run(&want);
    if (span == NULL)
        return NULL;
    /* A slab never shows what another owner of its pages left. If all free runs were slabs,
     * whose free blocks are zero, nothing is left, and a write since then is found when the
     * block is handed out. Otherwise the run is cleared by writing: the slab will touch most of
     * its pages, and faults cost more. */
    if (config_cleared_slabs && span->dirty_pages != 0 && load_relaxed(&pages_state.unclean))
        memset(span->base, 0, (size_t)shape->pages << PAGE_SHIFT);
    store_relaxed(&span->tag, (uint8_t)(SPAN_SLAB + class));
    page_map_set(span->base, shape->pages, span);
    return span;
}

static struct span *pages_take_large(size_t pages, size_t alignment_bytes, bool grows)
{
    if (pages > UINT32_MAX / 2)
        return NULL;
    size_t alignment_pages = larger_of(alignment_bytes >> PAGE_SHIFT, 1);
    struct want want = {.pages = pages,
                        .alignment_pages = alignment_pages,
                        .grow_pages = grows ? pages + alignment_pages - 1 : 0};
    struct span *span = pages_take_run(&want);
    if (span == NULL)
        return NULL;
    bool zero = span->dirty_pages == 0;
    store_relaxed(&span->dirty_pages, (size_t)0); /* shares its place with the flags of blocks */
    store_relaxed(&span->zero, zero);
    span->pages = (uint32_t)pages;
    store_relaxed(&span->tag, (uint8_t)SPAN_LARGE);
    page_map_set_page(span->base, span);
    return span;
}

struct span *pages_take(size_t pages, size_t alignment_bytes)
{
    return pages_take_large(pages, alignment_bytes, true);
}

struct span *pages_take_free(size_t pages, size_t alignment_bytes)
{
    return pages_take_large(pages, alignment_bytes, false);
}

/* Frees a run, and what is deferred in its shard. All of the run counts as written. Before a thread
 * waits for the lock, it defers the run: meanwhile another one may fork, and its child would not
 * know the run. */
static void pages_give_run(struct span *span, uint8_t was)
{
    if (unlikely(span_arena(span) == NULL)) { /* was taken while another thread forked */
        fork_run_give(span);
        return;
    }
    size_t pages = span->pages;
    span->mark = was;
    store_relaxed(&span->dirty_pages, pages);
    struct page_shard *shard = shard_of(span);
    if (!shard_try_acquire(shard)) {
        defer(span);
        span = NULL;
        if (!shard_acquire(shard))
            return;
    }
    free_spans_settle(shard, span);
    shard_release(shard);
    purge_excess(shard, pages);
}

void pages_give_slab(struct span *span, size_t swept_pages)
{
    const struct slab_shape *shape = &pages_state.shapes[slab_class(span)];
    page_map_set(span->base, shape->pages, NULL);
    span->pages = shape->pages;
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    if (unlikely(swept_pages != 0))
        fetch_sub_relaxed(&pages_state.swept_pages, swept_pages);
    pages_give_run(span, SPAN_WAS_SLAB);
    if (unlikely(swept_pages != 0))
        pages_heed_limits(); /* they count again, as dirty ones, without having been admitted */
}

/* Notes that free pages may not be zero. Written once, because each tick reads the line. */
static void pages_note_unclean(void)
{
    if (config_cleared_slabs && !load_relaxed(&pages_state.unclean))
        store_relaxed(&pages_state.unclean, true);
}

void pages_give(struct span *span)
{
    pages_note_unclean();
    page_map_set_page(span->base, NULL);
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    pages_give_run(span, 0);
}

bool pages_extend(struct span *span, size_t pages)
{
    size_t more = pages - span->pages;
    struct page_shard *shard = shard_of(span);
    struct arena *arena = span_arena(span);
    if (arena == NULL || !shard_acquire(shard))
        return false;
    char *end = span_end(span);
    struct span *right = span_free_neighbour(arena, end);
    if ((right == NULL || right->pages < more) && spans_merge(shard))
        right = span_free_neighbour(arena, end);
    bool fits = right && right->pages >= more && (right->pages == more || shard->headers[0]) &&
                limits_admit_hard(more);
    size_t dirty_pages = 0;
    if (fits) {
        span_withdraw(right);
        (void)span_cut(right, end, more);
        dirty_pages = right->dirty_pages;
        header_push(right);
        store_relaxed(&span->pages, (uint32_t)pages);
    }
    shard_release(shard);
    if (fits) {
        cap_note_taken(more - dirty_pages);
        limits_enforce_soft(0);
    }
    return fits;
}

bool pages_shrink(struct span *span, size_t pages)
{
    pages_note_unclean();
    struct page_shard *shard = shard_of(span);
    struct arena *arena = span_arena(span);
    if (arena == NULL || !shard_acquire(shard))
        return false;
    bool can = shard->headers[0] != NULL;
    size_t rest = span->pages - pages;
    if (can) {
        char *end = span->base + (pages << PAGE_SHIFT);
        bitmap_set(arena->dirty, arena_page(arena, end), rest);
        store_relaxed(&span->pages, (uint32_t)pages);
        range_release(arena, end, rest, rest);
    }
    shard_release(shard);
    purge_excess(shard, rest);
    return can;
}

/* How a page becomes zero: it is already, it is purged once more, or it is written. */
enum clearing { KEEP_PAGES, PURGE_PAGES, WRITE_PAGES };

static enum clearing pages_clearing_of(const struct arena *arena, size_t page)
{
    if (bitmap_has(arena->dirty, page))
        return WRITE_PAGES;
    return bitmap_has(arena->purged, page) ? PURGE_PAGES : KEEP_PAGES;
}

/* The number of pages from `start` on, at most `pages`, that become zero in the same way. A purged
 * page reads zero unless a write to a block that was freed before has brought it back. While
 * another thread forks, and outside the arenas, nothing is known. */
static size_t pages_alike(const struct span *span, const char *start, size_t pages,
                          enum clearing *way)
{
    *way = WRITE_PAGES;
    struct page_shard *shard = shard_of(span);
    struct arena *arena = span_arena(span);
    if (arena == NULL || !shard_acquire(shard))
        return pages;
    size_t first = arena_page(arena, start);
    *way = pages_clearing_of(arena, first);
    size_t count = 1;
    while (count < pages && pages_clearing_of(arena, first + count) == *way)
        count++;
    shard_release(shard);
    return count;
}

/* Purges pages again: those that are not resident stay so, which costs less than a write of all.
 * If the system refuses, all are written. */
static void pages_purge_again(char *start, size_t size_bytes)
{
    char *end = start + size_bytes;
    char *from = (char *)align_up((uintptr_t)start, os_page_size());
    char *to = (char *)align_down((uintptr_t)end, os_page_size());
    if (from >= to || os_purge(from, (size_t)(to - from)) != 0)
        from = to = end;
    memset(start, 0, (size_t)(from - start));
    memset(to, 0, (size_t)(end - to));
}

void pages_clear(struct span *span, size_t size_bytes)
{
    bool is_in_arena = load_relaxed(&span->tag) == SPAN_LARGE;
    if (span->zero && (!is_in_arena || load_relaxed(&pages_state.purged_pages) == 0))
        return;
    size_t pages = (size_bytes + PAGE_BYTES - 1) >> PAGE_SHIFT;
    for (size_t done = 0, count; done < pages; done += count) {
        char *start = span->base + (done << PAGE_SHIFT);
        enum clearing way;
        count = pages_alike(span, start, pages - done, &way);
        if (way == PURGE_PAGES)
            pages_purge_again(start, count << PAGE_SHIFT);
        else if (way == WRITE_PAGES)
            memset(start, 0, count << PAGE_SHIFT);
    }
}

seldom_called struct span *run_take(size_t size_bytes, size_t alignment_bytes)
{
    pages_start();
    size_t granule = os_page_size();
    if (size_bytes > PTRDIFF_MAX - granule)
        return NULL;
    size_t pages = align_up(size_bytes, granule) >> PAGE_SHIFT;
    struct span *span = pages_take(pages, larger_of(alignment_bytes, granule));
    if (span)
        store_relaxed(&span->tag, (uint8_t)SPAN_RUN);
    return span;
}

void run_give(struct span *span)
{
    mark_defined(span->base, run_bytes(span));
    pages_give(span);
}

/* A free descriptor is linked by a word behind it, so that it keeps its content. */
void *descriptor_take_from(struct descriptor_pool *list)
{
    pages_start();
    void *descriptor = tagged_pop(&list->head, list->descriptor_bytes);
    return descriptor ? descriptor
                      : meta_take(META_HOT, list->descriptor_bytes + sizeof(uintptr_t));
}

void descriptor_give_to(struct descriptor_pool *list, void *descriptor)
{
    tagged_push(&list->head, descriptor, list->descriptor_bytes);
}
