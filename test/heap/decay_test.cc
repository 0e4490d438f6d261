// Decay: free pages inside slabs are purged by their owner or by other threads when the time has
// come.

#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "base/stopped_thread.h"
#include "cairn/pages.h"
#include "heap/sweep_layer.h"

extern "C" {
#include "os/memory.h"
}

namespace decay_test
{

// Memory that is released without its owner: free pages inside slabs of idle threads' heaps, of
// orphans and of the thread's own heap.

using heap_layer::allocate;
using heap_layer::allocate_many;
using heap_layer::end_interval;
using heap_layer::IdleThread;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::pass_intervals;
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
    pass_intervals(3);
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
    idle.run([&] { // the owner gets the memory again, and each block once
        again = allocate_many(count_, GetParam());
        heap_layer::verify();
        for (void *block : again)
            free_fast(block);
    });
    std::sort(again.begin(), again.end());
    EXPECT_EQ(std::unique(again.begin(), again.end()), again.end());
}

// Every tenth block lives on and must keep its content.
TEST_P(Sweep, ReleaseReachesFreePagesBetweenLiveBlocks)
{
    if (GetParam() < 4 * kKiB)
        GTEST_SKIP() << "every page has blocks in use";
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
    // A quarantined block keeps the pages that it is in: two of a small block, nine of 30 KiB.
    const size_t quarantined_pages = QUARANTINE_SMALL * 2 + QUARANTINE_MEDIUM * 9;
    EXPECT_LE(resident(blocks, 1), 100 * kKiB + quarantined_pages * PAGE_BYTES);
    // Quarantined blocks keep their slabs, of up to 60 KiB each.
    EXPECT_LE(heap_layer::stats().slab_bytes, before + (config_quarantine ? 4 * kMiB : 300 * kKiB));
}

TEST_P(Sweep, FreePagesOfAnEndedThreadGoBackByTime)
{
    if (GetParam() < 4 * kKiB)
        GTEST_SKIP() << "every page has blocks in use";
    std::vector<void *> blocks;
    heap_layer::in_thread([&] { blocks = allocate_many(count_, GetParam()); });
    std::vector<void *> live;
    for (size_t i = 0; i < blocks.size(); i++)
        i % 10 == 0 ? live.push_back(blocks[i]) : free_fast(blocks[i]);
    pass_intervals(3);
    EXPECT_LE(resident(blocks, GetParam()),
              live.size() * (GetParam() + 2 * kKiB + os_page_size()) + 256 * kKiB);
    for (void *block : live)
        free_fast(block);
}

// The blocks of an idle thread end and their pages are released: the limits do not count these
// pages until that thread takes them again.
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

    // The bytes that count and are not free, at one instant. Pages that a thread purges are free.
    static size_t used()
    {
        while (!lock_acquire(&pages_state.lock))
            std::this_thread::yield();
        const page_stats now = pages();
        const size_t purging = load_relaxed(&pages_state.purging_dirty) << PAGE_SHIFT;
        lock_release(&pages_state.lock);
        return now.counted_bytes - smaller_of(now.dirty_bytes + purging, now.counted_bytes);
    }

    void free_all()
    {
        for (void *block : blocks_)
            free_fast(block);
        blocks_.clear();
        (void)heap_release(0);
    }

    size_t count_ = 0;
    size_t full_ = 0; // counted bytes while the blocks live
    size_t most_ = 0; // three quarters of the part of the blocks
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
    ASSERT_NE(large, nullptr) << "little memory is in use";
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
    EXPECT_GT(blocks_.size(), 0u) << "some blocks remain";
    EXPECT_LE(blocks_.size(), count_ / 2) << "the released pages count again";
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
    EXPECT_GT(pages().dirty_bytes, 0u) << "dirty pages were purged without need";
    pages_give_huge(mapping);
}

// The owner does not return whole slabs, so other free memory is released at once instead.
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

