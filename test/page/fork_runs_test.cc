// Runs that are taken from fork runs while another thread forks and the page lock is frozen.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>

#include "page/page_layer.h"

namespace fork_runs_test
{

class ForkRuns : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_layer::start();
        page_layer::configure(1000, 1024 * page_layer::kMiB);
    }

    static struct span *take(size_t pages)
    {
        struct span *span = pages_take(pages, PAGE_BYTES);
        EXPECT_NE(span, nullptr);
        return span;
    }
};

TEST_F(ForkRuns, RunsAreMappedWhileTheLockIsFrozen)
{
    struct span *before = take(6);
    page_layer::fill(before, 4);
    const page_stats stats = page_layer::stats();
    pages_freeze();
    struct span *run = nullptr;
    struct span *slab = nullptr;
    std::thread([&] {
        run = pages_take(5, 64 * PAGE_BYTES);
        slab = pages_take_slab(1);
        EXPECT_FALSE(pages_extend(before, 7));
        pages_shrink(before, 2);
        EXPECT_EQ(before->pages, 6u) << "the run keeps its pages";
        pages_give(before); // waits in the deferred list
        pages_tick();
        pages_trim(0);
    }).join();
    pages_thaw();
    ASSERT_TRUE(run && slab);
    EXPECT_EQ(arena_of(run->base), nullptr);
    EXPECT_EQ(arena_of(slab->base), nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(run->base) % (64 * PAGE_BYTES), 0u);
    EXPECT_TRUE(run->zero && page_layer::reads(run->base, 5 * PAGE_BYTES, 0));
    EXPECT_EQ(page_map_find(run->base), run);
    for (size_t page = 0; page < 4; page++)
        EXPECT_EQ(page_map_find(slab->base + page * PAGE_BYTES), slab);
    EXPECT_EQ(page_layer::stats().free_bytes, stats.free_bytes)
        << "the deferred run is not settled yet";
    pages_give(take(1)); // settles the deferred list
    EXPECT_EQ(page_layer::stats().free_bytes, stats.free_bytes + 6 * PAGE_BYTES);
    pages_verify();
    char *places[] = {run->base, slab->base};
    pages_give(run);
    pages_give_slab(slab, 0);
    for (char *place : places)
        EXPECT_EQ(page_map_find(place)->tag, SPAN_NONE);
    EXPECT_EQ(page_layer::stats().free_bytes, stats.free_bytes + 6 * PAGE_BYTES)
        << "a mapping has no pages of an arena";
}

TEST_F(ForkRuns, TheyMayBeGivenBackWhileFrozenToo)
{
    pages_freeze();
    std::thread([] {
        struct span *run = pages_take(5, PAGE_BYTES);
        ASSERT_NE(run, nullptr);
        page_layer::fill(run, 1);
        pages_give(run);
    }).join();
    pages_thaw();
    pages_give(take(1));
}

// Memory that is taken and given back during a long fork is not held until its end.
TEST_F(ForkRuns, TheyAreUnmappedAtOnceWhenTheyAreGivenBackWhileFrozen)
{
    pages_freeze();
    std::thread([] {
        for (unsigned slab = 0; slab < 2; slab++) {
            struct span *run = slab != 0 ? pages_take_slab(1) : pages_take(5, PAGE_BYTES);
            ASSERT_NE(run, nullptr);
            char *place = run->base;
            unsigned char resident;
            EXPECT_EQ(mincore(place, 1, &resident), 0);
            slab != 0 ? pages_give_slab(run, 0) : pages_give(run);
            EXPECT_NE(mincore(place, 1, &resident), 0) << "the run is still mapped";
        }
        EXPECT_EQ(load_relaxed(&pages_state.fork_run_pages), 0u);
    }).join();
    pages_thaw();
}

} // namespace fork_runs_test
