// The start: once, whoever asks.

#include <thread>
#include <vector>

#include "heap/heap_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::stats;

TEST(HeapStart, StartsOnceFromAnyThread)
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; i++)
        threads.emplace_back([] {
            heap_start();
            free_fast(allocate(10));
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(size_classes[0].size_bytes, 16u);
    EXPECT_EQ(stats().live_blocks, 0u);
}

TEST(HeapStartDeathTest, TablesAreReadOnly)
{
    if (!config_sealed)
        GTEST_SKIP() << "full builds only";
    heap_start();
    EXPECT_EXIT(size_classes[0].size_bytes = 8, testing::KilledBySignal(SIGSEGV), "");
}

} // namespace
