// The fast paths of hardened builds: zero when freed, and when handed out.

#include <string>

#include <sys/resource.h>

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

long page_faults()
{
    struct rusage usage;
    EXPECT_EQ(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

// Looked at first, and then written: that made two.
TEST_F(HardenFast, AFreshPageOfAMediumBlockFaultsOnce)
{
#ifndef __x86_64__
    GTEST_SKIP() << "a word is read first elsewhere";
#endif
    if (!config_zero_freed || config_tsan || os_page_size() != PAGE_BYTES)
        GTEST_SKIP() << "full builds only, and pages are counted";
    constexpr size_t kBytes = 24 * kKiB;
    constexpr size_t kBlocks = 200;
    for (int i = 0; i < 8; i++)
        (void)allocate(kBytes);
    const long before = page_faults();
    for (size_t i = 0; i < kBlocks; i++)
        memset(allocate(kBytes), 1, kBytes);
    const auto pages = static_cast<long>(kBlocks * kBytes / PAGE_BYTES);
    EXPECT_LE(page_faults() - before, pages + pages / 4);
}

} // namespace
