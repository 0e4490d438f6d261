// The soft and the hard limit.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <atomic>
#include <thread>
#include <vector>

#include "page/page_layer.h"

extern "C" {
#include "os/process.h"
#include "page/limits.h"
}

namespace limits_test
{

// Setting of the limits: each alone, and all at once.

TEST(PageLimits, ByDefaultALargeHeapMayAskForHugePages)
{
    page_limits read;
    pages_read_limits(&read);
    EXPECT_EQ(read.huge_pages, HUGE_PAGES_AUTO);
}

TEST(PageLimits, WhatIsSetIsRead)
{
    page_layer::start();
    page_limits before;
    pages_read_limits(&before);
    page_limits limits = before;
    limits.decay_ms = 4711;
    limits.dirty_cap_bytes = 3 * page_layer::kMiB;
    limits.soft_limit_bytes = 1000 * page_layer::kMiB;
    limits.hard_limit_bytes = 2000 * page_layer::kMiB;
    pages_configure(&limits);
    page_limits read;
    pages_read_limits(&read);
    EXPECT_EQ(read.decay_ms, limits.decay_ms);
    EXPECT_EQ(read.dirty_cap_bytes, limits.dirty_cap_bytes);
    EXPECT_EQ(read.soft_limit_bytes, limits.soft_limit_bytes);
    EXPECT_EQ(read.hard_limit_bytes, limits.hard_limit_bytes);
    EXPECT_EQ(read.huge_pages, before.huge_pages);

    pages_limit_soft(0);
    pages_limit_hard(3000 * page_layer::kMiB);
    pages_read_limits(&read);
    EXPECT_EQ(read.soft_limit_bytes, 0u);
    EXPECT_EQ(read.hard_limit_bytes, 3000 * page_layer::kMiB);
    EXPECT_EQ(read.decay_ms, limits.decay_ms) << "only these limits change";
    pages_configure(&before);
}

// The limits: which memory counts, what is purged and what is refused, with one thread, with many,
// and in a child of fork.

using page_layer::configure;
using page_layer::fill;
using page_layer::kMiB;
using page_layer::stats;

constexpr size_t kPages = 16; // pages of a run in these tests
constexpr size_t kRunBytes = kPages << PAGE_SHIFT;
constexpr uint64_t kDecayMs = 1000000; // nothing decays by age here

class Limits : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_layer::start();
        configure(kDecayMs, 1024 * kMiB);
        pages_trim(0);
    }

    void TearDown() override
    {
        configure(kDecayMs, 1024 * kMiB);
        for (span *each : runs_)
            pages_give(each);
        pages_trim(0);
        pages_verify();
    }

    static size_t counted() { return stats().counted_bytes; }

    static void limit_hard(size_t more_bytes)
    {
        configure(kDecayMs, 1024 * kMiB, 0, counted() + more_bytes);
    }

    // Takes and writes up to `count` runs, fewer when one is refused.
    size_t take(size_t count)
    {
        for (size_t i = 0; i < count; i++) {
            span *run = pages_take(kPages, PAGE_BYTES);
            if (run == nullptr)
                return i;
            fill(run, 'x');
            runs_.push_back(run);
        }
        return count;
    }

    void give(size_t count)
    {
        for (; count > 0; count--) {
            pages_give(runs_.back());
            runs_.pop_back();
        }
    }

    std::vector<span *> runs_;
};

TEST_F(Limits, NothingPassesTheHardLimit)
{
    limit_hard(10 * kRunBytes);
    const size_t refused = stats().refusals;
    EXPECT_EQ(take(100), 10u);
    EXPECT_GT(stats().refusals, refused);
    give(3);
    EXPECT_EQ(take(100), 3u) << "released memory can be taken again";
}

// As when another thread removes the limit between the check and the purge.
TEST_F(Limits, ARemovedLimitRefusesNothing)
{
    const size_t refused = stats().refusals;
    EXPECT_TRUE(limits_purge_for_hard(kPages));
    EXPECT_EQ(stats().refusals, refused);
}

TEST_F(Limits, AMappingThatIsRefusedPurgesNothing)
{
    EXPECT_EQ(take(10), 10u);
    give(5);
    const size_t dirty = stats().dirty_bytes;
    EXPECT_GT(dirty, 0u);
    configure(kDecayMs, 1024 * kMiB, counted() + kMiB);
    span *huge = pages_map_huge(8 * 1024 * 1024 * kMiB, PAGE_BYTES);
    if (huge) {
        pages_give_huge(huge);
        GTEST_SKIP() << "this system gives 8 TiB";
    }
    EXPECT_EQ(stats().dirty_bytes, dirty);
}

