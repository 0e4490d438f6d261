/* Private heaps, their blocks, and the registry of all of them: private_heap.h. */
#include "heap/private_heap.h"

#include "base/check.h"
#include "heap/harden.h"
#include "heap/hooks.h"
#include "heap/large.h"
#include "heap/lifecycle.h"
#include "heap/misuse_report.h"
#include "heap/refill.h"
#include "heap/remote.h"
#include "heap/slab_lists.h"
#include "heap/thread_heap.h"
#include "os/memory.h"

#include <string.h>

/* A kept run of this thread, or a new span. A kept run that is longer than the block needs is put
 * back, because the limit would count all of it: the limit must not depend on the cache. */
static struct span *private_large_take_span(size_t size_bytes, size_t alignment_bytes)
{
    struct span *span = large_allocate_kept(size_bytes, alignment_bytes);
    if (span && span->pages > large_pages(larger_of(size_bytes, 1))) {
        (void)large_free(span, span->base);
        span = NULL;
    }
    return span ? span : large_allocate(size_bytes, alignment_bytes);
}

static void *private_large_alloc(struct private_heap *private_heap, size_t size_bytes,
                                 size_t alignment_bytes)
{
    if (size_bytes > PTRDIFF_MAX)
        return NULL;
    size_t most_pages = large_pages(large_least(size_bytes, alignment_bytes));
    size_t counted = align_up(most_pages << PAGE_SHIFT, os_page_size());
    if (!private_heap_reserve(private_heap, counted))
        return NULL;
    struct large_note *note = private_heap_take_note(private_heap);
    struct span *span = note ? private_large_take_span(size_bytes, alignment_bytes) : NULL;
    if (span == NULL) {
        if (note)
            private_heap_spare_note(private_heap, note);
        private_heap_unreserve(private_heap, counted);
        return NULL;
    }
    private_heap_unreserve(private_heap, counted - ((size_t)span->pages << PAGE_SHIFT));
    private_heap_link_note(private_heap, note, span);
    private_heap_note_peak(private_heap);
    return span->base;
}

enum { SERIAL_MAX = 63 };
static_check(__alignof__(struct private_heap) > SERIAL_MAX, "a handle has room for the serial");
static_check(offsetof(struct private_heap, heap) == 0, "a heap's address is its private heap's");

/* All heaps ever made, and a queue of those that wait to be used again. Fork holds the lock. */
static struct {
    struct fork_lock lock;
    bool watched;                       /* atomic: fork knows the lock */
    struct private_heap *all;           /* atomic, lock to write: linked by next_private_heap */
    struct private_heap *unused, *last; /* lock: linked by next_unused, the longest waiting first */
} cache_aligned registry;

void *private_heap_handle(const struct private_heap *private_heap)
{
    return (void *)((uintptr_t)private_heap | load_relaxed(&private_heap->serial));
}

struct private_heap *private_heap_of_handle(const void *handle)
{
    struct private_heap *private_heap =
        (struct private_heap *)align_down((uintptr_t)handle, SERIAL_MAX + 1);
    uint32_t serial = (uint32_t)((uintptr_t)handle & SERIAL_MAX);
    if (unlikely(private_heap == NULL || load_relaxed(&private_heap->serial) != serial ||
                 load_relaxed(&private_heap->heap.state) != HEAP_PRIVATE))
        die("heap %p: used after cairn_private_heap_delete", handle);
    return private_heap;
}

bool private_heap_checks(struct private_heap *private_heap, const void *pointer,
                         const char *operation)
{
    struct span *span = checked_span(pointer, operation);
    if (unlikely(span == NULL))
        return false;
    if (likely(span_private_heap(span) == private_heap))
        return true;
    report_misuse(operation, "%s of %p, which is not a block of heap %p", operation, pointer,
                  private_heap_handle(private_heap));
    return false;
}

/* Reserves and takes a slab; NULL when out of memory or above the limit. Locking: none held. */
static struct span *private_heap_take_slab(struct private_heap *private_heap, unsigned class)
{
    size_t bytes = private_heap_slab_bytes(class);
    if (!private_heap_reserve(private_heap, bytes))
        return NULL;
    pages_tick();
    struct span *slab = slab_take(class);
    if (slab == NULL)
        private_heap_unreserve(private_heap, bytes);
    else
        private_heap_note_peak(private_heap);
    return slab;
}

/* Takes a block of the heap's slabs, after adding `fresh` if it is not NULL.
 * Returns: NULL when the class has no slab with room. */
inline_always void *private_heap_take_block(struct private_heap *private_heap, unsigned class,
                                            struct span *fresh)
{
    private_heap_lock(private_heap);
    if (fresh) {
        private_heap_list_slab(private_heap, fresh);
        slab_open(&private_heap->heap, fresh);
        bin_append(&private_heap->heap.bins[class], fresh);
    }
    void *block = heap_take(&private_heap->heap, class);
    private_heap_unlock(private_heap);
    return block;
}

