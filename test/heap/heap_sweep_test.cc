// Memory that comes home without its owner: pages inside slabs on which nothing lives, of idle
// threads' heaps, of orphans and of the own one.

#include <sys/wait.h>
#include <unistd.h>

#include "base/stopped_thread.h"
#include "heap/sweep_layer.h"

namespace
{

using heap_layer::allocate;
using heap_layer::allocate_many;
using heap_layer::end_interval;
using heap_layer::IdleThread;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::resident;
using heap_layer::span_of;

class Sweep : public heap_layer::OwnHeap, public testing::WithParamInterface<size_t>
{
  protected:
    void SetUp() override
    {
        OwnHeap::SetUp();
        count_ = 4 * kMiB / GetParam();
    }
    size_t count_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Sizes, Sweep, testing::Values(16, 100, 1000, 4 * kKiB, 30 * kKiB),
                         testing::PrintToStringParamName());

TEST_P(Sweep, WhatOthersFreedOfAnIdleThreadGoesBackByTime)
{
    IdleThread idle;
    std::vector<void *> blocks;
    idle.run([&] { blocks = allocate_many(count_, GetParam()); });
    EXPECT_GE(resident(blocks, GetParam()), 3 * kMiB);
    for (void *block : blocks)
        free_fast(block);
    for (int i = 0; i < 3; i++) {
        end_interval();
        heaps_tick();
    }
    EXPECT_LE(resident(blocks, GetParam()), 256 * kKiB);
    idle.run([] { heap_layer::verify(); });
}

TEST_P(Sweep, ReleaseReachesWhatOthersFreedOfAnIdleThread)
{
    IdleThread idle;
    std::vector<void *> blocks;
    idle.run([&] { blocks = allocate_many(count_, GetParam()); });
    for (void *block : blocks)
        free_fast(block);
    EXPECT_TRUE(heap_release(0));
    EXPECT_LE(resident(blocks, GetParam()), 256 * kKiB);
    EXPECT_FALSE(heap_release(0));
    std::vector<void *> again;
    idle.run([&] { // its memory serves it again, and none of it twice
        again = allocate_many(count_, GetParam());
        heap_layer::verify();
        for (void *block : again)
            free_fast(block);
    });
    std::sort(again.begin(), again.end());
    EXPECT_EQ(std::unique(again.begin(), again.end()), again.end());
}

// Every tenth block lives on; those must keep what they hold.
TEST_P(Sweep, ReleaseReachesFreePagesBetweenLiveBlocks)
{
    if (GetParam() < 4 * kKiB)
        GTEST_SKIP() << "blocks in use on every page";
    IdleThread idle;
    std::vector<void *> blocks;
    std::vector<void *> live;
    idle.run([&] {
        blocks = allocate_many(count_, GetParam());
        for (size_t i = 0; i < blocks.size(); i++)
            i % 10 == 0 ? live.push_back(blocks[i]) : free_fast(blocks[i]);
    });
    EXPECT_TRUE(heap_release(0));
    EXPECT_LE(resident(blocks, GetParam()),
              live.size() * (GetParam() + 2 * kKiB + os_page_size()) + 256 * kKiB);
    for (void *block : live) {
        const char *bytes = static_cast<const char *>(block);
        for (size_t i = 0; i < GetParam(); i++)
            ASSERT_EQ(bytes[i], 1);
        free_fast(block);
    }
    idle.run([] { heap_layer::verify(); });
}

TEST_P(Sweep, AThreadWhoseBlocksAllEndedHoldsLittleAfterARelease)
{
    (void)heap_release(0);
    const size_t before = heap_layer::stats().slab_bytes;
    IdleThread idle;
    std::vector<void *> blocks;
    idle.run([&] {
        for (size_t size = 16; size <= 30 * kKiB; size += size / 8 + 1)
            for (void *block : allocate_many(larger_of(200 * kKiB / size, size_t{3}), size))
                blocks.push_back(block);
        for (void *block : blocks)
            free_fast(block);
    });
    (void)heap_release(0);
    EXPECT_LE(resident(blocks, 1), (config_quarantine ? 740 : 100) * kKiB);
    // Quarantined blocks keep their slabs.
    EXPECT_LE(heap_layer::stats().slab_bytes, before + (config_quarantine ? 3 * kMiB : 300 * kKiB));
}

TEST_P(Sweep, FreePagesOfAnEndedThreadGoBackByTime)
{
    if (GetParam() < 4 * kKiB)
        GTEST_SKIP() << "blocks in use on every page";
    std::vector<void *> blocks;
    heap_layer::in_thread([&] { blocks = allocate_many(count_, GetParam()); });
    std::vector<void *> live;
    for (size_t i = 0; i < blocks.size(); i++)
        i % 10 == 0 ? live.push_back(blocks[i]) : free_fast(blocks[i]);
    for (int i = 0; i < 3; i++) {
        end_interval();
        heaps_tick();
    }
    EXPECT_LE(resident(blocks, GetParam()),
              live.size() * (GetParam() + 2 * kKiB + os_page_size()) + 256 * kKiB);
    for (void *block : live)
        free_fast(block);
}

// The blocks of an idle thread end, and the pages go: the limits count them no more, until that
// thread takes them again.
class SweepLimits : public heap_layer::OwnHeap, public testing::WithParamInterface<size_t>
{
  protected:
    void SetUp() override
    {
        OwnHeap::SetUp();
        (void)heap_release(0);
        count_ = 8 * kMiB / GetParam();
        const size_t before = counted();
        idle_.run([&] { blocks_ = allocate_many(count_, GetParam()); });
        full_ = counted();
        most_ = (full_ - before) / 4 * 3;
    }
    void TearDown() override
    {
        pages_limit_hard(0);
        pages_limit_soft(0);
        heap_verify_given();
        OwnHeap::TearDown();
    }
    static page_stats pages()
    {
        page_stats pages;
        pages_read_stats(&pages);
        return pages;
    }
    static size_t counted() { return pages().counted_bytes; }

