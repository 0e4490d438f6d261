// Density where the heap grows, as the headers of its slabs say it.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "page/page_layer.h"

namespace
{

using page_layer::kMiB;
using page_layer::kShapes;
using page_layer::take_slab;

// Notes a growth for each part of so many slabs, one behind the other.
class Dense : public testing::Test
{
  protected:
    static constexpr size_t kSlabs = 256; // 4 MiB

    void SetUp() override
    {
        if (config_fences)
            GTEST_SKIP() << "slabs lie between fences";
        page_layer::start();
        const bool is_first = nothing_was_noted;
        nothing_was_noted = false;
        EXPECT_FALSE(is_first && dense_is_filled()) << "of no growth";
        run_ = pages_take(2 * kSlabs * 4 + 16, PAGE_BYTES); // all that comes next lies in there
        ASSERT_NE(run_, nullptr);
        pages_give(run_);
        while (slabs_.size() < 2 * kSlabs) {
            slabs_.push_back(take_slab(1, true));
            ASSERT_NE(slabs_.back(), nullptr);
        }
        std::sort(slabs_.begin(), slabs_.end(),
                  [](auto *left, auto *right) { return left->base < right->base; });
        EXPECT_FALSE(is_first && dense_is_filled()) << "that of the run is but one";
        note(0);
        note(kSlabs);
    }
    void TearDown() override
    {
        for (struct span *slab : slabs_)
            pages_give_slab(slab);
    }
    void note(size_t first)
    {
        const char *start = slabs_[first]->base;
        const char *end = slabs_[first + kSlabs - 1]->base + 4 * PAGE_BYTES;
        dense_note_growth(start, static_cast<size_t>(end - start) >> PAGE_SHIFT);
    }
    void set_limits(size_t first, size_t end, uint64_t limit)
    {
        for (size_t i = first; i < end; i++)
            store_relaxed(&slabs_[i]->limit, limit);
    }

    static inline bool nothing_was_noted = true; // in this process
    struct span *run_ = nullptr;
    std::vector<struct span *> slabs_;
};

TEST_F(Dense, WhereNearlyAllWasHandedOut)
{
    EXPECT_TRUE(dense_is_filled());
    set_limits(0, kSlabs / 8, 1);
    EXPECT_TRUE(dense_is_filled()) << "some slabs have just begun";
    set_limits(0, kSlabs / 2, 1);
    EXPECT_FALSE(dense_is_filled());
}

TEST_F(Dense, NotWhereALittleOfEachSlabWas)
{
    set_limits(0, 2 * kSlabs, 2);
    EXPECT_FALSE(dense_is_filled());
    const uint64_t all = (kShapes[1].pages << PAGE_SHIFT) / kShapes[1].unit_bytes;
    set_limits(0, 2 * kSlabs, all / 2);
    EXPECT_FALSE(dense_is_filled());
    set_limits(0, 2 * kSlabs, all * 15 / 16 + 1);
    EXPECT_TRUE(dense_is_filled());
}

TEST_F(Dense, OneSparseGrowthIsEnough)
{
    const uint64_t all = slabs_[0]->limit;
    for (size_t first : {size_t{0}, kSlabs}) {
        set_limits(first, first + kSlabs, 1);
        EXPECT_FALSE(dense_is_filled()) << "slabs from " << first;
        set_limits(first, first + kSlabs, all);
        EXPECT_TRUE(dense_is_filled());
    }
}

TEST_F(Dense, WhatALongRunWasMadeForIsNotNoted)
{
    dense_note_growth(slabs_[0]->base, DENSE_GROWTH_MOST + 1);
    EXPECT_TRUE(dense_is_filled());
}

TEST_F(Dense, OfRunsAndLongBlocksNobodyKnows)
{
    struct span *run = pages_take(kMiB >> PAGE_SHIFT, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    page_layer::fill(run, 1);
    for (int i = 0; i < 2; i++)
        dense_note_growth(run->base, kMiB >> PAGE_SHIFT);
    EXPECT_FALSE(dense_is_filled());
    pages_give(run);
    std::vector<struct span *> slabs;
    for (int i = 0; i < 4; i++)
        slabs.push_back(take_slab(2, true));
    for (int i = 0; i < 2; i++)
        dense_note_growth(slabs[static_cast<size_t>(i)]->base, kShapes[2].pages);
    EXPECT_FALSE(dense_is_filled());
    for (struct span *slab : slabs)
        pages_give_slab(slab);
}

// Slabs come and go while it is looked: for ThreadSanitizer.
TEST_F(Dense, LooksWhileSpansComeAndGo)
{
    std::atomic<bool> stop{false};
    std::thread looker([&] {
        while (!stop)
            (void)dense_is_filled();
    });
    for (int round = 0; round < 200; round++)
        for (size_t i = 0; i < slabs_.size(); i += 16) {
            pages_give_slab(slabs_[i]);
            struct span *run = pages_take(3, PAGE_BYTES);
            slabs_[i] = take_slab(1, true);
            if (run)
                pages_give(run);
            ASSERT_NE(slabs_[i], nullptr);
        }
    stop = true;
    looker.join();
    pages_verify();
}

} // namespace