/* Adds slabs until one has a block: other threads may take all blocks of a slab that was added. */
void *private_heap_alloc(struct private_heap *private_heap, size_t size_bytes,
                         size_t alignment_bytes)
{
    unsigned class = class_of_request(size_bytes, alignment_bytes);
    if (class == CLASS_COUNT)
        return private_large_alloc(private_heap, size_bytes, alignment_bytes);
    void *block;
    struct span *slab = NULL;
    while ((block = private_heap_take_block(private_heap, class, slab)) == NULL)
        if ((slab = private_heap_take_slab(private_heap, class)) == NULL)
            return NULL;
    return config_hardened ? harden_hand_out(block, size_bytes) : block;
}

void *private_heap_alloc_zeroed(struct private_heap *private_heap, size_t size_bytes)
{
    void *block = private_heap_alloc(private_heap, size_bytes, 1);
    bool is_large = class_of_request(size_bytes, 1) == CLASS_COUNT;
    bool is_kept = is_large && size_bytes <= RUN_CACHE_SHORT_PAGES * PAGE_BYTES; /* perhaps */
    if (block && is_large && (!is_kept || page_map_find(block)->zero))
        pages_clear(page_map_find(block), size_bytes);
    else if (block && (is_large || !config_zero_freed))
        memset(block, 0, size_bytes);
    return block;
}

/* Calls `act` for each heap in use, with its lock held. */
static void private_heaps_each(void (*act)(struct private_heap *private_heap))
{
    /* Pairs with private_heap_make. */
    for (struct private_heap *private_heap = load_acquire(&registry.all); private_heap;
         private_heap = private_heap->next_private_heap) {
        /* Pairs with private_heap_new. */
        if (load_acquire(&private_heap->heap.state) != HEAP_PRIVATE)
            continue;
        fork_lock_acquire(&private_heap->lock);
        if (load_relaxed(&private_heap->heap.state) == HEAP_PRIVATE)
            act(private_heap);
        private_heap_unlock(private_heap);
    }
}

static void private_heap_trim_held(struct private_heap *private_heap)
{
    heap_trim(&private_heap->heap);
}

void private_heaps_trim(void) { private_heaps_each(private_heap_trim_held); }

static struct private_heap *private_heap_take_unused(void)
{
    fork_lock_acquire(&registry.lock);
    struct private_heap *private_heap = registry.unused;
    if (private_heap)
        registry.unused = private_heap->next_unused;
    fork_lock_release(&registry.lock);
    return private_heap;
}

static void private_heap_put_unused(struct private_heap *private_heap)
{
    fork_lock_acquire(&registry.lock);
    private_heap->next_unused = NULL;
    if (registry.unused)
        registry.last->next_unused = private_heap;
    else
        registry.unused = private_heap;
    registry.last = private_heap;
    fork_lock_release(&registry.lock);
}

/* In the child of fork: makes each heap one of this process and empties its mailboxes, and counts
 * held_bytes anew. A heap that another thread of the parent was ending stays unused for ever,
 * because its lists are inconsistent. The heaps are enlisted by one store, because a signal handler
 * may fork here. */
static void private_heap_after_fork(void)
{
    struct heap *first = load_relaxed(&all_heaps);
    for (struct private_heap *private_heap = registry.all; private_heap;
         private_heap = private_heap->next_private_heap) {
        struct heap *heap = &private_heap->heap;
        heap->generation = heap_generation;
        heap_lose_mail(heap);
        bool in_use = load_relaxed(&heap->state) == HEAP_PRIVATE;
        heap->look_after_fork = heap->look_after_fork && in_use;
        if (config_hardened)
            harden_seed(heap);
        if (in_use && !pages_forked_alone()) /* else a call of this thread continues */
            store_relaxed(&private_heap->held_bytes,
                          private_heap->slab_bytes + private_heap_recount_large(private_heap));
        heap->next = first;
        first = heap;
    }
    store_release(&all_heaps, first); /* pairs with the acquiring loads of all_heaps */
}

/* Makes fork hold the registry's lock. Threads that make their first heaps at the same time all do
 * this: none may return, and fork, before it is done. */
static void private_heap_watch_registry(void)
{
    if (likely(load_acquire(&registry.watched))) /* pairs with the release below */
        return;
    fork_lock_watch(&registry.lock);
    heaps_on_fork(private_heap_after_fork);
    store_release(&registry.watched, true);
}

/* Makes a heap that is not in use. Returns: NULL when out of memory. */
static struct private_heap *private_heap_make(void)
{
    struct private_heap *private_heap = meta_take(META_HOT, sizeof *private_heap);
    if (private_heap == NULL)
        return NULL;
    fork_lock_watch(&private_heap->lock);
    heap_set_up_classes(&private_heap->heap);
    private_heap->heap.private_heap = private_heap;
    private_heap->heap.generation = heap_generation;
    store_relaxed(&private_heap->heap.state, (uint32_t)HEAP_UNUSED);
    fork_lock_acquire(&registry.lock);
    heap_enlist(&private_heap->heap); /* first: the child of a fork enlists those of the registry */
    private_heap->next_private_heap = registry.all;
    store_release(&registry.all, private_heap); /* pairs with a signal handler that forks */
    while (private_heap->heap.generation != load_relaxed(&heap_generation))
        private_heap->heap.generation = heap_generation; /* it forked before the store */
    fork_lock_release(&registry.lock);
    return private_heap;
}

