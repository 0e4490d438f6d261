// Fences: pages without permissions before and behind the heap's mappings, and, in hardened builds,
// within arenas.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <set>

#include "page/page_layer.h"

namespace
{

void touch(volatile char *at) { *at = 1; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kReportsFaults = true; // the sanitizer's handler does, and exits
#else
constexpr bool kReportsFaults = false;
#endif

bool faulted(int status)
{
    return kReportsFaults ? WIFEXITED(status) && WEXITSTATUS(status) != 0
                          : WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

class FenceDeathTest : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }

    static void expect_fenced(char *start, size_t bytes)
    {
        ASSERT_NE(start, nullptr);
        memset(start, 1, bytes);
        const char *report = kReportsFaults ? "SEGV" : "";
        EXPECT_EXIT(touch(start - 1), faulted, report);
        EXPECT_EXIT(touch(start + bytes), faulted, report);
    }
};

class HardenedFenceDeathTest : public FenceDeathTest
{
  protected:
    void SetUp() override
    {
        if (!config_fences)
            GTEST_SKIP() << "this build has no fences within arenas";
        page_layer::start();
    }
};

TEST_F(FenceDeathTest, MappingsAreBetweenThem)
{
    char *start = fenced_map(16 * PAGE_BYTES);
    expect_fenced(start, 16 * PAGE_BYTES);
    fenced_unmap(start, 16 * PAGE_BYTES);
}

TEST_F(FenceDeathTest, StolenPagesAreBetweenThem)
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

TEST_F(HardenedFenceDeathTest, PlacesAreRandom)
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
TEST_F(HardenedFenceDeathTest, RunsOfAnArenaEndAtOne)
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

TEST_F(HardenedFenceDeathTest, LongRunsAreNotDivided)
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
