// Fences: pages without permissions before and behind the heap's mappings, and within arenas.

#include <gtest/gtest.h>

#include <set>

#include "page/page_layer.h"

namespace
{

class FenceDeathTest : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (!config_fences)
            GTEST_SKIP() << "this build has no fences";
        page_layer::start();
    }
    static void touch(volatile char *at) { *at = 1; }
};

TEST_F(FenceDeathTest, MappingsAreBetweenThem)
{
    char *start = fenced_map(16 * PAGE_BYTES);
    ASSERT_NE(start, nullptr);
    memset(start, 1, 16 * PAGE_BYTES);
    EXPECT_EXIT(touch(start - 1), testing::KilledBySignal(SIGSEGV), "");
    EXPECT_EXIT(touch(start + 16 * PAGE_BYTES), testing::KilledBySignal(SIGSEGV), "");
    fenced_unmap(start, 16 * PAGE_BYTES);
}

TEST_F(FenceDeathTest, PlacesAreRandom)
{
    std::set<char *> places;
    for (int i = 0; i < 20; i++) {
        char *start = fenced_reserve(16 * PAGE_BYTES, true);
        ASSERT_NE(start, nullptr);
        places.insert(start);
        fenced_unmap(start, 16 * PAGE_BYTES);
    }
    EXPECT_GT(places.size(), 15u) << "the place of the last one was free again";
}

// No mebibyte of an arena is without one, however its pages are used.
TEST_F(FenceDeathTest, RunsOfAnArenaEndAtOne)
{
    struct span *first = pages_take(4, PAGE_BYTES);
    ASSERT_NE(first, nullptr);
    char *at = first->base;
    const auto run_on = [&] {
        for (size_t i = 0; i < 1024 * 1024; i++)
            touch(at + i);
    };
    EXPECT_EXIT(run_on(), testing::KilledBySignal(SIGSEGV), "");
    const auto run_back = [&] {
        for (size_t i = 0; i < 1024 * 1024; i++)
            touch(at - i);
    };
    EXPECT_EXIT(run_back(), testing::KilledBySignal(SIGSEGV), "");
    pages_give(first);
}

TEST_F(FenceDeathTest, LongRunsAreNotDivided)
{
    for (size_t pages : {size_t{33}, size_t{64}, size_t{700}, size_t{5000}}) {
        struct span *span = pages_take(pages, PAGE_BYTES);
        ASSERT_NE(span, nullptr);
        memset(span->base, 1, pages << PAGE_SHIFT);
        pages_give(span);
    }
    pages_verify();
}

} // namespace
