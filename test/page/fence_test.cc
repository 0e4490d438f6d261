// Fences: pages without permissions before and behind the mappings of the heap.

#include <cerrno>
#include <fstream>
#include <set>

#include "page/fence_kit.h"

extern "C" {
#include "os/fault.h"
#include "os/memory.h"
}

namespace fence_test
{

using fence_kit::expect_fenced;

class FenceDeathTest : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }
};

TEST_F(FenceDeathTest, MetadataIsBetweenThem)
{
    char *start = fenced_reserve(16 * PAGE_BYTES, false);
    ASSERT_NE(start, nullptr);
    ASSERT_EQ(os_commit(start, 16 * PAGE_BYTES), 0);
    expect_fenced(start, 16 * PAGE_BYTES);
    fenced_unmap(start, 16 * PAGE_BYTES);
}

size_t address_space_bytes()
{
    std::ifstream statm("/proc/self/statm");
    size_t pages = 0;
    statm >> pages;
    return pages * os_page_size();
}

TEST_F(FenceDeathTest, AnAlignedRangeIsBetweenThemAndNoLonger)
{
    (void)address_space_bytes();
    for (size_t pages : {size_t{512}, size_t{1024}, size_t{2048}, size_t{700}}) {
        const size_t bytes = pages << PAGE_SHIFT;
        const size_t before = address_space_bytes();
        char *start = fenced_reserve_aligned(bytes, HUGE_PAGE_BYTES);
        ASSERT_NE(start, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(start) % HUGE_PAGE_BYTES, 0u);
        const size_t after = address_space_bytes();
        EXPECT_TRUE(config_tsan || CAIRN_TEST_EMULATED || // qemu-user makes mappings of its own
                    after - before == bytes + 2 * os_page_size());
        ASSERT_EQ(os_commit(start, bytes), 0);
        expect_fenced(start, bytes);
        fenced_unmap(start, bytes);
    }
}

// Under a limit on address space the heap grows where it can, aligned or not.
TEST_F(FenceDeathTest, WithoutTheAddressesItIsNotAligned)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    os_fault_plan(0, 1, ENOMEM);
    char *start = fenced_reserve_aligned(HUGE_PAGE_BYTES, HUGE_PAGE_BYTES);
    os_fault_plan(0, 0, 0);
    ASSERT_NE(start, nullptr);
    ASSERT_EQ(os_commit(start, HUGE_PAGE_BYTES), 0);
    expect_fenced(start, HUGE_PAGE_BYTES);
    fenced_unmap(start, HUGE_PAGE_BYTES);
}

TEST_F(FenceDeathTest, PlacesAreRandomInHardenedBuilds)
{
    if (!config_random_runs || config_tsan)
        GTEST_SKIP() << "this build chooses no random places";
    std::set<char *> places;
    for (int i = 0; i < 20; i++) {
        char *start = fenced_reserve(16 * PAGE_BYTES, true);
        ASSERT_NE(start, nullptr);
        places.insert(start);
        fenced_unmap(start, 16 * PAGE_BYTES);
    }
    EXPECT_GT(places.size(), 15u) << "the places are not random";
}

} // namespace fence_test