struct private_heap *private_heap_new(const cairn_private_heap_options *options)
{
    heap_start();
    private_heap_watch_registry();
    struct private_heap *private_heap = private_heap_take_unused();
    if (private_heap == NULL && (private_heap = private_heap_make()) == NULL)
        return NULL;
    /* No lock is held over harden_seed, which makes a system call. The heap is not in use, so no
     * other thread reads the seed. */
    if (config_hardened)
        harden_seed(&private_heap->heap);
    fork_lock_acquire(&private_heap->lock);
    private_heap->options = *options;
    private_heap->made_in = heap_generation;
    private_heap_set_limit(private_heap, options->limit_bytes);
    store_relaxed(&private_heap->peak_bytes, (size_t)0);
    store_relaxed(&private_heap->refusals, (size_t)0);
    store_relaxed(&private_heap->serial, load_relaxed(&private_heap->serial) % SERIAL_MAX + 1);
    /* Pairs with private_heaps_each. */
    store_release(&private_heap->heap.state, (uint32_t)HEAP_PRIVATE);
    fork_lock_release(&private_heap->lock);
    return private_heap;
}

/* Checks and clears all blocks in use of a slab, in hardened builds, as their frees would. In a
 * child of fork the blocks are not checked: another thread of the parent may have been allocating
 * or freeing one. */
static void private_heap_take_back_blocks(const struct private_heap *private_heap,
                                          struct span *slab)
{
    unsigned limit = (unsigned)load_relaxed(&slab->fresh_slot);
    bool whole = private_heap->made_in == heap_generation;
    for (unsigned slot = 1; slot < limit; slot++)
        if (load_relaxed(slab_link(slab, slot)) == LINK_LIVE) {
            if (whole)
                (void)harden_size(slab, slab_block(slab, slot)); /* checks the canaries */
            harden_wipe(slab, slot);
        }
}

/* Retires a slab with all its blocks. Waits for a free that is late in posting it, but valid. */
static void private_heap_end_slab(struct private_heap *private_heap, struct span *slab)
{
    while (!remote_move(&private_heap->heap, NULL, slab)) {
        heap_forget_mail(&private_heap->heap);
        pause_processor();
    }
    if (config_hardened)
        private_heap_take_back_blocks(private_heap, slab);
    slab_retire(slab);
}

void private_heap_end(struct private_heap *private_heap)
{
    private_heap_lock(private_heap);
    store_relaxed(&private_heap->heap.state, (uint32_t)HEAP_UNUSED);
    struct span *slab = private_heap->slabs;
    private_heap->slabs = NULL;
    fork_lock_release(&private_heap->lock);

    heap_forget_mail(&private_heap->heap);
    for (struct span *next; slab; slab = next) {
        next = private_heap_next_slab(slab);
        private_heap_end_slab(private_heap, slab);
    }
    for (struct large_note *note = private_heap->notes; note; note = note->next) {
        struct span *span = load_relaxed(&note->span);
        const char *base = span ? span->base : NULL; /* another thread may free the block */
        if (private_heap_noted(private_heap, note))
            (void)large_free(span, base);
    }

    memset((void *)&private_heap->heap, 0, offsetof(struct heap, next));
    heap_set_up_classes(&private_heap->heap);
    private_heap->slab_bytes = 0;
    store_relaxed(&private_heap->held_bytes, (size_t)0);
    private_heap_put_unused(private_heap);
}

void private_heap_read_stats(struct private_heap *private_heap, cairn_private_heap_stats *stats)
{
    *stats = (cairn_private_heap_stats){0};
    private_heap_lock(private_heap);
    heap_drain(&private_heap->heap);
    for (struct span *slab = private_heap->slabs; slab; slab = private_heap_next_slab(slab)) {
        if (slab_heap(slab) == NULL)
            continue; /* retired just now */
        struct slab_count count = heap_count_slab(slab, slab_class(slab));
        stats->live_blocks += count.live_blocks;
        stats->live_bytes += count.live_bytes;
    }
    private_heap_unlock(private_heap);
    /* Pairs with private_heap_take_note. */
    for (struct large_note *note = load_acquire(&private_heap->notes); note; note = note->next) {
        if (load_relaxed(&note->span) == NULL)
            continue;
        stats->large_blocks++;
        stats->large_bytes += load_relaxed(&note->bytes); /* the span may have been given back */
    }
    stats->live_blocks += stats->large_blocks;
    stats->live_bytes += stats->large_bytes;
    stats->held_bytes = load_relaxed(&private_heap->held_bytes);
    stats->peak_bytes = load_relaxed(&private_heap->peak_bytes);
    size_t limit = load_relaxed(&private_heap->limit_bytes);
    stats->limit_bytes = limit == SIZE_MAX ? 0 : limit;
    stats->refusals = load_relaxed(&private_heap->refusals);
}

void private_heaps_verify(void)
{
    if (config_debug)
        private_heaps_each(private_heap_verify);
}
