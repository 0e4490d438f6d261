// Growth of the arenas: what was asked for comes undivided, and, in hardened builds, no run of an
// arena goes far without a fence.

#include <gtest/gtest.h>

#include <csignal>

#include "page/page_layer.h"

namespace
{

class Grow : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }

    static void touch(volatile char *at) { *at = 1; }
};

class HardenedGrowDeathTest : public Grow
{
  protected:
    void SetUp() override
    {
        if (!config_fences)
            GTEST_SKIP() << "this build has no fences within arenas";
        Grow::SetUp();
    }
};

TEST_F(Grow, WhatWasAskedForIsUndivided)
{
    for (size_t pages : {size_t{1}, size_t{700}, size_t{5000}}) {
        const size_t committed = page_layer::stats().committed_bytes;
        ASSERT_TRUE(pages_grow(pages));
        EXPECT_GE(page_layer::stats().committed_bytes, committed + (pages << PAGE_SHIFT));
        const size_t grown = page_layer::stats().committed_bytes;
        struct span *span = pages_take(pages, PAGE_BYTES);
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(page_layer::stats().committed_bytes, grown) << "it was there";
        pages_give(span);
    }
    pages_verify();
}

TEST_F(Grow, ARefusalIsFalseAndLosesNothing)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    const size_t committed = page_layer::stats().committed_bytes;
    os_fault_plan(0, SIZE_MAX / 2, ENOMEM);
    EXPECT_FALSE(pages_grow(5000));
    os_fault_plan(0, 0, 0);
    EXPECT_EQ(page_layer::stats().committed_bytes, committed);
    EXPECT_TRUE(pages_grow(5000));
    pages_verify();
}

// No mebibyte of an arena is without one, however its pages are used.
TEST_F(HardenedGrowDeathTest, RunsOfAnArenaEndAtOne)
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

TEST_F(HardenedGrowDeathTest, LongRunsAreNotDivided)
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
