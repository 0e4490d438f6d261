// The limit of a private heap.

#include <vector>

#include "heap/private_layer.h"

extern "C" {
#include "os/memory.h"
}

namespace private_limit_test
{

using heap_layer::kKiB;
using heap_layer::kMiB;

using heap_layer::stats_of;

class PrivateLimit : public heap_layer::PrivateHeapOfTest
{
};

// The limit is exact: the run of the block's length fits, and no longer run that is kept.
TEST_F(PrivateLimit, TheLimitHoldsToThePage)
{
    for (size_t size = 33 * kKiB; size < 40 * kMiB; size += size / 3 + 5) {
        private_heap_set_limit(private_heap_, size);
        for (int round = 0; round < 3; round++) { // freed blocks are kept
            void *block = take(size);
            EXPECT_LE(held(), size) << size;
            if (block)
                free_fast(block);
            free_fast(heap_layer::allocate(heap_good_size(size) + 1));
        }
        private_heap_set_limit(private_heap_, heap_good_size(size));
        void *block = take(size);
        if (!config_guarded_blocks) {
            EXPECT_NE(block, nullptr) << size;
        }
        if (block)
            free_fast(block);
        EXPECT_EQ(held(), 0u);
    }
    private_heap_set_limit(private_heap_, 0);
}

TEST_F(PrivateLimit, TheLimitHoldsForSlabsLargeBlocksAndGrowth)
{
    private_heap_set_limit(private_heap_, 2 * kMiB);
    std::vector<void *> blocks;
    while (void *block = private_heap_alloc(private_heap_, 1000, 1))
        blocks.push_back(block);
    EXPECT_GT(blocks.size(), 1500u);
    EXPECT_LE(stats_of(private_heap_).held_bytes, 2 * kMiB);
    EXPECT_LE(stats_of(private_heap_).peak_bytes, 2 * kMiB);
    EXPECT_EQ(stats_of(private_heap_).refusals, 1u);
    EXPECT_EQ(private_heap_alloc(private_heap_, 100 * kKiB, 1), nullptr);
    EXPECT_EQ(private_heap_alloc(private_heap_, 3 * kMiB, 1), nullptr);
    EXPECT_EQ(heap_resize(blocks[0], 200 * kKiB), nullptr)
        << "the block does not grow and stays in use";
    for (void *block : blocks)
        free_fast(block);
    void *large = private_heap_alloc(private_heap_, kMiB, 1);
    ASSERT_NE(large, nullptr) << "empty slabs are given back for the block";
    EXPECT_EQ(heap_resize(large, 3 * kMiB), nullptr);
    EXPECT_FALSE(heap_resize_in_place(large, 3 * kMiB));
    EXPECT_EQ(stats_of(private_heap_).held_bytes, kMiB);
    private_heap_set_limit(private_heap_, 0);
    large = heap_resize(large, 3 * kMiB);
    ASSERT_NE(large, nullptr);
    EXPECT_EQ(stats_of(private_heap_).held_bytes, 3 * kMiB);
    free_fast(large);
}

} // namespace private_limit_test
