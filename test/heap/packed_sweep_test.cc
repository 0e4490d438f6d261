// Free pages inside packed slabs go back: of what the thread itself and others freed, never where a
// block lives or may be handed out, and by time only what stayed free.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <thread>
#include <vector>

#include "heap/packed_layer.h"

extern "C" {
#include "heap/packed_sweep.h"
}

namespace
{

using heap_layer::allocate;
using heap_layer::in_thread;
using heap_layer::kSlabBlocks;

constexpr size_t kSlabs = 16;

uintptr_t page_of(const void *block)
{
    return align_down(reinterpret_cast<uintptr_t>(block), os_page_size());
}

// Pages in memory of those that the blocks lie on.
size_t resident_pages(const std::vector<void *> &blocks)
{
    std::vector<uintptr_t> pages;
    for (void *block : blocks)
        pages.push_back(page_of(block));
    std::sort(pages.begin(), pages.end());
    pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
    size_t resident = 0;
    for (uintptr_t page : pages) {
        unsigned char in_memory = 0;
        if (mincore(reinterpret_cast<void *>(page), 1, &in_memory) == 0)
            resident += in_memory & 1;
    }
    return resident;
}

class PackedSweep : public heap_layer::PackingHeap
{
  protected:
    void SetUp() override
    {
        PackingHeap::SetUp();
        if (IsSkipped())
            return;
        blocks_.resize(kSlabs * kSlabBlocks);
        for (void *&block : blocks_) {
            block = allocate(8);
            memset(block, 0x5a, 8);
        }
        std::sort(blocks_.begin(), blocks_.end());
    }
    void TearDown() override
    {
        for (void *block : kept_) {
            EXPECT_EQ(*static_cast<uint64_t *>(block), 0x5a5a5a5a5a5a5a5au);
            free_fast(block);
        }
        PackingHeap::TearDown();
    }

    // All but those of every eighth system page.
    void free_most()
    {
        for (void *block : blocks_)
            if (page_of(block) / os_page_size() % 8 == 0)
                kept_.push_back(block);
            else
                free_fast(block);
    }

    size_t kept_pages() const { return resident_pages(kept_); }

    // Slabs that are current, or wait, or are not used up.
    static size_t slack() { return 3 * kSlabBlocks * PACKED_BYTES / os_page_size(); }

    std::vector<void *> blocks_, kept_;
};

TEST_F(PackedSweep, ATrimGivesBackWhatTheOwnerFreed)
{
    const size_t all = resident_pages(blocks_);
    free_most();
    heap_trim(heap_);
    EXPECT_LE(resident_pages(blocks_), kept_pages() + slack());
    EXPECT_LT(resident_pages(blocks_), all / 2);
}

TEST_F(PackedSweep, ATrimGivesBackWhatOthersFreed)
{
    in_thread([this] { free_most(); });
    heap_trim(heap_);
    EXPECT_LE(resident_pages(blocks_), kept_pages() + slack());
}

TEST_F(PackedSweep, ByTimeWhatStayedFree)
{
    const size_t all = resident_pages(blocks_);
    free_most();
    const size_t freed = resident_pages(blocks_);
    packed_sweep(heap_, false);
    EXPECT_EQ(resident_pages(blocks_), freed) << "seen free for the first time";
    packed_sweep(heap_, false);
    EXPECT_LE(resident_pages(blocks_), kept_pages() + slack());
    EXPECT_LT(resident_pages(blocks_), all / 2);
}

size_t counted()
{
    page_stats pages;
    pages_read_stats(&pages);
    return pages.counted_bytes;
}

// They count for the limits no more, until they are taken again.
TEST_F(PackedSweep, WhatWentDoesNotCount)
{
    const size_t full = counted();
    free_most();
    heap_trim(heap_);
    (void)heap_release(0);
    heap_verify_given();
    EXPECT_LE(counted(), full - kSlabs * kSlabBlocks * 8 / 2);
    pages_limit_hard(counted() + 2 * PACKED_PAGES * PAGE_BYTES);
    std::vector<void *> again;
    for (void *block; again.size() < blocks_.size() && (block = allocate(8)) != nullptr;)
        again.push_back(block);
    EXPECT_GT(again.size(), 0u);
    EXPECT_LT(again.size(), blocks_.size() / 2);
    EXPECT_LE(counted(), full);
    heap_verify_given();
    pages_limit_hard(0);
    for (void *block : again)
        free_fast(block);
}

// Pages that went serve again, and go again.
TEST_F(PackedSweep, WhatWentServesAgain)
{
    free_most();
    for (int round = 0; round < 3; round++) {
        heap_trim(heap_);
        EXPECT_LE(resident_pages(blocks_), kept_pages() + slack());
        std::vector<void *> again(blocks_.size() - kept_.size());
        for (void *&block : again) {
            block = allocate(8);
            memset(block, round, 8);
        }
        std::sort(again.begin(), again.end());
        EXPECT_EQ(std::unique(again.begin(), again.end()), again.end());
        for (void *block : again)
            free_fast(block);
    }
}

// Others free whole pages, each block once and with what was written to it, while the holder sweeps
// and hands blocks out again. Eight blocks of each slab live on: it stays.
TEST_F(PackedSweep, FreesRaceWithTheSweep)
{
    // The first blocks of each slab's memory.
    const auto stays = [](const void *block) {
        const struct span *slab = heap_layer::span_of(block);
        return static_cast<const char *>(block) < slab->base + 64;
    };
    std::copy_if(blocks_.begin(), blocks_.end(), std::back_inserter(kept_), stays);
    std::atomic<size_t> next{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; i++)
        threads.emplace_back([&] {
            for (size_t at; (at = next.fetch_add(512)) < blocks_.size();)
                for (size_t j = at; j < at + 512; j++)
                    if (!stays(blocks_[j])) {
                        EXPECT_EQ(*static_cast<uint64_t *>(blocks_[j]), 0x5a5a5a5a5a5a5a5au);
                        free_fast(blocks_[j]);
                    }
        });
    while (next.load() < blocks_.size()) {
        packed_sweep(heap_, true);
        for (int i = 0; i < 600; i++) {
            kept_.push_back(allocate(8));
            memset(kept_.back(), 0x5a, 8);
        }
        heap_drain(heap_);
    }
    for (std::thread &thread : threads)
        thread.join();
    heap_trim(heap_);
}

} // namespace
