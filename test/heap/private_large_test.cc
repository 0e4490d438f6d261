// Large blocks of private heaps: their count, and their end with the heap.

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "heap/private_layer.h"

namespace private_large_test
{

using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::own_heap;
using heap_layer::span_of;

class PrivateLarge : public heap_layer::PrivateHeapOfTest
{
};

TEST_F(PrivateLarge, CountsItsPagesWhileItIsInUse)
{
    void *blocks[] = {take(33 * kKiB), take(kMiB), take(33 * kMiB), take(50 * kKiB)};
    size_t pages = 0;
    for (void *block : blocks) {
        ASSERT_NE(block, nullptr);
        pages += span_of(block)->pages;
    }
    EXPECT_EQ(held(), pages << PAGE_SHIFT);
    for (void *block : blocks)
        free_fast(block);
    EXPECT_EQ(held(), 0u);
}

// ThreadSanitizer would report a race.
TEST_F(PrivateLarge, StatisticsAreReadWhileABlockIsResized)
{
    bool stop = false;
    std::thread resizing([this, &stop] {
        own_heap();
        void *block = take(5 * kMiB);
        for (size_t i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++)
            block = heap_resize(block, (i % 2 == 0 ? 3 : 5) * kMiB);
        free_fast(block);
    });
    for (int i = 0; i < 2000; i++) {
        cairn_private_heap_stats stats;
        private_heap_read_stats(private_heap_, &stats);
        EXPECT_LE(stats.large_blocks, 2u);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    resizing.join();
}

TEST_F(PrivateLarge, TheEndFreesThoseInUseAlone)
{
    const size_t before = heap_layer::stats().large_blocks;
    std::vector<void *> blocks(30);
    for (auto &block : blocks)
        block = take(100 * kKiB);
    for (size_t i = 0; i < blocks.size(); i += 3)
        free_fast(blocks[i]);
    void *other = heap_layer::allocate(100 * kKiB); /* perhaps one of those runs */
    private_heap_end(private_heap_);
    EXPECT_EQ(heap_layer::stats().large_blocks, before + 1);
    EXPECT_NE(page_map_find(other)->tag, SPAN_KEPT);
    free_fast(other);
    const cairn_private_heap_options none = {};
    private_heap_ = private_heap_new(&none); // the one that has just ended
    EXPECT_EQ(held(), 0u);
}

TEST_F(PrivateLarge, ARequestBeyondEverythingFails)
{
    EXPECT_EQ(take(SIZE_MAX), nullptr);
    EXPECT_EQ(take(PTRDIFF_MAX), nullptr);
    EXPECT_EQ(held(), 0u) << "the freed block no longer counts";
}

} // namespace private_large_test
