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
    const size_t bytes = 2 * os_page_size();
    const size_t taken = 5 * bytes;
    struct span *first = pages_take(taken >> PAGE_SHIFT, PAGE_BYTES);
    ASSERT_NE(first, nullptr);
    const size_t committed = page_layer::stats().committed_bytes;
    const size_t free_bytes = page_layer::stats().free_bytes;
    char *fresh = fenced_steal(bytes); // from behind the frontier
    expect_fenced(fresh, bytes);
    EXPECT_EQ(page_layer::stats().committed_bytes, committed);
    page_layer::fill(first, 1);
    pages_give(first);
    struct arena *arena = arena_at(arena_count() - 1);
    const size_t frontier = arena->frontier;
    arena->frontier = arena->pages; // as if all of it were committed
    char *used = fenced_steal(bytes);
    arena->frontier = frontier;
    ASSERT_NE(used, nullptr);
    EXPECT_TRUE(page_layer::reads(used, bytes, 0));
    expect_fenced(used, bytes);
    EXPECT_LE(page_layer::stats().free_bytes, free_bytes + taken - bytes);
    pages_verify();
}

// A free run may end in the middle of a page of the system's; what was taken there had no fences.
TEST_F(StealDeathTest, AlsoFromTheMiddleOfASystemPage)
{
    const size_t bytes = 2 * os_page_size();
    struct span *odd = pages_take((8 * bytes >> PAGE_SHIFT) + 1, os_page_size());
    struct span *behind = pages_take(1, PAGE_BYTES);
    ASSERT_TRUE(odd && behind);
    pages_give(odd);
    struct arena *arena = arena_at(arena_count() - 1);
    const size_t frontier = arena->frontier;
    arena->frontier = arena->pages; // as if all of it were committed
    char *stolen = fenced_steal(bytes);
    arena->frontier = frontier;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(stolen) % os_page_size(), 0u);
    expect_fenced(stolen, bytes);
    pages_give(behind);
    pages_verify();
}

TEST_F(StealDeathTest, NothingIsStolenWhileTheLockIsFrozen)
{
    struct span *run = pages_take(100, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    pages_give(run);
    const size_t bytes = 2 * os_page_size();
    pages_freeze();
    std::thread([=] { EXPECT_EQ(fenced_steal(bytes), nullptr); }).join();
    pages_thaw();
    EXPECT_NE(fenced_steal(bytes), nullptr);
    pages_verify();
}

} // namespace
