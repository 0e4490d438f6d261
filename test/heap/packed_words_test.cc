// The words of packed slabs: every block once, and counted.

#include <set>
#include <vector>

#include "heap/packed_layer.h"

namespace
{

using heap_layer::kSlabBlocks;

class PackedWords : public heap_layer::PackingHeap
{
};

TEST_F(PackedWords, BlocksAreApart)
{
    const std::vector<void *> blocks = take(3 * kSlabBlocks + 7);
    EXPECT_EQ(std::set<void *>(blocks.begin(), blocks.end()).size(), blocks.size());
    for (size_t i = 0; i < blocks.size(); i++)
        *static_cast<size_t *>(blocks[i]) = i;
    for (size_t i = 0; i < blocks.size(); i++)
        ASSERT_EQ(*static_cast<size_t *>(blocks[i]), i);
    give(blocks);
}

TEST_F(PackedWords, CountsLiveBlocks)
{
    const size_t before = heap_layer::stats().live_blocks;
    std::vector<void *> blocks = take(1000);
    EXPECT_EQ(heap_layer::stats().live_blocks, before + 1000);
    for (int i = 0; i < 300; i++) {
        free_fast(blocks.back());
        blocks.pop_back();
    }
    EXPECT_EQ(heap_layer::stats().live_blocks, before + 700);
    give(blocks);
}

} // namespace
