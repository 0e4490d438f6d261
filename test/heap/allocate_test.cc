// Allocation, of single blocks and in batches.

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "heap/heap_layer.h"

namespace allocate_test
{

// Allocation: every size and alignment, zeroing, and the requests that the fast path passes to the
// slow one.

using heap_layer::allocate;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::span_of;

TEST(Allocate, EverySizeUpToMediumIsOfItsClass)
{
    for (size_t size = config_zero_size_blocks; size <= MEDIUM_BLOCK_MAX;
         size++) { // 0 bytes: harden_test.cc
        char *block = static_cast<char *>(allocate(size));
        ASSERT_NE(block, nullptr);
        if (size <= MEDIUM_REQUEST_MAX) {
            const unsigned i = class_of_size(size + CANARY_BYTES);
            ASSERT_EQ(span_of(block)->size_bytes, size_classes[i].size_bytes);
            ASSERT_EQ(heap_usable_size(block), config_canaries ? size : size_classes[i].size_bytes);
        }
        ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % 16, 0u);
        memset(block, 1, heap_usable_size(block));
        free_fast(block);
    }
    heap_layer::verify();
}

TEST(Allocate, LiveBlocksNeverOverlap)
{
    std::set<std::pair<char *, char *>> blocks;
    for (size_t size = 0; size < 80 * kKiB; size = size * 17 / 16 + 1)
        for (int i = 0; i < 5; i++) {
            char *block = static_cast<char *>(allocate(size));
            ASSERT_NE(block, nullptr);
            ASSERT_TRUE(blocks.emplace(block, block + heap_usable_size(block)).second);
        }
    const char *end = nullptr;
    for (const auto &[start, stop] : blocks) {
        ASSERT_GE(start, end);
        end = stop;
    }
    for (const auto &[start, stop] : blocks)
        free_fast(start);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

TEST(Allocate, TheBlockFreedLastComesNext)
{
    if (config_quarantine)
        GTEST_SKIP() << "freed blocks wait in quarantine";
    for (size_t size : {size_t{8}, size_t{100}, size_t{1000}, 5 * kKiB}) {
        void *first = allocate(size);
        void *second = allocate(size);
        free_fast(first);
        EXPECT_EQ(allocate(size), first);
        free_fast(first);
        free_fast(second);
    }
}

TEST(Allocate, ZeroedMemoryIsZeroAfterUse)
{
    for (size_t size :
         {size_t{0}, size_t{1}, size_t{100}, 3 * kKiB, 40 * kKiB, 600 * kKiB, 35 * kMiB}) {
        for (int round = 0; round < 4; round++) {
            char *block = static_cast<char *>(heap_allocate_zeroed(size));
            ASSERT_NE(block, nullptr);
            for (size_t i = 0; i < size; i++)
                ASSERT_EQ(block[i], 0) << size << " at " << i;
            memset(block, 0xff, heap_usable_size(block));
            free_fast(block);
        }
    }
}

// A run of which only a part was written: a part that is not cleared must read zero already.
TEST(Allocate, ZeroedMemoryIsZeroWhereAPartWasUsed)
{
    constexpr size_t kBytes = 9 * kMiB;
    free_fast(allocate(kBytes));
    heap_release(0);
    std::vector<char *> used;
    for (int i = 0; i < 20; i++) {
        used.push_back(static_cast<char *>(allocate(60 * kKiB)));
        memset(used.back(), 0xff, 60 * kKiB);
    }
    for (char *block : used)
        free_fast(block);
    for (size_t size : {kBytes, 5 * kMiB + 123, kMiB - 1}) {
        char *block = static_cast<char *>(heap_allocate_zeroed(size));
        ASSERT_NE(block, nullptr);
        for (size_t i = 0; i < size; i++)
            ASSERT_EQ(block[i], 0) << size << " at " << i;
        free_fast(block);
    }
}

TEST(Allocate, EveryAlignmentWithManySizes)
{
    for (size_t alignment = 1; alignment <= 16 * kMiB; alignment *= 2)
        for (size_t size = 0; size < 200 * kKiB; size = size * 3 + 1) {
            char *block = static_cast<char *>(heap_allocate_aligned(size, alignment));
            ASSERT_NE(block, nullptr) << size << " at " << alignment;
            ASSERT_EQ(reinterpret_cast<uintptr_t>(block) % alignment, 0u);
            ASSERT_GE(heap_usable_size(block), size);
            memset(block, 1, size);
            free_fast(block);
        }
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    heap_layer::verify();
}

// A block aligned to 8 KiB must not have a page more than it needs.
TEST(Allocate, AnAlignedBlockHasThePagesThatItNeeds)
{
    for (size_t alignment : {8 * kKiB, 64 * kKiB, 2 * kMiB, 8 * kMiB})
        for (size_t size : {size_t{1}, 4 * kKiB, 8 * kKiB, 20 * kKiB, 32 * kKiB, 33 * kKiB}) {
            const size_t before = heap_layer::stats().live_bytes;
            void *block = heap_allocate_aligned(size, alignment);
            ASSERT_NE(block, nullptr);
            const size_t pages = (size + PAGE_BYTES - 1) / PAGE_BYTES;
            EXPECT_EQ(heap_layer::stats().live_bytes - before, pages * PAGE_BYTES)
                << size << " at " << alignment;
            heap_free_sized(block, size, alignment);
        }
    heap_layer::verify();
}

// An aligned block takes no lock, like one that is not aligned.
TEST(Allocate, AnAlignedBlockIsKeptForTheNext)
{
    if (config_guarded_blocks)
        GTEST_SKIP() << "full hardened builds keep no runs";
    for (size_t size : {100 * size_t{1}, 8 * kKiB, 40 * kKiB, 200 * kKiB}) {
        void *block = heap_allocate_aligned(size, 16 * kKiB);
        free_fast(block);
        EXPECT_EQ(load_relaxed(&span_of(block)->tag), SPAN_KEPT) << size;
        EXPECT_EQ(heap_allocate_aligned(size, 16 * kKiB), block) << size;
        free_fast(block);
        void *more = heap_allocate_aligned(size, 8 * kMiB);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(more) % (8 * kMiB), 0u)
            << "the kept block has a smaller alignment";
        free_fast(more);
    }
    heap_layer::verify();
}

