// Counts of the blocks in a slab, also while it changes.

#include <atomic>
#include <thread>
#include <vector>

#include "heap/heap_layer.h"

namespace slab_count_test
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::span_of;
using heap_layer::stats;

TEST(SlabCount, CountsBlocksInUseWhoeverFrees)
{
    std::vector<void *> blocks(5);
    for (void *&block : blocks)
        block = allocate(900);
    struct span *slab = span_of(blocks[0]);
    const unsigned size_class = slab_class(slab);
    const struct slab_count before = heap_count_slab(slab, size_class);
    EXPECT_EQ(before.slots, size_classes[size_class].capacity);
    EXPECT_EQ(before.live_bytes, before.live_blocks * size_classes[size_class].size_bytes);
    in_thread([&] { free_fast(blocks[0]); });
    EXPECT_EQ(heap_count_slab(slab, size_class).live_blocks, before.live_blocks - 1);
    for (size_t i = 1; i < blocks.size(); i++)
        free_fast(blocks[i]);
}

// The figures are not of one instant, but reading them does no harm: headers become slabs, large
// blocks and free spans during the read.
TEST(SlabCount, StatisticsMayBeReadWhileSlabsComeAndGo)
{
    if (config_tsan)
        GTEST_SKIP() << "the reader races with writers by design";
    std::atomic<bool> done{false};
    std::thread changer([&] {
        for (int round = 0; round < 300; round++) {
            const size_t size = size_t{16} << round % 12;
            std::vector<void *> blocks;
            for (size_t i = 0; i < 300; i++)
                blocks.push_back(allocate(size));
            for (void *block : blocks)
                free_fast(block);
            heap_release(0);
        }
        done = true;
    });
    size_t readings = 0;
    for (; !done || readings < 10; readings++)
        EXPECT_LE(stats().live_blocks, 400u * 254);
    changer.join();
}

} // namespace slab_count_test
