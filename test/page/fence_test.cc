// Fences: pages without permissions before and behind the heap's mappings.

#include <set>

#include "page/fence_kit.h"

namespace
{

using fence_kit::expect_fenced;

class FenceDeathTest : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }
};

TEST_F(FenceDeathTest, MappingsAreBetweenThem)
{
    char *start = fenced_map(16 * PAGE_BYTES);
    expect_fenced(start, 16 * PAGE_BYTES);
    fenced_unmap(start, 16 * PAGE_BYTES);
}

TEST_F(FenceDeathTest, PlacesAreRandomInHardenedBuilds)
{
    if (!config_random_runs || config_tsan)
        GTEST_SKIP() << "this build puts nothing at random places";
    std::set<char *> places;
    for (int i = 0; i < 20; i++) {
        char *start = fenced_reserve(16 * PAGE_BYTES, true);
        ASSERT_NE(start, nullptr);
        places.insert(start);
        fenced_unmap(start, 16 * PAGE_BYTES);
    }
    EXPECT_GT(places.size(), 15u) << "the place of the last one was free again";
}

} // namespace