// Otherwise threads would be refused memory while another one grows the heap.
TEST_F(Limits, AGrowthCountsNotBeforeItIsFree)
{
    limit_hard(10 * kRunBytes);
    const size_t before = counted();
    ASSERT_EQ(pages_grow(page_layer::shard, 2 * kMiB >> PAGE_SHIFT), 0); // leaves it deferred
    EXPECT_EQ(counted(), before);
    const size_t committed = stats().committed_bytes;
    EXPECT_EQ(take(100), 10u);
    EXPECT_GE(stats().committed_bytes, committed + 2 * kMiB);
    EXPECT_EQ(counted(), before + 10 * kRunBytes);
}

TEST_F(Limits, FreeMemoryThatWentBackDoesNotCountUntilItIsTakenAgain)
{
    ASSERT_EQ(take(40), 40u);
    give(40);
    pages_trim(0); // committed and free: no arena has to grow for it
    limit_hard(10 * kRunBytes);
    EXPECT_EQ(take(100), 10u);
}

TEST_F(Limits, DirtyMemoryGoesBackBeforeARefusal)
{
    ASSERT_EQ(take(20), 20u);
    limit_hard(0); // the twenty runs count from here on
    give(20);
    EXPECT_GE(stats().dirty_bytes, 20 * kRunBytes);
    span *huge = pages_map_huge(20 * kRunBytes, PAGE_BYTES);
    ASSERT_NE(huge, nullptr) << "the purge makes room below the limit";
    EXPECT_EQ(stats().dirty_bytes, 0u);
    EXPECT_EQ(pages_map_huge(kRunBytes, PAGE_BYTES), nullptr);
    EXPECT_EQ(take(1), 0u);
    pages_give_huge(huge);
    EXPECT_EQ(take(20), 20u);
}

TEST_F(Limits, AMappingThatGrowsCounts)
{
    limit_hard(40 * kRunBytes);
    span *huge = pages_map_huge(32 * kRunBytes, PAGE_BYTES);
    ASSERT_NE(huge, nullptr);
    const size_t before = counted();
    EXPECT_FALSE(pages_resize_huge(huge, 50 * kRunBytes, true));
    EXPECT_EQ(counted(), before) << "a refused request does not count";
    EXPECT_TRUE(pages_resize_huge(huge, 40 * kRunBytes, true));
    EXPECT_EQ(counted(), before + 8 * kRunBytes);
    EXPECT_TRUE(pages_resize_huge(huge, 8 * kRunBytes, true));
    EXPECT_EQ(counted(), before - 24 * kRunBytes);
    pages_give_huge(huge);
}

TEST_F(Limits, PagesInsideSlabsThatWentBackCountWhenTheyAreTakenAgain)
{
    span *slab = page_layer::take_slab(1, true); // 4 pages
    const size_t before = counted();
    pages_note_swept(3);
    EXPECT_EQ(counted(), before - 3 * PAGE_BYTES);
    EXPECT_EQ(stats().swept_bytes, size_t{3 * PAGE_BYTES});
    limit_hard(2 * PAGE_BYTES);
    EXPECT_FALSE(pages_take_swept(3));
    EXPECT_EQ(counted(), before - 3 * PAGE_BYTES) << "a refused request does not count";
    EXPECT_TRUE(pages_take_swept(2));
    EXPECT_EQ(counted(), before - PAGE_BYTES);
    pages_give_slab(slab, 1);
    EXPECT_EQ(stats().swept_bytes, 0u);
    EXPECT_LE(counted(), before - PAGE_BYTES) << "dirty memory above the limit was purged";
    pages_limit_hard(0);
    pages_trim(0);
    EXPECT_EQ(counted(), before - 4 * PAGE_BYTES) << "a page is counted twice";
}

TEST_F(Limits, DirtyMemoryGoesBackWhereSweptPagesAreTakenAgain)
{
    ASSERT_EQ(take(20), 20u);
    pages_note_swept(kPages); // of a slab that does not exist
    give(10);
    limit_hard(0);
    EXPECT_TRUE(pages_take_swept(kPages)) << "the purge makes room below the limit";
    EXPECT_EQ(stats().swept_bytes, 0u);
}