    // What counts and is not free, of one instant.
    static size_t used()
    {
        while (!lock_acquire(&pages_state.lock))
            std::this_thread::yield();
        const page_stats now = pages();
        lock_release(&pages_state.lock);
        return now.counted_bytes - smaller_of(now.dirty_bytes, now.counted_bytes);
    }

    void free_all()
    {
        for (void *block : blocks_)
            free_fast(block);
        blocks_.clear();
        (void)heap_release(0);
    }

    size_t count_ = 0;
    size_t full_ = 0; // what counts while the blocks live
    size_t most_ = 0; // three quarters of what the blocks take of it
    std::vector<void *> blocks_;
    IdleThread idle_;
};

INSTANTIATE_TEST_SUITE_P(Sizes, SweepLimits, testing::Values(16, 100, 1000, 4 * kKiB, 30 * kKiB),
                         testing::PrintToStringParamName());

TEST_P(SweepLimits, WhatWentBackLeavesRoomBelowTheHardLimitUntilItIsTakenAgain)
{
    free_all();
    pages_limit_hard(full_);
    void *large = allocate(most_);
    ASSERT_NE(large, nullptr) << "hardly anything is in use";
    memset(large, 1, most_);
    idle_.run([&] {
        for (void *block; blocks_.size() < count_ && (block = allocate(GetParam())) != nullptr;) {
            memset(block, 1, GetParam());
            blocks_.push_back(block);
            ASSERT_LE(counted(), full_);
        }
        heap_layer::verify();
        heap_verify_given();
    });
    EXPECT_GT(blocks_.size(), 0u) << "some of it is left";
    EXPECT_LE(blocks_.size(), count_ / 2) << "those pages count again";
    free_fast(large);
    free_all();
    EXPECT_LE(counted(), full_ - most_);
}

TEST_P(SweepLimits, WhatWentBackIsNoReasonToPurgeForTheSoftLimit)
{
    free_all();
    pages_limit_soft(full_ - most_);
    pages_give(pages_take(16, PAGE_BYTES));
    struct span *mapping = pages_map_huge(PAGE_BYTES, PAGE_BYTES);
    EXPECT_GT(pages().dirty_bytes, 0u) << "purged for nothing";
    pages_give_huge(mapping);
}

// It does not come back whole: what else is free by then goes instead, at once.
TEST_P(SweepLimits, ItsOwnerMayGiveTheSlabsBack)
{
    free_all();
    pages_limit_hard(full_);
    void *large = allocate(most_);
    ASSERT_NE(large, nullptr);
    idle_.run([&] {
        heap_trim(thread_heap);
        EXPECT_LE(counted(), full_);
        heap_layer::verify();
    });
    EXPECT_LE(counted(), full_);
    void *more = allocate(kMiB / 2);
    EXPECT_NE(more, nullptr);
    free_fast(more);
    free_fast(large);
}

// A slab none of whose pages went serves on at the limit, whatever slabs stand before it.
TEST_P(SweepLimits, BlocksOnPagesThatStayedServeAtTheLimit)
{
    if (GetParam() < kKiB)
        GTEST_SKIP() << "each page has many blocks";
    free_all();
    std::vector<void *> first = allocate_many(count_ / 2, GetParam());
    std::vector<void *> second = allocate_many(count_ / 2, GetParam());
    std::vector<void *> live;
    for (size_t i = 0; i < first.size(); i++)
        i % 30 == 0 ? live.push_back(first[i]) : free_fast(first[i]);
    quarantine_flush(heap_);
    (void)heap_release(0);
    EXPECT_GT(pages().swept_bytes, 0u);
    size_t freed = 0;
    for (size_t i = 0; i < second.size(); i++)
        if (i % 4 == 0 && ++freed)
            free_fast(second[i]);
        else
            live.push_back(second[i]);
    quarantine_flush(heap_);
    pages_limit_hard(counted());
    size_t served = 0;
    for (void *block; served < count_ && (block = allocate(GetParam())) != nullptr; served++)
        live.push_back(block);
    EXPECT_GE(served, freed / 2);
    EXPECT_LE(served, freed + 500) << "and no page more";
    EXPECT_LE(counted(), load_relaxed(&pages_state.limits.hard_limit_bytes));
    pages_limit_hard(0);
    live.push_back(allocate(GetParam()));
    for (void *block : live)
        free_fast(block);
    heap_trim(heap_);
}

TEST_P(SweepLimits, ManyThreadsTakeThemAgainAndNeverPassIt)
{
    free_all();
    pages_limit_hard(full_);
    std::atomic<size_t> most{0};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 3; i++)
        threads.emplace_back([&, i] {
            std::vector<void *> own;
            for (unsigned turn = 0; turn < 30; turn++) {
                const size_t size = turn % 3 == i ? 300 * kKiB : GetParam();
                void *block = nullptr;
                while (own.size() < 2 * kMiB / size && (block = allocate(size)) != nullptr)
                    own.push_back(block);
                size_t seen = most;
                const size_t now = used();
                while (seen < now && !most.compare_exchange_weak(seen, now))
                    ;
                for (void *each : own)
                    free_fast(each);
                own.clear();
                if (turn % 4 == i)
                    (void)heap_release(0);
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_LE(most, full_);
    heap_verify_given();
}

// The child has the slabs of the idle thread as they were: what was given back of them has no
// memory, and does not count there either.
TEST_P(SweepLimits, AChildOfForkKnowsWhatWentBack)
{
    std::vector<void *> live;
    for (size_t i = 0; i < blocks_.size(); i++)
        i % 50 == 0 ? live.push_back(blocks_[i]) : free_fast(blocks_[i]);
    (void)heap_release(0);
    const size_t before = counted();
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        bool same = counted() == before;
        for (void *block : live)
            free_fast(block);
        _exit(same && counted() <= before && pages().swept_bytes <= full_ ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    for (void *block : live)
        free_fast(block);
}

uint32_t use_of(const struct span *slab)
{
    return load_relaxed(&slab_remote(slab)->use) & ((1 << USE_BITS) - 1);
}

// The owner frees the last block of a slab while another thread gives its pages back, and gives the
// slab back itself as soon as it may: the other thread, about to post it, finds it nobody's.
TEST(SweepStep, TheOwnerGivesASlabBackBeforeItIsPosted)
{
    if (!stopped_thread::kCanStop)
        GTEST_SKIP() << "needs x86-64's trap flag";
    constexpr size_t kSize = 4 * kKiB;
    bool stopped = true;
    for (size_t n = 0; stopped; n++) {
        IdleThread owner;
        void *last = nullptr;
        owner.run([&] {
            std::vector<void *> blocks = allocate_many(100, kSize);
            last = blocks[0];
            for (void *block : blocks)
                if (block != last)
                    free_fast(block);
            quarantine_flush(thread_heap);
        });
        struct span *slab = span_of(last);
        stopped_thread::StoppedThread sweeper([] { (void)heap_release(0); });
        ASSERT_TRUE(sweeper.stop_when([&] { return use_of(slab) == SLAB_PURGED; }));
        owner.run([&] {
            free_fast(last);
            quarantine_flush(thread_heap);
        });
        ASSERT_EQ(use_of(slab), SLAB_EMPTIED);
        ASSERT_TRUE(sweeper.stop_when([&] { return use_of(slab) == SLAB_ASIDE; }));
        stopped = n < 100 && sweeper.stop_after(n);
        owner.run([] { heap_trim(thread_heap); });
        sweeper.finish();
    }
}

} // namespace
