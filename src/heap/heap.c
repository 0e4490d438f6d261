/* The general heap as a whole: giving memory back, statistics and checks (heap.h), and the heap
 * layer's part of the description that external readers use (base/layout.h). Statistics walk over
 * all spans while other threads continue; they have no state. */
#include "heap/heap.h"

#include "base/alone.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/layout.h"
#include "heap/borrow.h"
#include "heap/lifecycle.h"
#include "heap/refill.h"
#include "heap/sweep.h"
#include "heap/thread_heap.h"

void heap_idle(void)
{
    if (thread_heap != &no_heap)
        heap_trim(thread_heap);
    pages_tick();
}

void heap_housekeep(void)
{
    pages_tick();
    while (pages_purge_due() || heaps_visit(false)) /* no caller waits for this thread */
        continue;
}

bool heap_release(size_t keep_bytes)
{
    if (thread_heap != &no_heap)
        heap_trim(thread_heap);
    private_heaps_trim();
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        borrow_return(heap);
    (void)heaps_empty_run_caches();
    bool swept = sweep_slabs();
    return pages_trim(keep_bytes) || swept;
}

/* The counts of a walk over the spans: sums, and rows as far as there is room for them. */
struct counts {
    struct heap_stats stats;
    cairn_heap_class_stats *classes;
    cairn_heap_thread_stats *threads;
    size_t class_rows, thread_rows;
    size_t last; /* the row found last: slabs of one heap often follow one another */
};

static cairn_heap_thread_stats *heap_row_of(struct counts *counts, const struct heap *heap)
{
    for (size_t i = 0; i < counts->thread_rows; i++, counts->last++) {
        counts->last %= counts->thread_rows;
        if (counts->threads[counts->last].heap == heap)
            return &counts->threads[counts->last];
    }
    return NULL;
}

static void heap_count_span(struct span *span, char *start, void *context)
{
    (void)start;
    struct counts *counts = context;
    struct heap_stats *stats = &counts->stats;
    unsigned tag = load_relaxed(&span->tag);
    if (tag < SPAN_SLAB) {
        stats->live_blocks++;
        stats->live_bytes += (size_t)span->pages << PAGE_SHIFT;
        stats->large_blocks++;
        stats->large_bytes += (size_t)span->pages << PAGE_SHIFT;
        return;
    }
    struct slab_count slab = heap_count_slab(span, tag - SPAN_SLAB);
    stats->live_blocks += slab.live_blocks;
    stats->live_bytes += slab.live_bytes;
    stats->slab_bytes += slab.slab_bytes;
    if (tag - SPAN_SLAB < counts->class_rows) {
        cairn_heap_class_stats *row = &counts->classes[tag - SPAN_SLAB];
        row->live_blocks += slab.live_blocks;
        row->free_blocks += slab.slots - smaller_of(slab.slots, slab.live_blocks);
        row->slabs++;
        row->slab_bytes += slab.slab_bytes;
    }
    cairn_heap_thread_stats *row = heap_row_of(counts, slab_heap(span));
    if (row) {
        row->live_blocks += slab.live_blocks;
        row->live_bytes += slab.live_bytes;
        row->slabs++;
        row->slab_bytes += slab.slab_bytes;
    }
}

void heap_read_stats(struct heap_stats *stats)
{
    struct counts counts = {.thread_rows = 0};
    pages_each(heap_count_span, &counts);
    *stats = counts.stats;
    pages_read_stats(&stats->pages);
    for (const struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        stats->heaps += heap->private_heap == NULL;
    if (heap_is_guarding()) {
        heap_hooks.guard->count(&stats->guarded_blocks, &stats->guarded_bytes);
        stats->live_blocks += stats->guarded_blocks;
        stats->live_bytes += stats->guarded_bytes;
    }
    stats->live_blocks += stats->pages.huge_count;
    stats->live_bytes += stats->pages.huge_bytes;
    stats->large_blocks += stats->pages.huge_count;
    stats->large_bytes += stats->pages.huge_bytes;
}

/* The rows are in the order of classes; packed slabs are the last row. */
size_t heap_read_classes(cairn_heap_class_stats *rows, size_t count)
{
    struct counts counts = {.classes = rows, .class_rows = smaller_of(count, (size_t)CLASS_COUNT)};
    for (unsigned class = 0; class < counts.class_rows; class ++)
        rows[class] = (cairn_heap_class_stats){
            .block_bytes = class_is_zero_size(class) ? 0 : size_classes[class].size_bytes};
    if (count > 0)
        pages_each(heap_count_span, &counts);
    return CLASS_COUNT;
}

size_t heap_read_threads(cairn_heap_thread_stats *rows, size_t count)
{
    size_t there = 0;
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next) {
        if (heap->private_heap != NULL)
            continue; /* private_heap_read_stats reports it */
        if (there < count)
            rows[there] = (cairn_heap_thread_stats){
                .heap = heap,
                .is_current = heap == thread_heap,
                .is_orphan = load_relaxed(&heap->state) == HEAP_ORPHAN,
            };
        there++;
    }
    struct counts counts = {.threads = rows, .thread_rows = smaller_of(there, count)};
    if (count > 0)
        pages_each(heap_count_span, &counts);
    return there;
}

