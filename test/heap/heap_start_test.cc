// The start: once, whoever asks.

#include <thread>
#include <vector>

#include "heap/heap_layer.h"

extern "C" {
#include "heap/packed_words.h"
#include "page/state.h"
}

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

// What a slab's `limit` counts, for page/dense.h.
TEST(HeapStart, ThePageLayerKnowsWhatIsHandedOut)
{
    heap_start();
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        const uint32_t bytes = size_classes[i].size_bytes;
        EXPECT_EQ(pages_state.shapes[i].unit_bytes, bytes <= PAGE_BYTES ? bytes : 0) << i;
    }
    EXPECT_EQ(pages_state.shapes[PACKED_CLASS].unit_bytes * PACKED_WORDS,
              unsigned{PACKED_PAGES} << PAGE_SHIFT);
}

TEST(HeapStartDeathTest, TablesAreReadOnly)
{
    if (!config_sealed)
        GTEST_SKIP() << "full builds only";
    heap_start();
    EXPECT_EXIT(size_classes[0].size_bytes = 8, testing::KilledBySignal(SIGSEGV), "");
}

} // namespace
