// The sums of cairn-advise, from events that the test makes. Each case needs a process of its own,
// since the tables are static.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

extern "C" {
#include "advise.h"
#include "heap/size_class.h"
}

namespace
{

// Return addresses, outermost first.
using Stack = std::vector<uint64_t>;

class AdviseCore : public testing::Test
{
  protected:
    void SetUp() override { ASSERT_TRUE(advice_start(&advice, true)); }

    void TearDown() override { free(advice.site_of_stack); }

    uint32_t stack(const Stack &outer_first)
    {
        Stack inner_first(outer_first.rbegin(), outer_first.rend());
        uint32_t number = ++stacks;
        EXPECT_TRUE(paths_add(number, outer_first.data(), unsigned(outer_first.size())));
        EXPECT_TRUE(place_add(&advice, number, inner_first.data(), unsigned(inner_first.size())));
        return number;
    }

    void happens(advise_kind kind, uint32_t at, uint64_t address, uint64_t size = 0,
                 uint32_t thread = 1)
    {
        advise_event event = {kind, thread, at, address, size, now += 10};
        advice_event(&advice, &event);
    }
    void make(uint32_t at, uint64_t address, uint64_t size = 32, uint32_t thread = 1)
    {
        happens(ADVISE_ALLOCATE, at, address, size, thread);
    }
    void end(uint32_t at, uint64_t address, uint32_t thread = 1)
    {
        happens(ADVISE_FREE, at, address, 0, thread);
    }
    const site &of(uint32_t number) { return advice.sites[advice.site_of_stack[number]]; }

