/* Taking and giving runs of pages, the start of the layer, and fork: see page.h.
 *
 * While the lock is frozen for a fork, other threads defer the runs and headers that they give.
 * The child forgets all of these. Runs that were deferred before the freeze are processed by it,
 * and runs that other threads were purging are free in the child.
 */
#include "base/alone.h"
#include "base/atomic.h"
#include "base/bits.h"
#include "base/host.h"
#include "base/memory_marks.h"
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

#include <string.h>

static void (*on_fork)(void); /* const after the heap's start */
/* page lock: whether the process had one thread at the current or last fork */
static bool was_alone;

void pages_on_fork(void (*in_child)(void)) { on_fork = in_child; }

void pages_freeze(void)
{
    lock_freeze(&pages_state.lock);
    store_relaxed(&pages_state.freezes, pages_state.freezes + 1);
    was_alone = process_is_single_threaded();
    if (!lock_is_frozen_whole(&pages_state.lock))
        return; /* a signal handler forks, and has interrupted a holder of the lock */
    headers_lend();
    struct span *unmap = free_spans_settle(NULL);
    for (struct span *next; unmap; unmap = next) {
        next = unmap->next;
        defer(unmap);
    }
}

void pages_thaw(void)
{
    if (lock_is_frozen_whole(&pages_state.lock))
        headers_take_back(true);
    lock_thaw(&pages_state.lock);
}

void pages_thaw_in_child(void)
{
    if (lock_is_frozen_whole(&pages_state.lock)) {
        store_relaxed(&pages_state.deferred, (struct span *)NULL);
        spans_end_others_purges();
        meta_forget_chunks();
        headers_take_back(was_alone);
    }
    lock_thaw(&pages_state.lock);
}

bool pages_forked_alone(void) { return was_alone; }

static void pages_after_fork_in_child(void)
{
    pages_thaw_in_child();
    os_random_after_fork();
    if (on_fork)
        on_fork();
}

void pages_start(void)
{
    static bool started; /* atomic */
    if (likely(load_relaxed(&started)) || exchange_acq_rel(&started, true))
        return;
    os_init();
    meta_start(arena_pages_for_metadata);
    (void)os_fork_register(pages_freeze, pages_thaw, pages_after_fork_in_child);
}

void pages_init(const struct slab_shape *shapes)
{
    page_map_init();
    pages_state.shapes = shapes;
    if (config_random_runs)
        pages_state.random = os_random();
    store_relaxed(&pages_state.interval_start_ms, os_now_ms());
}

/* Makes headers for a list that ran empty. The headers are deferred, and the next holder of the
 * lock puts them into the list.
 * Returns: false when out of memory. */
static bool pages_refill_headers(unsigned side_units, unsigned count)
{
    for (; count > 0; count--) {
        struct span *span = header_make(side_units);
        if (span == NULL)
            return false;
        span->pages = 0;
        defer(span);
    }
    return true;
}

/* The longest run that may purge others for a new peak: as long as any slab. Longer runs often
 * change their lengths, and the next one would need what was purged for one of them. */
enum { SHORT_PAGES = 64 };

enum outcome { TAKEN, FROZEN, EXHAUSTED };

/* Provides what pages_take_run lacked: admission by the hard limit, spare headers, a header, or
 * free pages. If `grow_pages` is 0, no arena grows.
 * Returns: whether pages_take_run should try again. */
static bool pages_provide(bool admitted, bool spares, bool has_header, unsigned side_units,
                          size_t pages, size_t grow_pages)
{
    if (!admitted)
        return limits_purge_for_hard(pages);
    bool provided = !spares      ? pages_refill_headers(0, 8)
                    : has_header ? grow_pages != 0 && pages_grow(grow_pages)
                                 : pages_refill_headers(side_units, 1);
    /* unmapped ranges may give the system what it lacked */
    return provided || kept_mapping_purge(SIZE_MAX) != 0;
}

/* Takes a run and its header for a span that the caller then owns. Refills the header lists and, by
 * `grow_pages`, the arenas as needed.
 * Returns: TAKEN, FROZEN while the lock is frozen for a fork, or EXHAUSTED. */
