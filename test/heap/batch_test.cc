// Many blocks at once: the same blocks, checks and counts as one by one.

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "heap/heap_layer.h"

namespace
{

using heap_layer::in_thread;
using heap_layer::kKiB;

class Batch : public heap_layer::OwnHeap
{
};

TEST_F(Batch, BlocksAreDistinctAndAllThere)
{
    for (size_t size : {size_t{0}, size_t{1}, size_t{16}, size_t{100}, size_t{1024}, size_t{1025},
                        32 * kKiB, 100 * kKiB})
        for (size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{1000}}) {
            if (size * count > 50 * kKiB * kKiB)
                continue;
            const size_t before = heap_layer::stats().live_blocks;
            std::vector<void *> blocks(count + 1, nullptr);
            ASSERT_EQ(heap_allocate_batch(count, size, blocks.data()), count);
            EXPECT_EQ(blocks[count], nullptr);
            blocks.pop_back();
            EXPECT_EQ(std::set<void *>(blocks.begin(), blocks.end()).size(), count);
            for (void *block : blocks) {
                EXPECT_GE(heap_usable_size(block), size);
                memset(block, 3, size);
            }
            EXPECT_EQ(heap_layer::stats().live_blocks, before + count);
            heap_layer::verify();
            heap_free_batch(count, blocks.data());
            EXPECT_EQ(heap_layer::stats().live_blocks, before);
            heap_layer::verify();
        }
}

// Some free slots of a list, in between others in use.
TEST_F(Batch, TakesWhatWasFreedAndWhatWasNever)
{
    std::vector<void *> blocks(300);
    for (auto &block : blocks)
        block = heap_layer::allocate(64);
    for (size_t i = 0; i < blocks.size(); i += 2)
        free_fast(blocks[i]);
    std::vector<void *> more(500);
    ASSERT_EQ(heap_allocate_batch(more.size(), 64, more.data()), more.size());
    std::set<void *> all(more.begin(), more.end());
    for (size_t i = 1; i < blocks.size(); i += 2)
        EXPECT_TRUE(all.insert(blocks[i]).second) << "it was in use";
    heap_layer::verify();
    for (size_t i = 1; i < blocks.size(); i += 2)
        free_fast(blocks[i]);
    heap_free_batch(more.size(), more.data());
}

TEST_F(Batch, FreesOfAllKindsInAnyOrder)
{
    const struct program_options none = {};
    struct program_heap *program = program_make(&none);
    const size_t before = heap_layer::stats().live_blocks;
    std::vector<void *> blocks;
    in_thread([&] {
        for (size_t i = 0; i < 500; i++)
            blocks.push_back(heap_layer::allocate(i * 7 % 2000));
    });
    for (size_t i = 0; i < 2000; i++) {
        blocks.push_back(heap_layer::allocate(i * 37 % 3000));
        blocks.push_back(i % 20 == 0 ? heap_layer::allocate(50 * kKiB) : nullptr);
        blocks.push_back(program_allocate(program, i % 500, 1));
    }
    for (size_t i = 0; i < blocks.size(); i++)
        std::swap(blocks[i], blocks[i * 7919 % blocks.size()]);
    heap_free_batch(blocks.size(), blocks.data());
    program_stats its;
    program_read_stats(program, &its);
    EXPECT_EQ(its.live_blocks, 0u);
    program_end(program);
    EXPECT_EQ(heap_layer::stats().live_blocks, before);
}

TEST_F(Batch, AThreadWithoutAHeap)
{
    void *blocks[100];
    in_thread([&] { ASSERT_EQ(heap_allocate_batch(100, 50, blocks), 100u); });
    in_thread([&] { heap_free_batch(100, blocks); });
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

TEST_F(Batch, MemoryThatIsOutEndsIt)
{
    void *blocks[4];
    EXPECT_EQ(heap_allocate_batch(4, SIZE_MAX, blocks), 0u);
}

using BatchDeathTest = Batch;

TEST_F(BatchDeathTest, ABlockTwiceInOneBatch)
{
    void *blocks[10];
    ASSERT_EQ(heap_allocate_batch(9, 48, blocks), 9u);
    blocks[9] = blocks[4];
    EXPECT_DEATH(heap_free_batch(10, blocks), "^cairn: double free of 0x");
    blocks[9] = static_cast<char *>(blocks[3]) + 16;
    EXPECT_DEATH(heap_free_batch(10, blocks), "^cairn: free of interior pointer 0x");
    EXPECT_DEATH(
        {
            heap_free_batch(9, blocks);
            heap_free_batch(1, blocks);
        },
        "^cairn: double free of 0x");
    heap_free_batch(9, blocks);
}

} // namespace
