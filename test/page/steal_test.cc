// Pages of an arena for metadata: from behind the frontier or from a free run, between fences.

#include <thread>
#include <utility>
#include <vector>

#include "page/fence_kit.h"

namespace
{

using fence_kit::expect_fenced;

class StealDeathTest : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }

    // As if all of every arena were committed.
    static char *steal_from_free_runs(size_t bytes)
    {
        std::vector<size_t> frontiers;
        for (size_t i = 0; i < arena_count(); i++)
            frontiers.push_back(std::exchange(arena_at(i)->frontier, arena_at(i)->pages));
        char *stolen = fenced_steal(bytes);
        for (size_t i = 0; i < frontiers.size(); i++)
            arena_at(i)->frontier = frontiers[i];
        return stolen;
    }
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
    char *used = steal_from_free_runs(bytes);
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
    char *stolen = steal_from_free_runs(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(stolen) % os_page_size(), 0u);
    expect_fenced(stolen, bytes);
    pages_give(behind);
    pages_verify();
}

// No run is long enough before the slabs' loose ones are merged.
TEST_F(StealDeathTest, AlsoFromWhatSlabsLeft)
{
    if (config_random_runs)
        GTEST_SKIP() << "slabs' runs are merged at once";
    const size_t bytes = 2 * os_page_size();
    const size_t least = (bytes + 3 * os_page_size()) >> PAGE_SHIFT; // with fences, and a rest
    std::vector<struct span *> slabs(40);
    struct span *room = pages_take(slabs.size() * page_layer::kShapes[1].pages, PAGE_BYTES);
    ASSERT_NE(room, nullptr);
    pages_give(room);
    for (struct span *&slab : slabs)
        ASSERT_NE(slab = pages_take_slab(1), nullptr);
    std::vector<struct span *> others;
    for (struct span *span; (span = bins_find(least, 1)) != nullptr;)
        ASSERT_NE(others.emplace_back(pages_take(span->pages, PAGE_BYTES)), nullptr);
    for (struct span *slab : slabs)
        pages_give_slab(slab);
    ASSERT_EQ(bins_find(least, 1), nullptr);
    expect_fenced(steal_from_free_runs(bytes), bytes);
    for (struct span *span : others)
        pages_give(span);
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