static enum outcome pages_take_run(size_t pages, size_t alignment_pages, unsigned side_units,
                                   size_t grow_pages, struct span **header)
{
    for (unsigned refused = 0;;) {
        if (!lock_acquire(&pages_state.lock))
            return FROZEN;
        size_t freezes = pages_state.freezes;
        struct span *unmap = free_spans_settle(NULL);
        struct span *spare = pages_state.headers[0];
        /* range_carve needs two headers, and the run may need one */
        bool spares = spare && spare->next && spare->next->next;
        bool admitted = limits_admit_hard(pages);
        *header = spares && admitted ? header_pop(side_units) : NULL;
        size_t dirty_pages = 0;
        size_t free_pages = pages_state.dirty_pages;
        char *run = *header ? range_carve(pages, alignment_pages, &dirty_pages) : NULL;
        if (run) {
            (*header)->base = run;
            store_relaxed(&(*header)->dirty_pages, dirty_pages);
        } else if (*header) {
            header_push(*header);
        }
        lock_release(&pages_state.lock);
        if (unlikely(unmap != NULL))
            fork_run_give(unmap);
        if (run && dirty_pages != 0)
            cap_note_again(dirty_pages, free_pages);
        if (run && dirty_pages < pages) {
            cap_note_taken(pages - dirty_pages);
            limits_enforce_peak(pages <= SHORT_PAGES);
        }
        if (run)
            return TAKEN;
        refused += !admitted;
        bool more = refused <= LIMIT_TRIES &&
                    pages_provide(admitted, spares, *header != NULL, side_units, pages, grow_pages);
        /* A failure during a fork of another thread does not mean that memory is out. */
        if (!more && !lock_is_frozen(&pages_state.lock) &&
            load_relaxed(&pages_state.freezes) == freezes)
            return EXHAUSTED;
    }
}

struct span *pages_take_slab(unsigned class)
{
    const struct slab_shape *shape = &pages_state.shapes[class];
    struct span *span;
    size_t alignment = shape->alignment_pages;
    enum outcome outcome = pages_take_run(shape->pages, alignment, shape->side_units,
                                          shape->pages + alignment - 1, &span);
    if (outcome == FROZEN)
        span = fork_run_take(shape->pages, alignment << PAGE_SHIFT, shape->side_units,
                             (size_t)shape->pages << PAGE_SHIFT);
    if (outcome == EXHAUSTED || span == NULL)
        return NULL;
    /* A slab never shows what another owner of its pages left. If all free runs were slabs,
     * whose free blocks are zero, nothing is left, and a write since then is found when the
     * block is handed out. Otherwise the run is cleared by writing: the slab will touch most of
     * its pages, and faults cost more. */
    if (config_cleared_slabs && span->dirty_pages != 0 && load_relaxed(&pages_state.unclean))
        memset(span->base, 0, (size_t)shape->pages << PAGE_SHIFT);
    store_relaxed(&span->tag, (uint8_t)(SPAN_SLAB + class));
    page_map_set(span->base, shape->pages, span);
    if (outcome == FROZEN)
        fork_run_add(span);
    return span;
}

