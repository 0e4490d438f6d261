// The fast paths of hardened builds: zero when freed, and when handed out.

#include <string>

#include "heap/harden_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::kKiB;

class HardenFast : public heap_layer::HardenedHeap
{
};

using HardenFastDeathTest = HardenFast;

TEST_F(HardenFastDeathTest, AWriteAfterFreeIsSeenAtReuse)
{
    if (!config_zero_freed)
        GTEST_SKIP() << "full builds only";
    for (size_t size : {size_t{8}, size_t{40}, size_t{1000}, 9 * kKiB}) {
        for (size_t at : {size_t{0}, size / 2, size - 1}) {
            const auto write_after_free = [&] {
                volatile char *block = static_cast<char *>(allocate(size));
                char *pointer = const_cast<char *>(block);
                free_fast(pointer);
                block[at] = 1;
                quarantine_flush(heap_);
                for (int i = 0; i < 4000; i++)
                    (void)allocate(size);
            };
            EXPECT_EXIT(write_after_free(), testing::KilledBySignal(SIGABRT),
                        "^cairn: write after free to 0x[0-9a-f]+ \\([0-9]+-byte block\\)\n$")
                << size << " at " << at;
        }
    }
}

TEST_F(HardenFastDeathTest, ASizedFreeNamesTheExactSize)
{
    for (size_t size : {size_t{1}, size_t{40}, size_t{1000}, 9 * kKiB}) {
        void *block = allocate(size);
        for (size_t wrong : {size - 1, size + 1}) {
            EXPECT_EXIT(heap_free_sized(block, wrong, 1), testing::KilledBySignal(SIGABRT),
                        "^cairn: free_sized of 0x[0-9a-f]+ with size " + std::to_string(wrong) +
                            " \\([0-9]+-byte block\\)\n$");
        }
        const auto twice = [&] {
            heap_free_sized(block, size, 1);
            heap_free_sized(block, size, 1);
        };
        EXPECT_EXIT(twice(), testing::KilledBySignal(SIGABRT), "^cairn: double free of ");
        heap_free_sized(block, size, 1);
    }
    heap_layer::verify();
}

TEST_F(HardenFast, BlocksAreZeroWhenTheyAreHandedOut)
{
    if (!config_zero_freed)
        GTEST_SKIP() << "full builds only";
    for (int i = 0; i < 20000; i++) {
        const size_t size = static_cast<size_t>(1 + i * 37 % 3000);
        char *block = static_cast<char *>(allocate(size));
        for (size_t at = 0; at < size; at++)
            ASSERT_EQ(block[at], 0);
        memset(block, 0xee, size);
        free_fast(block);
    }
}

} // namespace
