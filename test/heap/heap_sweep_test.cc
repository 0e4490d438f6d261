// Memory that comes home without its owner: pages inside slabs on which nothing lives, of idle
// threads' heaps, of orphans and of the own one.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "heap/heap_layer.h"

extern "C" {
#include "heap/heap_sweep.h"
#include "page/state.h"
}

namespace
{

using heap_layer::allocate;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::span_of;

// Bytes in memory of the pages that the blocks touch.
size_t resident(const std::vector<void *> &blocks, size_t size)
{
    const uintptr_t granule = os_page_size();
    std::vector<uintptr_t> pages;
    for (void *block : blocks)
        for (uintptr_t page = align_down(reinterpret_cast<uintptr_t>(block), granule);
             page < reinterpret_cast<uintptr_t>(block) + size; page += granule)
            pages.push_back(page);
    std::sort(pages.begin(), pages.end());
    pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
    size_t bytes = 0;
    for (uintptr_t page : pages) {
        unsigned char in_memory = 0;
        if (mincore(reinterpret_cast<void *>(page), granule, &in_memory) == 0)
            bytes += (in_memory & 1) != 0 ? granule : 0;
    }
    return bytes;
}

std::vector<void *> allocate_many(size_t count, size_t size)
{
    std::vector<void *> blocks;
    for (size_t i = 0; i < count; i++) {
        blocks.push_back(allocate(size));
        memset(blocks.back(), 1, size);
    }
    return blocks;
}

// A thread that does what it is given and is idle otherwise.
class IdleThread
{
  public:
    IdleThread() : thread_([this] { serve(); }) {}
    ~IdleThread()
    {
        run(nullptr);
        thread_.join();
    }
    void run(std::function<void()> body)
    {
        body_ = std::move(body);
        turn_.store(true, std::memory_order_release);
        while (turn_.load(std::memory_order_acquire))
            std::this_thread::yield();
    }

  private:
    void serve()
    {
        for (bool more = true; more; turn_.store(false, std::memory_order_release)) {
            while (!turn_.load(std::memory_order_acquire))
                std::this_thread::sleep_for(std::chrono::microseconds(100));
            more = static_cast<bool>(body_);
            if (more)
                body_();
            body_ = nullptr;
        }
    }

    std::function<void()> body_;
    std::atomic<bool> turn_{false};
    std::thread thread_;
};

// The decay interval under way is over; whoever asks next does what is due.
void end_interval() { store_relaxed(&pages_state.interval_start_ms, uint64_t{0}); }

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

// What has not changed between two sweeps goes, what has stays.
TEST_P(Sweep, TheOwnFreePagesGoBackByTime)
{
    if (GetParam() < 4 * kKiB)
        GTEST_SKIP() << "blocks in use on every page";
    std::vector<void *> blocks = allocate_many(count_, GetParam());
    std::vector<void *> live;
    for (size_t i = 0; i < blocks.size(); i++)
        i % 10 == 0 ? live.push_back(blocks[i]) : free_fast(blocks[i]);
    harden_flush(heap_);
    sweep_heap(heap_);
    const size_t after_one = resident(blocks, GetParam());
    sweep_heap(heap_);
    EXPECT_LE(resident(blocks, GetParam()), after_one * 2 / 3 + 512 * kKiB);
    heap_layer::verify();
    for (void *block : live)
        free_fast(block);
    heap_trim(heap_);
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

// A thread that only frees others' blocks asks for nothing else: its frees have to ask what is due.
TEST(SweepTime, AThreadThatOnlyFreesOthersBlocksAsksWhatIsDue)
{
    IdleThread idle;
    std::vector<void *> blocks;
    idle.run([&] { blocks = allocate_many(40000, 64); });
    end_interval();
    for (void *block : blocks)
        free_fast(block);
    EXPECT_NE(load_relaxed(&pages_state.interval_start_ms), 0u);
}

// A cycle of medium blocks asks now and then, not at each free, whether all other classes came to
// their end.
TEST(SweepTime, ACycleGivesBackWhatOtherClassesKeepSpare)
{
    if (config_quarantine)
        GTEST_SKIP() << "blocks wait before their slab is empty";
    struct heap *heap = heap_layer::own_heap();
    heap_trim(heap);
    for (size_t size = 2 * kKiB; size <= 16 * kKiB; size += 2 * kKiB)
        free_fast(allocate(size));
    const auto cycle = [] {
        for (int i = 0; i < 64; i++)
            free_fast(allocate(3 * kKiB));
    };
    cycle();
    const size_t spare = heap->spare_bytes;
    EXPECT_GT(spare, 64 * kKiB);
    heap->settled_ms = 0; // another interval has begun
    cycle();
    EXPECT_LE(heap->spare_bytes, spare / 4);
    heap_layer::verify();
    heap_trim(heap);
}

// The owner frees the last block of a slab while another thread purges it: the slab must not be
// forgotten.
TEST(SweepSlab, OneThatRanEmptyMeanwhileIsPostedToItsOwner)
{
    heap_layer::own_heap();
    std::vector<void *> blocks = allocate_many(20, 8 * kKiB);
    struct span *slab = span_of(blocks[0]);
    std::vector<void *> rest;
    while (slab == thread_heap->current[slab_class(slab)])
        rest.push_back(allocate(8 * kKiB));
    ASSERT_TRUE(slab_try_use(slab, SLAB_PURGED));
    EXPECT_FALSE(slab_try_use(slab, SLAB_CURRENT));
    for (void *block : blocks)
        free_fast(block);
    for (void *block : rest)
        free_fast(block);
    harden_flush(thread_heap);
    EXPECT_EQ(slab_heap(slab), thread_heap) << "given back under the purger";
    EXPECT_TRUE(slab_end_purge(slab));
    EXPECT_TRUE(remote_post(thread_heap, slab));
    heap_drain(thread_heap);
    EXPECT_NE(slab_heap(slab), thread_heap) << "forgotten";
    heap_trim(thread_heap);
    heap_layer::verify();
}

} // namespace
