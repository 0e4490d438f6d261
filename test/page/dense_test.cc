// Density of the last growth steps, as grow_is_touched() reads it from the slabs' headers.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "page/page_layer.h"

namespace dense_test
{

using page_layer::kMiB;
using page_layer::kShapes;
using page_layer::take_slab;

// Notes a growth for each of two adjacent parts of kSlabs slabs.
class Dense : public testing::Test
{
  protected:
    static constexpr size_t kSlabs = 256; // 4 MiB

    void SetUp() override
    {
        if (config_fences)
            GTEST_SKIP() << "slabs are between fences";
        page_layer::start();
        const bool is_first = nothing_was_noted;
        nothing_was_noted = false;
        EXPECT_FALSE(is_first && grow_is_touched()) << "no growth was noted";
        run_ = pages_take(2 * kSlabs * 4 + 16, PAGE_BYTES); // the slabs below are cut from this run
        ASSERT_NE(run_, nullptr);
        pages_give(run_);
        while (slabs_.size() < 2 * kSlabs) {
            slabs_.push_back(take_slab(1, true));
            ASSERT_NE(slabs_.back(), nullptr);
        }
        std::sort(slabs_.begin(), slabs_.end(),
                  [](auto *left, auto *right) { return left->base < right->base; });
        EXPECT_FALSE(is_first && grow_is_touched()) << "the run is only one growth";
        note(0);
        note(kSlabs);
    }
    void TearDown() override
    {
        for (struct span *slab : slabs_)
            pages_give_slab(slab, 0);
    }
    void note(size_t first)
    {
        const char *start = slabs_[first]->base;
        const char *end = slabs_[first + kSlabs - 1]->base + 4 * PAGE_BYTES;
        grow_note(start, static_cast<size_t>(end - start) >> PAGE_SHIFT);
    }
    void set_limits(size_t first, size_t end, uint64_t limit)
    {
        for (size_t i = first; i < end; i++)
            store_relaxed(&slabs_[i]->fresh_slot, limit);
    }

    static inline bool nothing_was_noted = true; // in this process
    struct span *run_ = nullptr;
    std::vector<struct span *> slabs_;
};

TEST_F(Dense, WhereNearlyAllWasHandedOut)
{
    EXPECT_TRUE(grow_is_touched());
    set_limits(0, kSlabs / 8, 1);
    EXPECT_TRUE(grow_is_touched()) << "some slabs are new";
    set_limits(0, kSlabs * 5 / 8, 1);
    EXPECT_FALSE(grow_is_touched());
}

TEST_F(Dense, NotWhereALittleOfEachSlabWas)
{
    set_limits(0, 2 * kSlabs, 2);
    EXPECT_FALSE(grow_is_touched());
    const uint64_t all = (kShapes[1].pages << PAGE_SHIFT) / kShapes[1].unit_bytes;
    set_limits(0, 2 * kSlabs, all / 2);
    EXPECT_FALSE(grow_is_touched());
    set_limits(0, 2 * kSlabs, all * 15 / 16 + 1);
    EXPECT_TRUE(grow_is_touched());
}

TEST_F(Dense, OneSparseGrowthIsEnough)
{
    const uint64_t all = slabs_[0]->fresh_slot;
    for (size_t first : {size_t{0}, kSlabs}) {
        set_limits(first, first + kSlabs, 1);
        EXPECT_FALSE(grow_is_touched()) << "slabs from " << first;
        set_limits(first, first + kSlabs, all);
        EXPECT_TRUE(grow_is_touched());
    }
}

TEST_F(Dense, WhatALongRunWasMadeForIsNotNoted)
{
    grow_note(slabs_[0]->base, GROW_NOTED_MAX + 1);
    EXPECT_TRUE(grow_is_touched());
}

// Notes a run or slab as the last two growths.
bool is_dense(const struct span *span, size_t pages)
{
    for (int i = 0; i < 2; i++)
        grow_note(span->base, pages);
    return grow_is_touched();
}

// Such blocks may be buffers or stacks that the program hardly uses. Nothing looks at them: a page
// may be protected, or filled by the program itself when it is touched first.
TEST_F(Dense, BlocksOfMoreThanAPageCountAsUntouched)
{
    constexpr size_t kPages = 4 * kMiB >> PAGE_SHIFT;
    struct span *run = pages_take(kPages, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    page_layer::fill(run, 1);
    EXPECT_FALSE(is_dense(run, kPages));
    pages_give(run);
    struct span *slab = take_slab(3, true);
    ASSERT_NE(slab, nullptr);
    EXPECT_FALSE(is_dense(slab, kShapes[3].pages));
    pages_give_slab(slab, 0);
    slab = take_slab(1, true);
    ASSERT_NE(slab, nullptr);
    EXPECT_TRUE(is_dense(slab, kShapes[1].pages));
    pages_give_slab(slab, 0);
}

// Slabs are taken and given back during the look. The case is for ThreadSanitizer.
TEST_F(Dense, LooksWhileSpansComeAndGo)
{
    std::atomic<bool> stop{false};
    std::thread looker([&] {
        while (!stop)
            (void)grow_is_touched();
    });
    for (int round = 0; round < 200; round++)
        for (size_t i = 0; i < slabs_.size(); i += 16) {
            pages_give_slab(slabs_[i], 0);
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

} // namespace dense_test
