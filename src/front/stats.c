/* The heap's statistics in the public form: see include/cairn/stats.h. No state. */
#include "cairn/stats.h"

#include "base/bits.h"
#include "front/entry.h"
#include "os/os.h"

static uint64_t calls(enum os_call call) { return load_relaxed(&os_calls[call]); }

void stats_read(cairn_heap_stats *stats)
{
    struct heap_stats heap;
    heap_start();
    heap_read_stats(&heap);
    const struct page_stats *pages = &heap.pages;
    size_t clean = pages->free_bytes - smaller_of(pages->free_bytes, pages->dirty_bytes);
    *stats = (cairn_heap_stats){
        .allocated_bytes = heap.live_bytes,
        .allocated_blocks = heap.live_blocks,
        .large_bytes = heap.large_bytes,
        .large_blocks = heap.large_blocks,
        .sampled_bytes = heap.sampled_bytes,
        .sampled_blocks = heap.sampled_blocks,
        .active_bytes = heap.slab_bytes + heap.large_bytes + heap.sampled_bytes,
        .slab_bytes = heap.slab_bytes,
        .free_bytes = pages->free_bytes,
        .dirty_bytes = pages->dirty_bytes,
        .mapped_bytes = pages->committed_bytes + pages->huge_bytes + heap.sampled_bytes,
        .retained_bytes = pages->reserved_bytes -
                          smaller_of(pages->reserved_bytes, pages->committed_bytes) + clean,
        .metadata_bytes = pages->meta_bytes,
        .thread_heaps = heap.heaps,
        .purged_bytes = pages->purged_bytes,
        .purges = pages->purges,
        .map_calls = calls(OS_CALL_MAP),
        .protect_calls = calls(OS_CALL_PROTECT),
        .unmap_calls = calls(OS_CALL_UNMAP),
        .advise_calls = calls(OS_CALL_ADVISE),
        .remap_calls = calls(OS_CALL_REMAP),
    };
}

api void cairn_heap_read_stats(cairn_heap_stats *stats) { stats_read(stats); }

api size_t cairn_heap_read_class_stats(cairn_heap_class_stats *rows, size_t count)
{
    heap_start();
    return heap_read_classes(rows, rows ? count : 0);
}

api size_t cairn_heap_read_thread_stats(cairn_heap_thread_stats *rows, size_t count)
{
    heap_start();
    return heap_read_threads(rows, rows ? count : 0);
}
