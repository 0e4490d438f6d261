// The public statistics, for blocks of known number and sizes.
#include <gtest/gtest.h>

#include <vector>

#include "cairn/heap.h"
#include "cairn/stats.h"

namespace stats_test
{

constexpr size_t kMiB = size_t{1} << 20;

cairn_heap_stats read()
{
    cairn_heap_stats stats;
    cairn_heap_read_stats(&stats);
    return stats;
}

// Equations that hold while no other thread allocates.
void check(const cairn_heap_stats &stats)
{
    EXPECT_LE(stats.allocated_bytes, stats.active_bytes);
    EXPECT_LE(stats.large_bytes, stats.allocated_bytes);
    EXPECT_LE(stats.dirty_bytes, stats.free_bytes);
    EXPECT_LE(stats.active_bytes + stats.free_bytes, stats.mapped_bytes);
    EXPECT_GE(stats.thread_heaps, 1u);
    EXPECT_GT(stats.metadata_bytes, 0u);
    EXPECT_GT(stats.map_calls, 0u);
}

TEST(Stats, SmallAndLargeBlocksAreCounted)
{
    cairn_free(cairn_malloc(1));
    cairn_heap_stats before = read();
    void *small = cairn_malloc(1000);
    void *large = cairn_malloc(3 * kMiB);
    void *huge = cairn_malloc(64 * kMiB);
    cairn_heap_stats stats = read();
    check(stats);
    EXPECT_EQ(stats.allocated_blocks, before.allocated_blocks + 3);
    EXPECT_EQ(stats.large_blocks, before.large_blocks + 2);
    EXPECT_EQ(stats.large_bytes, before.large_bytes + 67 * kMiB);
    EXPECT_GE(stats.allocated_bytes, before.allocated_bytes + 67 * kMiB + 1000);
    EXPECT_GE(stats.mapped_bytes, before.mapped_bytes + 64 * kMiB);
    cairn_free(huge);
    cairn_free(large);
    cairn_free(small);
    check(read());
    EXPECT_EQ(read().allocated_blocks, before.allocated_blocks);
}

TEST(Stats, APurgeIsCounted)
{
    cairn_free(cairn_malloc(1)); // makes the heap of this thread
    std::vector<void *> blocks(8);
    for (void *&block : blocks)
        block = cairn_malloc(2 * kMiB);
    for (void *block : blocks)
        cairn_free(block);
    cairn_heap_stats before = read();
    cairn_malloc_trim(0);
    cairn_heap_stats stats = read();
    check(stats);
    EXPECT_EQ(stats.dirty_bytes, 0u);
    if (before.dirty_bytes != 0) { // full hardened builds release such blocks at once
        EXPECT_GE(stats.purged_bytes - before.purged_bytes, before.dirty_bytes);
        EXPECT_GT(stats.purges, before.purges);
        EXPECT_GT(stats.advise_calls, before.advise_calls);
    }
}

TEST(Stats, RowsAddUpToTheWhole)
{
    std::vector<void *> blocks;
    for (size_t size = 1; size < 30000; size += 97)
        blocks.push_back(cairn_malloc(size));
    cairn_heap_stats stats = read();
    std::vector<cairn_heap_class_stats> classes(cairn_heap_read_class_stats(nullptr, 0));
    cairn_heap_read_class_stats(classes.data(), classes.size());
    size_t live = 0;
    size_t bytes = 0;
    for (const cairn_heap_class_stats &row : classes) {
        live += row.live_blocks;
        bytes += row.slab_bytes;
    }
    EXPECT_EQ(live, stats.allocated_blocks - stats.large_blocks - stats.guarded_blocks);
    EXPECT_EQ(bytes, stats.slab_bytes);
    std::vector<cairn_heap_thread_stats> threads(cairn_heap_read_thread_stats(nullptr, 0));
    EXPECT_EQ(threads.size(), stats.thread_heaps);
    cairn_heap_read_thread_stats(threads.data(), threads.size());
    size_t current = 0;
    for (const cairn_heap_thread_stats &row : threads)
        current += row.is_current;
    EXPECT_EQ(current, 1u);
    for (void *block : blocks)
        cairn_free(block);
}

} // namespace stats_test