TEST(AllocateDeathTest, AnAlignedBlocksSizeIsItsOwn)
{
    void *block = heap_allocate_aligned(100, 8 * kKiB);
    EXPECT_DEATH(heap_free_sized(block, 100, 1), "sized free of .* with size 100");
    EXPECT_DEATH(heap_free_sized(block, 5000, 8 * kKiB), "sized free of .* with size 5000");
    EXPECT_DEATH(heap_free_sized(block, 40000, 1), "sized free of .* with size 40000");
    heap_free_sized(block, 100, 8 * kKiB);
    block = heap_allocate_aligned(10000, 8 * kKiB);
    EXPECT_DEATH(heap_free_sized(block, 100, 8 * kKiB), "sized free of .* with size 100");
    EXPECT_DEATH(heap_free_sized(block, 30000, 8 * kKiB), "sized free of .* with size 30000");
    heap_free_sized(block, 10000, 8 * kKiB);
}

TEST(Allocate, AnAlignedBlockIsResized)
{
    for (size_t from : {size_t{1}, 8 * kKiB, 20 * kKiB, 100 * kKiB})
        for (size_t to : {size_t{1}, 100 * size_t{1}, 5 * kKiB, 30 * kKiB, 50 * kKiB, 3 * kMiB}) {
            char *block = static_cast<char *>(heap_allocate_aligned(from, 64 * kKiB));
            ASSERT_NE(block, nullptr);
            memset(block, 7, from);
            block = static_cast<char *>(heap_resize(block, to));
            ASSERT_NE(block, nullptr);
            for (size_t i = 0; i < std::min(from, to); i++)
                ASSERT_EQ(block[i], 7) << from << " to " << to << " at " << i;
            EXPECT_GE(heap_usable_size(block), to);
            free_fast(block);
        }
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
    heap_layer::verify();
}

TEST(Allocate, SizesThatNobodyHasAreRefused)
{
    for (size_t size : {SIZE_MAX, SIZE_MAX - PAGE_BYTES, SIZE_MAX / 2 + 1, size_t{1} << 47}) {
        EXPECT_EQ(allocate(size), nullptr) << size;
        EXPECT_EQ(heap_allocate_zeroed(size), nullptr) << size;
        EXPECT_EQ(heap_allocate_aligned(size, 64), nullptr) << size;
    }
    EXPECT_EQ(heap_allocate_aligned(1, size_t{1} << 63), nullptr);
    EXPECT_EQ(heap_allocate_aligned(1, size_t{1} << 47), nullptr);
}

// Batches of blocks: the blocks, checks and counts are those of single calls.

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

// A list has some free slots between slots in use.
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
        EXPECT_TRUE(all.insert(blocks[i]).second) << "the block was in use";
    heap_layer::verify();
    for (size_t i = 1; i < blocks.size(); i += 2)
        free_fast(blocks[i]);
    heap_free_batch(more.size(), more.data());
}

TEST_F(Batch, FreesOfAllKindsInAnyOrder)
{
    const cairn_private_heap_options none = {};
    struct private_heap *program = private_heap_new(&none);
    const size_t before = heap_layer::stats().live_blocks;
    std::vector<void *> blocks;
    in_thread([&] {
        for (size_t i = 0; i < 500; i++)
            blocks.push_back(heap_layer::allocate(i * 7 % 2000));
    });
    for (size_t i = 0; i < 2000; i++) {
        blocks.push_back(heap_layer::allocate(i * 37 % 3000));
        blocks.push_back(i % 20 == 0 ? heap_layer::allocate(50 * kKiB) : nullptr);
        blocks.push_back(private_heap_alloc(program, i % 500, 1));
    }
    for (size_t i = 0; i < blocks.size(); i++)
        std::swap(blocks[i], blocks[i * 7919 % blocks.size()]);
    heap_free_batch(blocks.size(), blocks.data());
    cairn_private_heap_stats its;
    private_heap_read_stats(program, &its);
    EXPECT_EQ(its.live_blocks, 0u);
    private_heap_end(program);
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

} // namespace allocate_test
