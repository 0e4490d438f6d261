// Pages of an arena for metadata: from behind the frontier or from a free run, between fences.

#include <thread>

#include "page/fence_kit.h"

namespace
{

using fence_kit::expect_fenced;

class StealDeathTest : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }
};

TEST_F(StealDeathTest, StolenPagesAreBetweenFences)
{
    struct span *first = pages_take(100, PAGE_BYTES);
    ASSERT_NE(first, nullptr);
    const size_t committed = page_layer::stats().committed_bytes;
    const size_t free_bytes = page_layer::stats().free_bytes;
    char *fresh = fenced_steal(2 * PAGE_BYTES); // from behind the frontier
    expect_fenced(fresh, 2 * PAGE_BYTES);
    EXPECT_EQ(page_layer::stats().committed_bytes, committed);
    page_layer::fill(first, 1);
    pages_give(first);
    struct arena *arena = arena_at(arena_count() - 1);
    const size_t frontier = arena->frontier;
    arena->frontier = arena->pages; // as if all of it were committed
    char *used = fenced_steal(2 * PAGE_BYTES);
    arena->frontier = frontier;
    ASSERT_NE(used, nullptr);
    EXPECT_TRUE(page_layer::reads(used, 2 * PAGE_BYTES, 0));
    expect_fenced(used, 2 * PAGE_BYTES);
    EXPECT_LE(page_layer::stats().free_bytes, free_bytes + 100 * PAGE_BYTES - 2 * PAGE_BYTES);
    pages_verify();
}

TEST_F(StealDeathTest, NothingIsStolenWhileTheLockIsFrozen)
{
    struct span *run = pages_take(100, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    pages_give(run);
    pages_freeze();
    std::thread([] { EXPECT_EQ(fenced_steal(2 * PAGE_BYTES), nullptr); }).join();
    pages_thaw();
    EXPECT_NE(fenced_steal(2 * PAGE_BYTES), nullptr);
    pages_verify();
}

} // namespace