    struct advice advice = {};
    uint32_t stacks = 0;
    uint64_t now = 0;
};

TEST_F(AdviseCore, RoundsLikeTheHeap)
{
    size_classes_init();
    for (size_t size = 1; size <= MEDIUM_BLOCK_MAX; size++)
        ASSERT_EQ(class_bytes(size), size_classes[class_of_size(size)].size_bytes) << size;
    EXPECT_EQ(class_bytes(0), 16U);
    EXPECT_EQ(class_bytes(32769), 36864U);
}

TEST_F(AdviseCore, FindsBlocksLikeAMap)
{
    std::mt19937_64 random(7);
    std::map<uint64_t, uint64_t> model;
    for (int step = 0; step < 200000; step++) {
        uint64_t address = 8 * (random() % 5000) + 4096;
        block *found = block_find(address);
        ASSERT_EQ(found != nullptr, model.count(address) == 1);
        if (found != nullptr) {
            ASSERT_EQ(found->size_bytes, model[address]);
            block_remove(found);
            model.erase(address);
        } else {
            block_add(address)->size_bytes = model[address] = random();
        }
        ASSERT_EQ(blocks_live(), model.size());
    }
}

TEST_F(AdviseCore, AScopeIsFreedInAnAncestor)
{
    uint32_t made = stack({1, 10, 101, 500}), ended = stack({1, 10, 105}), other = stack({1, 11});
    for (int round = 0; round < 10; round++) {
        make(made, 1000);
        make(made, 2000);
        end(ended, 2000);
        end(ended, 1000);
        make(other, 3000);
        end(other, 3000);
    }
    advice_finish(&advice);
    EXPECT_EQ(of(made).frees, 20U);
    EXPECT_EQ(of(made).in_ancestor, 20U);
    EXPECT_EQ(of(made).ancestor_depth, 20U);
    EXPECT_EQ(of(made).same_function, 0U);
    EXPECT_EQ(of(made).last_in, 20U);
    EXPECT_EQ(of(made).drains, 10U);
}

TEST_F(AdviseCore, ABlockOfTheCallBeforeIsNoScope)
{
    uint32_t made = stack({1, 10, 105}), ended = stack({1, 10, 101}), other = stack({1, 11});
    make(made, 1000); // the call below frees the block of the call before
    for (int round = 0; round < 10; round++) {
        end(ended, 1000);
        make(made, 1000);
    }
    EXPECT_EQ(of(made).before, 10U);
    EXPECT_EQ(of(made).in_ancestor, 0U);
    make(other, 3000); // an event shows that the function returned in between
    end(ended, 1000);
    EXPECT_EQ(of(made).left, 1U);
}

TEST_F(AdviseCore, OrdersOfFrees)
{
    uint32_t queue = stack({1, 10}), group = stack({1, 20}), frees = stack({1, 30});
    for (uint64_t i = 0; i < 1000; i++) {
        make(queue, 100000 + 16 * i);
        if (i >= 50)
            end(frees, 100000 + 16 * (i - 50));
    }
    const unsigned order[] = {2, 0, 3, 1};
    for (uint64_t i = 0; i < 100; i++) {
        for (uint64_t j = 0; j < 4; j++)
            make(group, 500000 + 64 * i + 16 * j);
        for (uint64_t j = 0; i != 0 && j < 4; j++)
            end(frees, 500000 + 64 * (i - 1) + 16 * order[j]);
    }
    advice_finish(&advice);
    EXPECT_EQ(of(queue).ascending, 950U);
    EXPECT_EQ(of(queue).live_most, 51U);
    EXPECT_EQ(of(queue).grouped, 0U);
    EXPECT_EQ(of(group).grouped, 396U);
    EXPECT_EQ(of(group).groups, 99U);
    EXPECT_EQ(of(group).last_in, 0U);
}

TEST_F(AdviseCore, GrowthMovesAndThreads)
{
    uint32_t list = stack({1, 10}), frees = stack({1, 30});
    make(list, 1000, 64);
    for (uint64_t i = 1; i <= 4; i++) {
        happens(ADVISE_RESIZE_FROM, list, 1000 * i);
        happens(ADVISE_RESIZE_TO, list, 1000 * (i + 1), 64 * (i + 1));
    }
    happens(ADVISE_RESIZE, list, 5000, 400);
    happens(ADVISE_RESIZE_FROM, list, 5000);
    happens(ADVISE_RESIZE_FAILED, list, 5000);
    end(frees, 5000, 2);
    advice_finish(&advice);
    EXPECT_EQ(of(list).resizes, 5U);
    EXPECT_EQ(of(list).grown_blocks, 1U);
    EXPECT_EQ(of(list).grown_steps, 5U);
    EXPECT_EQ(of(list).grown_final_bytes, 400U);
    EXPECT_EQ(of(list).copied_bytes, 64U * (1 + 2 + 3 + 4));
    EXPECT_EQ(grown_size(&of(list), 9), 400U);
    EXPECT_EQ(of(list).other_thread, 1U);
    EXPECT_EQ(advice.live_bytes, 0U);
    EXPECT_EQ(advice.peak_bytes, 400U);
}

// One list in ten becomes much longer than the others, and another list hardly grows.
TEST_F(AdviseCore, SizesThatMostReach)
{
    uint32_t list = stack({1, 10}), large = stack({1, 20}), frees = stack({1, 30});
    for (uint64_t i = 0; i < 100; i++) {
        make(list, 1000, 16);
        for (uint64_t size : {32U, 64U, i < 60 ? 900U : i < 90 ? 1100U : 100000U})
            happens(ADVISE_RESIZE, list, 1000, size);
        end(frees, 1000);
    }
    make(large, 2000, 1);
    for (uint64_t size = 1; size < uint64_t{1} << 40; size *= 2)
        happens(ADVISE_RESIZE, large, 2000, size);
    advice_finish(&advice);
    EXPECT_EQ(grown_size(&of(list), 5), 1024U);
    EXPECT_EQ(grown_size(&of(list), 9), 1280U);
    EXPECT_EQ(grown_size(&of(list), 10), 100000U);
    EXPECT_EQ(grown_size(&of(large), 5), uint64_t{1} << 39);
}

TEST_F(AdviseCore, WhatLivesAtThePeak)
{
    uint32_t one = stack({1, 10}), two = stack({1, 11}), frees = stack({1, 30});
    make(one, 1000, 100);
    make(two, 2000, 50);
    end(frees, 1000);
    make(two, 3000, 40); // 90: below the peak
    advice_finish(&advice);
    EXPECT_EQ(advice.peak_bytes, 150U);
    EXPECT_EQ(of(one).peak_bytes, 100U);
    EXPECT_EQ(of(two).peak_bytes, 50U);
    EXPECT_EQ(of(two).peak_lost, class_bytes(50) - 50);
    EXPECT_EQ(of(two).live_bytes, 90U);
}

TEST_F(AdviseCore, FewBlocksPinPages)
{
    uint32_t many = stack({1, 10}), few = stack({1, 11}), frees = stack({1, 30});
    for (uint64_t page = 0; page < 64; page++)
        for (uint64_t i = 0; i < 64; i++)
            make(i == 7 ? few : many, ADVISE_PAGE_BYTES * (100 + page) + 64 * i, 64);
    for (uint64_t page = 0; page < 64; page++)
        for (uint64_t i = 0; i < 64; i++)
            if (i != 7)
                end(frees, ADVISE_PAGE_BYTES * (100 + page) + 64 * i);
    EXPECT_EQ(of(few).pinned_bytes, 0U)
        << "the number of blocks still falls, perhaps to the program's end";
    for (uint64_t i = 0; i < 1000; i++)
        make(many, ADVISE_PAGE_BYTES * 200 + 64 * i, 64);
    advice_finish(&advice);
    EXPECT_EQ(of(few).pinned_bytes, 64U * (ADVISE_PAGE_BYTES - 64));
    EXPECT_LE(of(many).pinned_bytes, uint64_t(ADVISE_PAGE_BYTES)) << "the current page of the site";
}

TEST_F(AdviseCore, StacksThatDifferByRecursionAreOneSite)
{
    uint32_t once = stack({1, 10, 20, 30}), twice = stack({1, 10, 20, 20, 20, 30});
    uint32_t other = stack({1, 10, 21, 30});
    make(once, 1000);
    make(twice, 2000);
    make(other, 3000);
    EXPECT_EQ(&of(once), &of(twice));
    EXPECT_EQ(of(once).allocations, 2U);
    EXPECT_EQ(of(other).allocations, 1U);
}

TEST_F(AdviseCore, TheTimeLineStaysShort)
{
    uint32_t at = stack({1, 10});
    for (uint64_t i = 0; i < 100000; i++)
        make(at, 4096 + 16 * i, 16);
    advice_finish(&advice);
    ASSERT_LE(advice.point_count, unsigned(POINTS));
    ASSERT_GE(advice.point_count, unsigned(POINTS / 2));
    for (unsigned i = 1; i < advice.point_count; i++) {
        EXPECT_LT(advice.points[i - 1].live_bytes, advice.points[i].live_bytes + 1);
        EXPECT_EQ(of(at).points_live[i], advice.points[i].live_bytes);
    }
    EXPECT_EQ(advice.points[advice.point_count - 1].allocated_bytes, 1600000U);
}

TEST_F(AdviseCore, TheTimeLineHasTheShortestPeak)
{
    uint32_t steady = stack({1, 10});
    uint32_t brief = stack({1, 20});
    for (uint64_t i = 0; i < 100000; i++) {
        make(steady, 4096 + 16 * i, 16);
        if (i == 33333) {
            make(brief, 16, 100 << 20);
            end(brief, 16);
        }
    }
    advice_finish(&advice);
    uint64_t most = 0;
    uint64_t most_brief = 0;
    unsigned times = 0;
    for (unsigned i = 0; i < advice.point_count; i++) {
        most = std::max(most, advice.points[i].live_bytes);
        most_brief = std::max(most_brief, of(brief).points_live[i]);
        times += of(brief).points_live[i] > 0;
    }
    EXPECT_EQ(most, advice.peak_bytes);
    EXPECT_EQ(most_brief, 100U << 20);
    EXPECT_EQ(times, 1U);
}

// Each thread writes times only at intervals, so that of a later event may be older.
TEST_F(AdviseCore, ABlockIsNotFreedBeforeItIsMade)
{
    uint32_t at = stack({1, 10});
    now = 100000;
    make(at, 1000);
    now = 20000;
    end(at, 1000, 2);
    advice_finish(&advice);
    EXPECT_EQ(of(at).life_ns[0], 1U);
    EXPECT_EQ(advice.last_ns, advice.first_ns);
    EXPECT_EQ(advice.points[advice.point_count - 1].time_ns, advice.first_ns);
}

TEST_F(AdviseCore, FreesOfWhatIsNotKnownAreCounted)
{
    uint32_t at = stack({1, 10});
    end(at, 1000);
    happens(ADVISE_RESIZE_FROM, at, 2000);
    happens(ADVISE_RESIZE_TO, at, 3000, 100);
    end(at, 3000);
    advice_finish(&advice);
    EXPECT_EQ(advice.unknown_frees, 1U);
    EXPECT_EQ(advice.live, 0U);
    EXPECT_EQ(advice.allocations, 1U);
}

} // namespace
