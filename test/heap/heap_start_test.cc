// The start of the heap happens once, whichever thread calls it first.

#include <algorithm>
#include <thread>
#include <vector>

#include "heap/heap_layer.h"

extern "C" {
#include "page/state.h"
}

namespace heap_start_test
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

// The sizes of the slots below `fresh_slot`, from which page/grow.c reads what was handed out.
TEST(HeapStart, ThePageLayerKnowsWhatIsHandedOut)
{
    heap_start();
    for (unsigned i = 0; i < CLASS_COUNT; i++) {
        const uint32_t bytes = size_classes[i].size_bytes;
        const uint32_t slot_bytes = class_is_packed(i) ? uint32_t{PACKED_SLOT_BYTES} : bytes;
        EXPECT_EQ(pages_state.shapes[i].unit_bytes, slot_bytes) << i;
        EXPECT_EQ(pages_state.shapes[i].alignment_pages,
                  std::max(bytes & (0 - bytes), uint32_t{PAGE_BYTES}) / PAGE_BYTES);
    }
}

TEST(HeapStartDeathTest, TablesAreReadOnly)
{
    if (!config_sealed)
        GTEST_SKIP() << "full builds only";
    heap_start();
    EXPECT_EXIT(size_classes[0].size_bytes = 8, testing::KilledBySignal(SIGSEGV), "");
}

} // namespace heap_start_test