// A slab of which no page was released still serves at the limit, whatever slabs are before it.
TEST_P(SweepLimits, BlocksOnPagesThatStayedServeAtTheLimit)
{
    if (GetParam() < kKiB)
        GTEST_SKIP() << "each page has many blocks";
    free_all();
    idle_.run([] { heap_trim(thread_heap); }); // so that it has no blocks to lend
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
    EXPECT_LE(served, freed + 500) << "no other page serves";
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

// The child has the slabs of the idle thread unchanged: released pages have no memory, and do not
// count in the child either.
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
        // The pages of a slab that was given back count until they are purged.
        same = same && counted() <= full_;
        (void)heap_release(0);
        _exit(same && counted() < before && pages().swept_bytes < full_ ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    for (void *block : live)
        free_fast(block);
}

uint32_t use_of(const struct span *slab)
{
    return load_relaxed(&slab_cold(slab)->use) & ((1 << USE_BITS) - 1);
}

// A second release must not visit the links of all slabs.
TEST(Release, ASecondOneLooksAtNoSlabThatDidNotChange)
{
    if (!stopped_thread::kCanStop || config_hardened)
        GTEST_SKIP() << "needs x86-64's trap flag; hardened builds visit all slabs";
    constexpr size_t kBlocks = 100000, kBytes = 64, kSlabs = kBlocks * kBytes / (16 * kKiB);
#if defined(__SANITIZE_ADDRESS__)
    // a visit of all links takes 250 slots times ten instructions
    constexpr size_t kInstructions = 1000;
#else
    constexpr size_t kInstructions = 200;
#endif
    const pid_t child = fork(); // single steps need a process without other threads
    if (child == 0) {
        stopped_thread::StoppedThread again([] { (void)heap_release(0); },
                                            [] {
                                                for (size_t i = 0; i < kBlocks; i++)
                                                    (void)allocate(kBytes);
                                                (void)heap_release(0);
                                            });
        _exit(again.stop_after(kInstructions * kSlabs) ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "more than " << kInstructions << " instructions a slab";
}

// A release sees every change of a slab since the last release.
TEST(Release, EachOneFindsWhatWasFreedSince)
{
    for (size_t size : {64 * size_t{1}, 1000 * size_t{1}, 3 * kKiB, 12 * kKiB, 30 * kKiB}) {
        std::vector<void *> blocks = allocate_many(4 * kMiB / size, size);
        (void)heap_release(0);
        const size_t pages = (size + PAGE_BYTES - 1) / PAGE_BYTES;
        size_t before = resident(blocks, size);
        // This thread and another one free parts of the blocks, each followed by a release.
        for (size_t part = 0; part < 6; part++) {
            const size_t first = part * blocks.size() / 6;
            const size_t end = (part + 1) * blocks.size() / 6;
            const auto free_part = [&] {
                for (size_t i = first; i < end; i++)
                    free_fast(blocks[i]);
            };
            part % 2 == 0 ? free_part() : heap_layer::in_thread(free_part);
            (void)heap_release(0);
            const size_t after = resident(blocks, size);
            EXPECT_LE(after + (end - first) * size, before + 256 * kKiB + pages * PAGE_BYTES)
                << size << " part " << part;
            before = after;
        }
        heap_layer::verify();
    }
}

// The owner frees the last block of a slab while another thread releases its pages, and gives the
// slab back as soon as possible: the other thread, which is about to post the slab, finds it
// without an owner.
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

// Checks for work that is due by age happen in every kind of program.

class DueWork : public heap_layer::OwnHeap
{
};

// Memory is also released while a program needs no new slab.
TEST_F(DueWork, ACycleOfOneBlockAsksWhatIsDue)
{
    for (size_t size : {size_t{64}, 2 * kKiB, 100 * kKiB}) {
        if (config_quarantine && size > SMALL_BLOCK_MAX)
            continue; // some of its blocks always wait: the slab is never empty
        free_fast(allocate(size));
        store_relaxed(&pages_state.interval_start_ms, uint64_t{0});
        for (int i = 0; i < 2000; i++)
            free_fast(allocate(size));
        EXPECT_NE(load_relaxed(&pages_state.interval_start_ms), 0u) << size;
    }
}

// Changing the length of large blocks, without any allocation or free, is enough.
TEST_F(DueWork, ResizingALargeBlockAsksWhatIsDue)
{
    for (size_t size : {100 * kKiB, size_t{40} << 20}) {
        void *block = allocate(size);
        for (size_t length : {size * 2, size}) {
            store_relaxed(&pages_state.interval_start_ms, uint64_t{0});
            block = heap_resize(block, length);
            ASSERT_NE(block, nullptr);
            EXPECT_NE(load_relaxed(&pages_state.interval_start_ms), 0u) << size << " to " << length;
        }
        free_fast(block);
    }
}

// A thread that only frees other threads' blocks makes no other check, so its frees have to check.
TEST(DueWorkOfOthers, AThreadThatOnlyFreesOthersBlocksAsksWhatIsDue)
{
    IdleThread idle;
    std::vector<void *> blocks;
    idle.run([&] { blocks = allocate_many(40000, 64); });
    end_interval();
    for (void *block : blocks)
        free_fast(block);
    EXPECT_NE(load_relaxed(&pages_state.interval_start_ms), 0u);
}

// Calls for pages may end an interval, and must then age the runs that threads keep.
TEST_F(DueWork, PagesForAProgramAgeWhatThreadsKeep)
{
    if (config_guarded_blocks)
        GTEST_SKIP() << "large blocks are mappings";
    constexpr size_t kBytes = 128 * kKiB;
    free_fast(malloc_slow(100 * kKiB));
    const auto keeps_any = [] {
        for (size_t place = 0; place < RUN_CACHE_SLABS; place++)
            if (load_relaxed(&thread_heap->runs.places[place]) != 0)
                return true;
        return false;
    };
    ASSERT_TRUE(keeps_any());
    for (int i = 0; i < 2; i++) {
        end_interval();
        EXPECT_EQ(cairn_pages_unmap(cairn_pages_map(kBytes, PAGE_BYTES, 0), kBytes), 0);
    }
    EXPECT_FALSE(keeps_any());
}

} // namespace decay_test
