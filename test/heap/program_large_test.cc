// Large blocks of first-class heaps: what they count for, and their end with the heap.

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "heap/program_layer.h"

namespace
{

using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::own_heap;
using heap_layer::span_of;

class ProgramLarge : public heap_layer::ProgramHeapOfTest
{
};

TEST_F(ProgramLarge, CountsItsPagesWhileItIsInUse)
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

// A race that ThreadSanitizer would see.
TEST_F(ProgramLarge, StatisticsAreReadWhileABlockIsResized)
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
        program_stats stats;
        program_read_stats(program_, &stats);
        EXPECT_LE(stats.large_blocks, 2u);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    resizing.join();
}

TEST_F(ProgramLarge, TheEndFreesThoseInUseAlone)
{
    std::vector<void *> blocks(30);
    for (auto &block : blocks)
        block = take(100 * kKiB);
    for (size_t i = 0; i < blocks.size(); i += 3)
        free_fast(blocks[i]);
    void *other = heap_layer::allocate(100 * kKiB); /* one of those runs, perhaps */
    program_end_large(program_);
    EXPECT_EQ(held(), 0u);
    EXPECT_NE(page_map_find(other)->tag, SPAN_KEPT);
    free_fast(other);
}

TEST_F(ProgramLarge, ARequestBeyondEverythingFails)
{
    EXPECT_EQ(take(SIZE_MAX), nullptr);
    EXPECT_EQ(take(PTRDIFF_MAX), nullptr);
    EXPECT_EQ(held(), 0u) << "and counts for nothing";
}

} // namespace