static void heap_count_given(struct span *span, char *start, void *context)
{
    (void)start;
    size_t *pages = context;
    if (span_is_slab(span) && slab_heap(span))
        *pages += slab_count_given(span);
}

void heap_verify_given(void)
{
    if (!config_debug || heap_generation != 0)
        return;
    struct page_stats stats;
    pages_read_stats(&stats);
    size_t pages = 0;
    pages_each(heap_count_given, &pages);
    check_internal(pages == stats.swept_bytes >> PAGE_SHIFT);
}

void heap_verify_all(void)
{
    if (process_is_single_threaded())
        heap_verify_given();
    if (thread_heap != &no_heap)
        heap_verify(thread_heap);
    private_heaps_verify();
    pages_verify();
}

extern const struct heap_layout heap_layout __attribute__((visibility("hidden")));

const struct heap_layout heap_layout = {
    .size_classes = size_classes,
    .all_heaps = &all_heaps,
    .heap_generation = &heap_generation,
    .hardening = CAIRN_HARDENED,
    .class_count = CLASS_COUNT - config_packed,
    .packed_class = config_packed ? (uint32_t)PACKED_CLASS : UINT32_MAX,
    .zero_size_class = config_zero_size_blocks ? (uint32_t)ZERO_SIZE_CLASS : UINT32_MAX,
    .size_class_bytes = sizeof(struct slab_shape),
    .heap_bytes = sizeof(struct heap),
    .cold_area_bytes = sizeof(struct slab_cold_area),
    .links_at = LINKS_AT,
    .packed_bytes = PACKED_BYTES,
    .packed_words = PACKED_SLOTS,
    .packed_pages = PACKED_SLOTS * PACKED_SLOT_BYTES / PAGE_BYTES,
    .packed_words_at = LINKS_AT + 1,
    .kept_places = RUN_CACHE_PLACES,
    .kept_pages = RUN_CACHE_PAGES,
    .owner_tags = (uint32_t)~OWNER_HEAP_MASK,
    .state_active = HEAP_ACTIVE,
    .state_orphan = HEAP_ORPHAN,
    .state_busy = HEAP_BUSY,
    .state_private = HEAP_PRIVATE,
    .state_unused = HEAP_UNUSED,
    .use_mask = (1u << USE_BITS) - 1,
    .use_aside = SLAB_ASIDE,
    .link_live = LINK_LIVE,
    .link_end = LINK_END,
    .link_remote = LINK_REMOTE,
    .link_profiled = LINK_PROFILED,
    .link_quarantined = config_quarantine ? LINK_QUARANTINED : LINK_LIVE,
    .link_borrowed = config_hardened ? LINK_LIVE : LINK_BORROWED,
    .class_size_bytes = layout_field_of(struct slab_shape, size_bytes),
    .class_pages = layout_field_of(struct slab_shape, pages),
    .class_capacity = layout_field_of(struct slab_shape, capacity),
    .cold_use = layout_field_of(struct slab_cold_area, use),
    .heap_next = layout_field_of(struct heap, next),
    .heap_state = layout_field_of(struct heap, state),
    .heap_generation_field = layout_field_of(struct heap, generation),
    .heap_mailboxes = layout_field_of(struct heap, mailboxes),
    .heap_kept = layout_field_of(struct heap, runs.places),
};
