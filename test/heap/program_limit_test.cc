// The limit of a first-class heap.

#include <vector>

#include "heap/program_layer.h"

namespace
{

using heap_layer::kKiB;
using heap_layer::kMiB;

using heap_layer::stats_of;

class ProgramLimit : public heap_layer::ProgramHeapOfTest
{
};

// Whether what is taken is longer than what was asked for, or a run that was kept.
TEST_F(ProgramLimit, TheLimitHoldsToThePage)
{
    for (size_t size = 33 * kKiB; size < 40 * kMiB; size += size / 3 + 5) {
        program_set_limit(program_, size);
        for (int round = 0; round < 3; round++) { // freed ones are kept
            void *block = take(size);
            EXPECT_LE(held(), size) << size;
            if (block)
                free_fast(block);
            free_fast(heap_layer::allocate(size + 3 * PAGE_BYTES));
        }
        const size_t page = os_page_size();
        program_set_limit(program_, (size + page - 1) / page * page);
        void *block = take(size);
        if (!config_guarded_blocks) {
            EXPECT_NE(block, nullptr) << size;
        }
        if (block)
            free_fast(block);
        EXPECT_EQ(held(), 0u);
    }
    program_set_limit(program_, 0);
}

TEST_F(ProgramLimit, TheLimitHoldsForSlabsLargeBlocksAndGrowth)
{
    program_set_limit(program_, 2 * kMiB);
    std::vector<void *> blocks;
    while (void *block = program_allocate(program_, 1000, 1))
        blocks.push_back(block);
    EXPECT_GT(blocks.size(), 1500u);
    EXPECT_LE(stats_of(program_).held_bytes, 2 * kMiB);
    EXPECT_LE(stats_of(program_).peak_bytes, 2 * kMiB);
    EXPECT_EQ(stats_of(program_).refusals, 1u);
    EXPECT_EQ(program_allocate(program_, 100 * kKiB, 1), nullptr);
    EXPECT_EQ(program_allocate(program_, 3 * kMiB, 1), nullptr);
    EXPECT_EQ(heap_resize(blocks[0], 200 * kKiB), nullptr) << "stays, and stays in use";
    for (void *block : blocks)
        free_fast(block);
    void *large = program_allocate(program_, kMiB, 1);
    ASSERT_NE(large, nullptr) << "empty slabs make room";
    EXPECT_EQ(heap_resize(large, 3 * kMiB), nullptr);
    EXPECT_FALSE(heap_resize_in_place(large, 3 * kMiB));
    EXPECT_EQ(stats_of(program_).held_bytes, kMiB);
    program_set_limit(program_, 0);
    large = heap_resize(large, 3 * kMiB);
    ASSERT_NE(large, nullptr);
    EXPECT_EQ(stats_of(program_).held_bytes, 3 * kMiB);
    free_fast(large);
}

} // namespace