static struct span *pages_take_large(size_t pages, size_t alignment_bytes, bool grows)
{
    if (pages > UINT32_MAX / 2)
        return NULL;
    struct span *span;
    size_t alignment_pages = larger_of(alignment_bytes >> PAGE_SHIFT, 1);
    enum outcome outcome =
        pages_take_run(pages, alignment_pages, 0, grows ? pages + alignment_pages - 1 : 0, &span);
    if (outcome == FROZEN)
        span = fork_run_take(pages, alignment_bytes, 0, pages << PAGE_SHIFT);
    if (outcome == EXHAUSTED || span == NULL)
        return NULL;
    store_relaxed(&span->zero, span->dirty_pages == 0);
    span->grew = false;
    span->pages = (uint32_t)pages;
    store_relaxed(&span->tag, (uint8_t)SPAN_LARGE);
    page_map_set_page(span->base, span);
    if (outcome == FROZEN)
        fork_run_add(span);
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

/* Unmaps a fork run at once if the lock is frozen, because the fork may take long.
 * Returns: whether the run was a fork run and the lock frozen; otherwise nothing has changed. */
static bool pages_give_fork_run(struct span *span, uint8_t was)
{
    if (likely(!lock_is_frozen(&pages_state.lock)) || arena_of(span->base))
        return false;
    if (was == SPAN_WAS_SLAB)
        fetch_sub_relaxed(&pages_state.swept_pages, (size_t)span->swept_pages);
    span->next = NULL;
    fork_run_give(span);
    return true;
}

/* Frees the run `given`, if it is not NULL, and what is deferred. With other threads the run is
 * deferred first: while this thread waits for the lock, another one may fork, and its child would
 * not know the run.
 * Returns: false while the lock is frozen for a fork. */
static bool pages_settle(struct span *given)
{
    if (given && unlikely(!process_is_single_threaded())) {
        defer(given);
        given = NULL;
    }
    if (!lock_acquire(&pages_state.lock)) {
        if (given) /* this thread forks, and a signal handler of it frees */
            defer(given);
        return false;
    }
    struct span *unmap = free_spans_settle(given);
    lock_release(&pages_state.lock);
    if (unlikely(unmap != NULL))
        fork_run_give(unmap);
    return true;
}

/* Frees a run. All of it counts as written. */
static void pages_give_run(struct span *span, uint8_t was)
{
    if (pages_give_fork_run(span, was))
        return;
    size_t pages = span->pages;
    span->mark = was;
    store_relaxed(&span->dirty_pages, pages);
    if (pages_settle(span))
        purge_excess(pages);
}

void pages_give_slab(struct span *span) { pages_give_swept_slab(span, 0); }

void pages_give_swept_slab(struct span *span, size_t swept_pages)
{
    const struct slab_shape *shape = &pages_state.shapes[slab_class(span)];
    page_map_set(span->base, shape->pages, NULL);
    span->pages = shape->pages;
    span->swept_pages = swept_pages;
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    pages_give_run(span, SPAN_WAS_SLAB);
    if (unlikely(swept_pages != 0))
        /* the swept pages count again, as dirty ones, without having been admitted */
        pages_heed_limits();
}

void pages_give(struct span *span)
{
    if (config_cleared_slabs)
        store_relaxed(&pages_state.unclean, true);
    page_map_set_page(span->base, NULL);
    store_relaxed(&span->tag, (uint8_t)SPAN_MOVING);
    pages_give_run(span, 0);
}

/* A growth that no thread has used may be deferred. */
bool pages_trim(size_t keep_bytes)
{
    (void)pages_settle(NULL);
    return purge_trim(keep_bytes);
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
                limits_admit_hard(more);
    if (fits) {
        span_withdraw(right);
        size_t dirty_pages = bitmap_count(arena->dirty, arena_page(arena, end), more);
        if (right->pages > more)
            range_release(arena, end + (more << PAGE_SHIFT), right->pages - more,
                          right->dirty_pages - dirty_pages);
        header_push(right);
        free_spans_note_dirty_low();
        store_relaxed(&span->pages, (uint32_t)pages);
    }
    lock_release(&pages_state.lock);
    if (fits)
        limits_enforce_peak(false);
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
    size_t rest = span->pages - pages;
    if (can) {
        char *end = span->base + (pages << PAGE_SHIFT);
        bitmap_set(arena->dirty, arena_page(arena, end), rest);
        store_relaxed(&span->pages, (uint32_t)pages);
        range_release(arena, end, rest, rest);
    }
    lock_release(&pages_state.lock);
    purge_excess(rest);
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

/* The locks that fork takes, and their list.
 *
 * Invariant: the list is consistent whenever its own lock, `fork_lock_list`, is free. The fork
 * handlers take that lock first and then each lock of the list. No other thread holds two of them,
 * so the order does not matter. The handlers are registered by the first fork_lock_watch and stay.
 */
enum { FORK_LOCK_FREE, FORK_LOCK_HELD, FORK_LOCK_WAITED };
enum { FORK_LOCK_SPINS = 100 };

static struct fork_lock fork_lock_list = {.next = &fork_lock_list, .prev = &fork_lock_list};
static bool fork_handlers_registered; /* lock: fork_lock_list; with libc */
/* The fork handlers of this thread that have begun and not ended. Forks nest, because a signal
 * handler may fork while this thread is between its handlers. The outermost fork takes and releases
 * the locks; in the child of an inner fork the remaining handlers of the outer one still follow. */
static thread_local_word uint16_t forks_begun;

static uint32_t fork_generation; /* atomic: number of forks from the first process to this one */

void fork_lock_acquire(struct fork_lock *lock)
{
    uint32_t seen = FORK_LOCK_FREE;
    for (int spins = 0; spins < FORK_LOCK_SPINS; spins++, seen = FORK_LOCK_FREE) {
        /* acquire: pairs with fork_lock_release */
        if (compare_swap_acq_rel(&lock->state, &seen, (uint32_t)FORK_LOCK_HELD))
            return;
        pause_processor();
    }
    /* acquire: pairs with fork_lock_release */
    while (exchange_acq_rel(&lock->state, (uint32_t)FORK_LOCK_WAITED) != FORK_LOCK_FREE)
        host_wait(&lock->state, FORK_LOCK_WAITED);
}

void fork_lock_release(struct fork_lock *lock)
{
    /* release: pairs with the next holder's acquire */
    if (exchange_acq_rel(&lock->state, (uint32_t)FORK_LOCK_FREE) == FORK_LOCK_WAITED)
        host_wake(&lock->state, 1);
}

static void fork_lock_before(void)
{
    if (forks_begun++ != 0)
        return;
    fork_lock_acquire(&fork_lock_list);
    for (struct fork_lock *entry = fork_lock_list.next; entry != &fork_lock_list;
         entry = entry->next)
        fork_lock_acquire(entry);
}

static void fork_lock_in_parent(void)
{
    if (--forks_begun != 0)
        return;
    for (struct fork_lock *entry = fork_lock_list.next; entry != &fork_lock_list;
         entry = entry->next)
        fork_lock_release(entry);
    fork_lock_release(&fork_lock_list);
}

/* Releases the locks without a wake-up: all waiting threads are in the parent. */
static void fork_lock_in_child(void)
{
    store_relaxed(&fork_generation, fork_generation + 1);
    if (--forks_begun != 0)
        return;
    for (struct fork_lock *entry = fork_lock_list.next; entry != &fork_lock_list;
         entry = entry->next)
        store_release(&entry->state, (uint32_t)FORK_LOCK_FREE);
    store_release(&fork_lock_list.state, (uint32_t)FORK_LOCK_FREE);
}

uint32_t fork_lock_process(void) { return load_relaxed(&fork_generation); }

int fork_lock_watch(struct fork_lock *lock)
{
    fork_lock_acquire(&fork_lock_list);
    int error = fork_handlers_registered
                    ? 0
                    : os_fork_register(fork_lock_before, fork_lock_in_parent, fork_lock_in_child);
    fork_handlers_registered = error == 0;
    if (error == 0 && lock->next == NULL) {
        lock->next = &fork_lock_list;
        lock->prev = fork_lock_list.prev;
        fork_lock_list.prev->next = lock;
        fork_lock_list.prev = lock;
    }
    fork_lock_release(&fork_lock_list);
    return error;
}

void fork_lock_unwatch(struct fork_lock *lock)
{
    fork_lock_acquire(&fork_lock_list);
    lock->next->prev = lock->prev;
    lock->prev->next = lock->next;
    lock->next = lock->prev = NULL;
    fork_lock_release(&fork_lock_list);
}

/* Runs of pages and descriptors for the allocators other than the heap: see page.h.
 *
 * A free descriptor is linked by a word behind it, so that it keeps its content. The head of the
 * list is tagged: see state.h.
 */

struct span *run_take(size_t size_bytes, size_t alignment_bytes)
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

/* The word behind a descriptor, which has the address of the next free one. */
static uintptr_t *descriptor_link_of(const struct descriptor_pool *list, uintptr_t descriptor)
{
    return (uintptr_t *)(descriptor + list->descriptor_bytes);
}

void *descriptor_take_from(struct descriptor_pool *list)
{
    pages_start();
    uintptr_t head = load_acquire(&list->head); /* acquire: pairs with descriptor_give_to */
    while (tagged_address(head) != 0) {
        uintptr_t descriptor = tagged_address(head);
        /* Another thread may have taken it; then the exchange fails. Descriptors stay mapped, so
         * reading it is safe. */
        uintptr_t next = load_relaxed(descriptor_link_of(list, descriptor));
        if (compare_swap_acq_rel(&list->head, &head, next | tagged_next_tag(head)))
            return (void *)descriptor;
    }
    return meta_take(META_HOT, list->descriptor_bytes + sizeof(uintptr_t));
}

void descriptor_give_to(struct descriptor_pool *list, void *descriptor)
{
    uintptr_t given = (uintptr_t)descriptor;
    uintptr_t head = load_relaxed(&list->head);
    do {
        store_relaxed(descriptor_link_of(list, given), tagged_address(head));
        /* release: pairs with descriptor_take_from */
    } while (!compare_swap_acq_rel(&list->head, &head, given | tagged_next_tag(head)));
}