TEST_F(Limits, GrowthInPlaceCounts)
{
    ASSERT_EQ(take(2), 2u);
    span *first = runs_[0]->base < runs_[1]->base ? runs_[0] : runs_[1];
    span *second = first == runs_[0] ? runs_[1] : runs_[0];
    if (page_layer::end_of(first) != second->base)
        GTEST_SKIP() << "the two runs are not adjacent in this build";
    runs_ = {first};
    pages_give(second);
    pages_trim(0);
    limit_hard(kRunBytes / 2);
    EXPECT_FALSE(pages_extend(first, 2 * kPages));
    EXPECT_TRUE(pages_extend(first, kPages + kPages / 2));
}

TEST_F(Limits, TheSoftLimitPurgesAtEachTakeAndRefusesNothing)
{
    ASSERT_EQ(take(30), 30u);
    give(20);
    configure(kDecayMs, 1024 * kMiB, counted() + kRunBytes);
    span *huge = pages_map_huge(2 * kRunBytes, PAGE_BYTES);
    ASSERT_NE(huge, nullptr);
    EXPECT_EQ(stats().dirty_bytes, 0u);
    pages_give_huge(huge);
}

TEST_F(Limits, UnderPressureNothingFreeIsKept)
{
    ASSERT_EQ(take(30), 30u);
    give(10);
    EXPECT_GT(stats().dirty_bytes, 0u);
    pages_press(true);
    EXPECT_TRUE(stats().pressed);
    EXPECT_EQ(stats().dirty_bytes, 0u);
    give(10);
    EXPECT_EQ(stats().dirty_bytes, 0u);
    pages_press(false);
    give(10);
    EXPECT_GE(stats().dirty_bytes, 10 * kRunBytes) << "the usual policy applies again";
}

TEST_F(Limits, ManyThreadsNeverPassIt)
{
    constexpr int kThreads = 4;
    limit_hard(64 * kRunBytes);
    const size_t most = counted() + 64 * kRunBytes;
    std::atomic<bool> stop{false};
    std::atomic<size_t> refused{0};
    std::atomic<size_t> held{0}; // bytes that the threads hold at least
    std::atomic<size_t> peak{0};
    const size_t base = counted();
    const auto give_all = [&held](std::vector<span *> &own) {
        for (span *each : own) {
            held -= kRunBytes;
            load_relaxed(&each->tag) == SPAN_HUGE ? pages_give_huge(each) : pages_give(each);
        }
        own.clear();
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; i++)
        threads.emplace_back([&, i] {
            std::vector<span *> own;
            unsigned turn = static_cast<unsigned>(i);
            while (!stop) {
                const bool huge = ++turn % 5 == 0;
                span *run =
                    huge ? pages_map_huge(kRunBytes, PAGE_BYTES) : pages_take(kPages, PAGE_BYTES);
                if (run) {
                    const size_t now = held += kRunBytes;
                    size_t seen = peak;
                    while (seen < now && !peak.compare_exchange_weak(seen, now))
                        ;
                    own.push_back(run);
                }
                refused += run == nullptr;
                if (run == nullptr || own.size() > 30)
                    give_all(own);
            }
            give_all(own); // other threads may still take memory
        });
    for (int i = 0; i < 30000 && refused < 50; i++)
        os_sleep_ms(1);
    stop = true;
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_GT(refused, 0u);
    EXPECT_LE(base + peak, most);
}

TEST_F(Limits, AChildOfForkHasTheLimitToo)
{
    limit_hard(10 * kRunBytes);
    ASSERT_EQ(take(4), 4u);
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0)
        _exit(take(100) == 6 ? 0 : 1);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(take(100), 6u);
}

TEST_F(Limits, AChangeIsHeededAtOnce)
{
    ASSERT_EQ(take(20), 20u);
    give(10);
    pages_limit_hard(kRunBytes);
    pages_heed_limits();
    EXPECT_EQ(stats().dirty_bytes, 0u);
    EXPECT_EQ(take(1), 0u);
    pages_limit_hard(0);
    EXPECT_EQ(take(1), 1u);
    page_limits limits;
    pages_read_limits(&limits);
    EXPECT_EQ(limits.decay_ms, kDecayMs);
    EXPECT_EQ(limits.hard_limit_bytes, 0u);
}

} // namespace limits_test
