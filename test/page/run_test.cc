// Runs of pages for the allocators other than the heap.

#include <gtest/gtest.h>

#include <cstring>

#include "cairn/heap.h"

extern "C" {
#include "os/memory.h"
#include "page/page.h"
}

namespace run_test
{

TEST(Run, WholePagesAlignedAsAsked)
{
    for (size_t align : {size_t{1}, size_t{4096}, size_t{65536}, size_t{2} << 20}) {
        for (size_t size : {size_t{1}, size_t{4096}, size_t{5000}, size_t{3} << 20}) {
            struct span *span = run_take(size, align);
            ASSERT_NE(span, nullptr);
            EXPECT_EQ(reinterpret_cast<uintptr_t>(span->base) % align, 0u);
            EXPECT_EQ(run_bytes(span),
                      (size + os_page_size() - 1) / os_page_size() * os_page_size());
            memset(span->base, 1, run_bytes(span));
            run_give(span);
        }
    }
}

TEST(Run, SizesThatNoMachineHas)
{
    for (size_t size : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX - 4095})
        EXPECT_EQ(run_take(size, 4096), nullptr);
}

TEST(Run, TheHeapTakesNoneForABlock)
{
    struct span *span = run_take(4096, 4096);
    EXPECT_EXIT(cairn_free(span->base), testing::KilledBySignal(SIGABRT), "^cairn: free of ");
    run_give(span);
}

} // namespace run_test
