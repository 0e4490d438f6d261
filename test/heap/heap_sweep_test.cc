// Memory that comes home without its owner: pages inside slabs on which nothing lives, of idle
// threads' heaps, of orphans and of the own one.

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
