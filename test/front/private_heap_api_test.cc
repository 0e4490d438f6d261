// Private heaps by their public names: include/cairn/private_heap.h.

#include "cairn/private_heap.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <stdint.h>
#include <string.h>

#include <thread>
#include <vector>

#include "cairn/heap.h"
#include "cairn/stats.h"

namespace private_heap_api_test
{

constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;

cairn_private_heap_stats stats_of(cairn_private_heap *heap)
{
    cairn_private_heap_stats stats;
    cairn_private_heap_read_stats(heap, &stats);
    return stats;
}

class PrivateHeap : public testing::Test
{
  protected:
    void TearDown() override { EXPECT_EQ(cairn_private_heap_delete(heap_), 0); }
    cairn_private_heap *heap_ = cairn_private_heap_new(nullptr);
};

TEST_F(PrivateHeap, AllocateResizeAndFree)
{
    errno = 7;
    char *block = static_cast<char *>(cairn_private_heap_alloc(heap_, 100));
    ASSERT_NE(block, nullptr);
    strcpy(block, "kept");
    block = static_cast<char *>(cairn_private_heap_realloc(heap_, block, 100 * kKiB));
    ASSERT_NE(block, nullptr);
    EXPECT_STREQ(block, "kept");
    EXPECT_EQ(cairn_private_heap_of(block), heap_);
    EXPECT_EQ(stats_of(heap_).live_blocks, 1u);
    EXPECT_EQ(stats_of(heap_).large_blocks, 1u);
    cairn_private_heap_free(heap_, block);
    cairn_private_heap_free(heap_, nullptr);
    EXPECT_EQ(stats_of(heap_).live_blocks, 0u);
    EXPECT_EQ(errno, 7);
}

TEST_F(PrivateHeap, ZeroedBlocksReadZero)
{
    for (size_t size : {size_t{1}, size_t{100}, 5 * kKiB, 100 * kKiB}) {
        auto *dirty = static_cast<unsigned char *>(cairn_private_heap_alloc(heap_, size));
        memset(dirty, 0xff, size);
        cairn_private_heap_free(heap_, dirty);
        for (auto *block :
             {static_cast<unsigned char *>(cairn_private_heap_alloc_zero(heap_, size)),
              static_cast<unsigned char *>(cairn_private_heap_alloc_array_zero(heap_, size, 1))}) {
            ASSERT_NE(block, nullptr);
            for (size_t i = 0; i < size; i++)
                ASSERT_EQ(block[i], 0) << size << " at " << i;
        }
    }
}

TEST_F(PrivateHeap, AZeroedBlockDoesNotShowWhatTheThreadsKeptRunHeld)
{
    cairn_private_heap_free(heap_, cairn_private_heap_alloc(heap_, 10));
    cairn_free(cairn_malloc(10)); // the thread has a heap, which keeps runs
    for (size_t size = 40 * kKiB; size <= 240 * kKiB; size += 20 * kKiB)
        for (int round = 0; round < 3; round++) {
            void *dirty = cairn_private_heap_alloc(heap_, size);
            ASSERT_NE(dirty, nullptr);
            memset(dirty, 0xee, size);
            cairn_private_heap_free(heap_, dirty);
            auto *block = static_cast<unsigned char *>(cairn_private_heap_alloc_zero(heap_, size));
            ASSERT_NE(block, nullptr);
            for (size_t i = 0; i < size; i++)
                ASSERT_EQ(block[i], 0) << size << " at " << i;
            cairn_private_heap_free(heap_, block);
        }
}

TEST_F(PrivateHeap, WhatFailedIsNoPeak)
{
    void *block = cairn_private_heap_alloc(heap_, 100 * kKiB);
    ASSERT_NE(block, nullptr);
    const size_t peak = stats_of(heap_).peak_bytes;
    EXPECT_GE(peak, 100 * kKiB);
    volatile size_t most = PTRDIFF_MAX / 2;
    EXPECT_EQ(cairn_private_heap_alloc(heap_, most), nullptr);
    EXPECT_EQ(cairn_private_heap_realloc(heap_, block, most), nullptr);
    EXPECT_EQ(stats_of(heap_).peak_bytes, peak);
    most = static_cast<size_t>(PTRDIFF_MAX) + 5000;
    EXPECT_EQ(cairn_private_heap_resize(heap_, block, most), nullptr);
    EXPECT_EQ(stats_of(heap_).peak_bytes, peak);
    EXPECT_EQ(stats_of(heap_).held_bytes, peak);
    block = cairn_private_heap_realloc(heap_, block, 40 * kMiB);
    ASSERT_NE(block, nullptr);
    EXPECT_GE(stats_of(heap_).peak_bytes, 40 * kMiB) << "successful growth counts for the peak";
}

TEST_F(PrivateHeap, RequestsThatCannotBe)
{
    volatile size_t most = SIZE_MAX;
    errno = 0;
    EXPECT_EQ(cairn_private_heap_alloc(heap_, most), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_EQ(cairn_private_heap_alloc_array(heap_, most / 2, 3), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_EQ(cairn_private_heap_alloc_array_zero(heap_, most / 2, 3), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_EQ(cairn_private_heap_alloc_aligned(heap_, 10, 24), nullptr);
    EXPECT_EQ(errno, EINVAL);
}

TEST_F(PrivateHeap, TheGeneralFunctionsTakeItsBlocks)
{
    char *block = static_cast<char *>(cairn_private_heap_alloc(heap_, 50));
    EXPECT_GE(cairn_malloc_usable_size(block), 50u);
    block = static_cast<char *>(cairn_realloc(block, 5000));
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(cairn_private_heap_of(block), heap_) << "the block stays in its heap";
    cairn_free(block);
    cairn_free_sized(cairn_private_heap_alloc(heap_, 70), 70);
    std::thread([this] { cairn_free(cairn_private_heap_alloc(heap_, 90)); }).join();
    EXPECT_EQ(stats_of(heap_).live_blocks, 0u);
    void *general = cairn_malloc(10);
    EXPECT_EQ(cairn_private_heap_of(general), nullptr);
    EXPECT_EQ(cairn_private_heap_of(nullptr), nullptr);
    cairn_free(general);
}

TEST_F(PrivateHeap, ResizeNeverMoves)
{
    void *block = cairn_private_heap_alloc(heap_, 200 * kKiB);
    errno = 7;
    EXPECT_EQ(cairn_private_heap_resize(heap_, block, 150 * kKiB), block);
    EXPECT_LT(stats_of(heap_).held_bytes, 200 * kKiB);
    EXPECT_EQ(cairn_private_heap_resize(heap_, block, 100), nullptr)
        << "the new size needs another kind of block";
    EXPECT_EQ(cairn_private_heap_resize(heap_, block, SIZE_MAX), nullptr);
    EXPECT_EQ(cairn_private_heap_resize(heap_, nullptr, 10), nullptr);
    void *small = cairn_private_heap_alloc(heap_, 100);
    EXPECT_EQ(cairn_private_heap_resize(heap_, small, 98), small);
    EXPECT_EQ(cairn_private_heap_resize(heap_, small, 1000), nullptr);
    EXPECT_EQ(errno, 7);
    cairn_free_sized(small, 98);
}

struct Cache {
    cairn_private_heap *heap = nullptr;
    std::vector<void *> blocks;
    int calls = 0;
    size_t asked = 0;

    static bool drop(void *context, size_t size)
    {
        auto *cache = static_cast<Cache *>(context);
        cache->calls++;
        cache->asked = size;
        /* This request does not call the function, which is not called within itself. */
        EXPECT_EQ(cairn_private_heap_alloc(cache->heap, 10 * kMiB), nullptr);
        for (int i = 0; i < 10 && !cache->blocks.empty(); i++) {
            cairn_free(cache->blocks.back());
            cache->blocks.pop_back();
        }
        return !cache->blocks.empty();
    }
    static bool again(void *context, size_t)
    {
        static_cast<Cache *>(context)->calls++;
        return true;
    }
};

TEST(PrivateHeapOutOfMemory, TheFunctionMakesRoomUntilItGivesUp)
{
    Cache cache;
    const cairn_private_heap_options options = {4 * kMiB, Cache::drop, &cache};
    cache.heap = cairn_private_heap_new(&options);
    while (cache.calls == 0)
        if (void *block = cairn_private_heap_alloc(cache.heap, 50 * kKiB))
            cache.blocks.push_back(block);
    EXPECT_EQ(cache.asked, 50 * kKiB);
    EXPECT_GT(cache.blocks.size(), 50u) << "one call of the function was enough";
    errno = 0;
    EXPECT_EQ(cairn_private_heap_alloc(cache.heap, 5 * kMiB), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_TRUE(cache.blocks.empty()) << "the function was called until it had nothing left";
    EXPECT_LE(stats_of(cache.heap).peak_bytes, 4 * kMiB);
    EXPECT_EQ(stats_of(cache.heap).limit_bytes, 4 * kMiB);
    EXPECT_EQ(cairn_private_heap_delete(cache.heap), 0);
}

TEST(PrivateHeapOutOfMemory, ARequestAsksSoManyTimesAtMost)
{
    Cache cache;
    const cairn_private_heap_options options = {kMiB, Cache::again, &cache};
    cairn_private_heap *heap = cairn_private_heap_new(&options);
    EXPECT_EQ(cairn_private_heap_alloc(heap, 2 * kMiB), nullptr);
    EXPECT_EQ(cache.calls, CAIRN_PRIVATE_HEAP_TRIES);
    void *block = cairn_private_heap_alloc(heap, 100);
    EXPECT_EQ(cairn_private_heap_realloc(heap, block, 2 * kMiB), nullptr);
    EXPECT_EQ(cache.calls, 2 * CAIRN_PRIVATE_HEAP_TRIES);
    volatile size_t most = SIZE_MAX;
    EXPECT_EQ(cairn_private_heap_alloc(heap, most), nullptr);
    EXPECT_EQ(cache.calls, 2 * CAIRN_PRIVATE_HEAP_TRIES) << "no heap could serve the size";
    cairn_private_heap_delete(heap);
}

TEST(PrivateHeapEnd, NullAndAHeapWithoutBlocks)
{
    EXPECT_EQ(cairn_private_heap_delete(nullptr), 0);
    EXPECT_EQ(cairn_private_heap_delete(cairn_private_heap_new(nullptr)), 0);
}

TEST(PrivateHeapEnd, AllMemoryGoesBack)
{
    cairn_malloc_trim(0);
    cairn_heap_stats before, after;
    cairn_heap_read_stats(&before);
    for (int round = 0; round < 20; round++) {
        cairn_private_heap *heap = cairn_private_heap_new(nullptr);
        for (size_t i = 0; i < 5000; i++)
            memset(cairn_private_heap_alloc(heap, i), 1, i);
        cairn_private_heap_delete(heap);
    }
    cairn_malloc_trim(0);
    cairn_heap_read_stats(&after);
    EXPECT_EQ(after.allocated_bytes, before.allocated_bytes);
    EXPECT_EQ(after.slab_bytes, before.slab_bytes);
}

} // namespace private_heap_api_test
