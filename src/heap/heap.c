/* The heap's start, its part in fork, trim and statistics. */
#include "heap/heap.h"
#include "base/check.h"
#include "heap/harden.h"
#include "heap/heap_sweep.h"
#include "heap/packed.h"
#include "heap/program_heap.h"
#include "os/os.h"

enum { NOT_STARTED, STARTING, STARTED };

static uint32_t started; /* atomic */
static struct slab_shape shapes[sealed_count(struct slab_shape, CLASS_COUNT + 1)] sealed_data;
sealed_fills(shapes);

void heap_start(void)
{
    if (likely(load_acquire(&started) == STARTED)) /* pairs with the release below */
        return;
    uint32_t expected = NOT_STARTED;
    if (!compare_swap_acq_rel(&started, &expected, (uint32_t)STARTING)) {
        while (load_acquire(&started) != STARTED)
            pause_processor();
        return;
    }
    os_init();
    size_classes_init();
    for (unsigned i = 0; i < CLASS_COUNT; i++)
        shapes[i] = (struct slab_shape){size_classes[i].pages, size_classes[i].cold_64};
    shapes[PACKED_CLASS] = (struct slab_shape){PACKED_PAGES, PACKED_COLD_64};
    if (config_sealed) { /* refused, they stay writable */
        (void)os_protect(size_classes, sizeof size_classes, OS_READ);
        (void)os_protect(shapes, sizeof shapes, OS_READ);
    }
    if (config_hardened)
        harden_start();
    pages_init(shapes);
    pages_on_fork(heaps_after_fork);
    heap_watch_threads();
    store_release(&started, (uint32_t)STARTED);
    pages_start();
}

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

/* Other threads go on meanwhile, and the slab may be given back, or be of another class, at any
 * step. Its header and its link bytes stay readable, and a header's slabs are all of classes with
 * as many of them: the figures may be wrong then, but nothing else is read. */
struct slab_count heap_count_slab(const struct span *slab, unsigned class)
{
    if (class == PACKED_CLASS) {
        size_t blocks = packed_live(slab);
        return (struct slab_count){.live_blocks = blocks,
                                   .slots = PACKED_WORDS * 64,
                                   .live_bytes = blocks * PACKED_BYTES,
                                   .slab_bytes = (size_t)PACKED_PAGES << PAGE_SHIFT};
    }
    const struct size_class *shape = &size_classes[class];
    size_t handed_out = smaller_of(load_relaxed(&slab->limit) - 1, (uint64_t)shape->capacity);
    size_t live = 0;
    size_t freed = 0;
    for (unsigned slot = 1; slot <= handed_out; slot++)
        live += link_shows_use(load_relaxed(slab_link(slab, slot)));
    bool words_count =
        slab_is_frozen(slab) && load_acquire(&slab_remote(slab)->generation) == heap_generation;
    for (unsigned i = 0; i < REMOTE_WORDS && words_count; i++)
        freed += count_bits(load_relaxed(&slab_remote(slab)->words[i]));
    live -= smaller_of(live, freed);
    bool no_memory = class_is_void(class);
    return (struct slab_count){.live_blocks = live,
                               .slots = shape->capacity,
                               .live_bytes = no_memory ? 0 : live * shape->size_bytes,
                               .slab_bytes = no_memory ? 0 : (size_t)shape->pages << PAGE_SHIFT};
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

void heap_verify_all(void)
{
    if (thread_heap != &no_heap)
        heap_verify(thread_heap);
    programs_verify();
    pages_verify();
}
