/* Giving back, statistics and verifying, of the whole heap. */
#include "heap/heap.h"

#include "base/alone.h"
#include "base/check.h"
#include "heap/heap_slabs.h"
#include "heap/heap_sweep.h"

void heap_idle(void)
{
    if (thread_heap != &no_heap)
        heap_trim(thread_heap);
    heaps_tick();
}

bool heap_tend(bool sweeps, uint64_t since_ms)
{
    heaps_tick();
    return sweeps && !pages_are_huge() && sweep_idle(since_ms);
}

bool heap_release(size_t keep_bytes)
{
    if (thread_heap != &no_heap)
        heap_trim(thread_heap);
    programs_trim();
    bool swept = sweep_all();
    (void)heaps_empty_run_caches();
    return pages_trim(keep_bytes) || swept;
}

static bool count_span(struct span *span, char *start, void *context)
{
    (void)start;
    struct heap_stats *stats = context;
    unsigned tag = load_relaxed(&span->tag);
    if (tag >= SPAN_SLAB) {
        struct slab_count count = heap_count_slab(span, tag - SPAN_SLAB);
        stats->live_blocks += count.live_blocks;
        stats->live_bytes += count.live_bytes;
        stats->slab_bytes += count.slab_bytes;
    } else {
        stats->live_blocks++;
        stats->live_bytes += (size_t)span->pages << PAGE_SHIFT;
        stats->large_blocks++;
        stats->large_bytes += (size_t)span->pages << PAGE_SHIFT;
    }
    return true;
}

static void count_heap(struct heap *heap, void *context)
{
    ((struct heap_stats *)context)->heaps += heap->program == NULL;
}

void heap_read_stats(struct heap_stats *stats)
{
    *stats = (struct heap_stats){0};
    pages_read_stats(&stats->pages);
    pages_each(count_span, stats);
    heaps_each(count_heap, stats);
    if (heap_is_sampling()) {
        heap_sampler->count(&stats->sampled_blocks, &stats->sampled_bytes);
        stats->live_blocks += stats->sampled_blocks;
        stats->live_bytes += stats->sampled_bytes;
    }
    stats->live_blocks += stats->pages.huge_count;
    stats->live_bytes += stats->pages.huge_bytes;
    stats->large_blocks += stats->pages.huge_count;
    stats->large_bytes += stats->pages.huge_bytes;
}

static bool count_given(struct span *span, char *start, void *context)
{
    (void)start;
    size_t *pages = context;
    if (span_is_slab(span) && slab_heap(span))
        *pages += slab_count_given(span);
    return true;
}

void heap_verify_given(void)
{
    if (!config_debug || heap_generation != 0)
        return;
    struct page_stats stats;
    pages_read_stats(&stats);
    size_t pages = 0;
    pages_each(count_given, &pages);
    check_internal(pages == stats.swept_bytes >> PAGE_SHIFT);
}

void heap_verify_all(void)
{
    if (is_alone())
        heap_verify_given();
    if (thread_heap != &no_heap)
        heap_verify(thread_heap);
    programs_verify();
    pages_verify();
}
