// Room behind a block that grows: each thread keeps one run, which the next growing block uses.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "heap/heap_layer.h"

namespace growth_test
{

using heap_layer::allocate;
using heap_layer::kKiB;
using heap_layer::kMiB;
using heap_layer::span_of;

uintptr_t &own_growth() { return thread_heap->runs.places[RUN_CACHE_GROWTH]; }

// Makes a block and doubles it up to the size.
char *doubled(size_t size)
{
    void *block = allocate(64);
    for (size_t step = 128; step <= size; step *= 2)
        block = heap_resize(block, step);
    return static_cast<char *>(block);
}

void fill(char *block, size_t size)
{
    for (size_t i = 0; i < size; i++)
        block[i] = static_cast<char>(i * 7 + i / 4096);
}

bool holds(const char *block, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (block[i] != static_cast<char>(i * 7 + i / 4096))
            return false;
    return true;
}

class Growth : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (!config_growth)
            GTEST_SKIP() << "hardened builds keep no room behind blocks";
        heap_layer::own_heap();
        (void)heaps_empty_run_caches();
    }
    void TearDown() override
    {
        if (!config_growth)
            return;
        (void)heaps_empty_run_caches();
        heap_layer::verify();
        pages_verify();
    }

    static struct span *run(size_t pages) { return pages_take(pages, PAGE_BYTES); }

    uintptr_t growth_ = 0;
};

TEST_F(Growth, ABlockGrowsThroughTheRunThatTheLastOneLeft)
{
    struct span *span = run(10);
    char *base = span->base;
    ASSERT_TRUE(growth_put(&growth_, span));
    EXPECT_EQ(growth_take(&growth_, 11), nullptr);
    struct span *block = growth_take(&growth_, 3);
    ASSERT_EQ(block, span);
    EXPECT_EQ(block->pages, 3u);
    EXPECT_EQ(growth_take(&growth_, 1), nullptr); // only one run is kept
    EXPECT_TRUE(growth_extend(&growth_, block, 7));
    EXPECT_FALSE(growth_extend(&growth_, block, 11));
    EXPECT_EQ(block->pages, 7u);
    EXPECT_TRUE(growth_extend(&growth_, block, 10));
    EXPECT_EQ(growth_, 0u);
    EXPECT_TRUE(growth_put(&growth_, block));
    EXPECT_EQ(growth_take(&growth_, 10), span);
    EXPECT_EQ(span->base, base);
    pages_give(span);
}

// An aging of another thread changes the word, and takes nothing.
TEST_F(Growth, AnAgingAtTheSameTimeStopsNoBlock)
{
    std::atomic<bool> over{false};
    std::thread visitor([&] {
        while (!over) {
            uintptr_t word = load_relaxed(&growth_);
            if (word != 0)
                (void)compare_swap_acq_rel(&growth_, &word, word | LAYOUT_KEPT_AGED);
        }
    });
    struct span *block = run(10);
    size_t stopped = 0;
    for (int i = 0; i < 200000; i++) {
        growth_cut(&growth_, block, 1);
        for (size_t pages = 2; pages < 10; pages++)
            stopped += !growth_extend(&growth_, block, pages);
        stopped += !growth_join(&growth_, block);
    }
    over = true;
    visitor.join();
    EXPECT_EQ(stopped, 0u);
    pages_give(block);
}

TEST_F(Growth, FreedWithItsRoomTheRunIsWholeAgain)
{
    ASSERT_TRUE(growth_put(&growth_, run(10)));
    struct span *block = growth_take(&growth_, 3);
    ASSERT_TRUE(growth_put(&growth_, block));
    EXPECT_EQ(block->pages, 10u);
    EXPECT_TRUE(growth_empty(&growth_));
    EXPECT_FALSE(growth_empty(&growth_));
}

TEST_F(Growth, TheLongerRunIsKept)
{
    struct span *longer = run(20);
    struct span *shorter = run(10);
    ASSERT_TRUE(growth_put(&growth_, longer));
    EXPECT_FALSE(growth_put(&growth_, shorter));
    pages_give(shorter);
    struct span *block = growth_take(&growth_, 2); // 18 pages of room, enough for another block
    shorter = run(18);
    EXPECT_FALSE(growth_put(&growth_, shorter));
    struct span *longest = run(19);
    EXPECT_TRUE(growth_put(&growth_, longest));
    EXPECT_EQ(growth_take(&growth_, 19), longest);
    pages_give(longest);
    pages_give(shorter);
    pages_give(block);
}

TEST_F(Growth, TooLongOnesAreNotKept)
{
    struct span *span = run(GROWTH_MAX_PAGES + 1);
    EXPECT_FALSE(growth_put(&growth_, span));
    pages_give(span);
}

TEST_F(Growth, UnderPressureNothingIsKept)
{
    pages_press(true);
    struct span *span = run(10);
    EXPECT_FALSE(growth_put(&growth_, span));
    pages_press(false);
    pages_give(span);
}

TEST_F(Growth, WhatIsBehindAnotherBlockStays)
{
    ASSERT_TRUE(growth_put(&growth_, run(10)));
    struct span *block = growth_take(&growth_, 3);
    struct span *other = run(4);
    const uintptr_t word = growth_;
    EXPECT_FALSE(growth_extend(&growth_, other, 5));
    EXPECT_FALSE(growth_join(&growth_, other));
    EXPECT_EQ(growth_, word);
    EXPECT_TRUE(growth_join(&growth_, block));
    EXPECT_EQ(block->pages, 10u);
    pages_give(block);
    pages_give(other);
}

TEST_F(Growth, TheSecondAgingGivesItUnlessItWasUsed)
{
    const size_t free_before = heap_layer::stats().pages.free_bytes;
    ASSERT_TRUE(growth_put(&growth_, run(10)));
    growth_age(&growth_);
    struct span *block = growth_take(&growth_, 3); // restarts the age
    ASSERT_NE(block, nullptr);
    growth_age(&growth_);
    EXPECT_TRUE(growth_extend(&growth_, block, 4)); // restarts the age, too
    growth_age(&growth_);
    EXPECT_NE(growth_, 0u);
    growth_age(&growth_);
    EXPECT_EQ(growth_, 0u);
    EXPECT_FALSE(growth_extend(&growth_, block, 5));
    EXPECT_TRUE(pages_extend(block, 10)); // the pages are free behind it
    pages_give(block);
    ASSERT_TRUE(growth_put(&growth_, run(10)));
    growth_age(&growth_);
    growth_age(&growth_);
    EXPECT_EQ(growth_, 0u);
    EXPECT_GE(heap_layer::stats().pages.free_bytes, free_before);
}

TEST_F(Growth, TheSecondDoublingCopiesNothingAboveAPage)
{
    free_fast(doubled(kMiB)); // leaves its run
    char *block = doubled(8 * kKiB);
    EXPECT_FALSE(span_is_slab(span_of(block)));
    for (size_t size = 16 * kKiB; size <= kMiB; size *= 2)
        EXPECT_EQ(heap_resize(block, size), block) << size;
    EXPECT_EQ(heap_usable_size(block), kMiB);
    free_fast(block);
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

TEST_F(Growth, ABlockThatGrowsBeyondTwoPagesGetsRoom)
{
    char *block = doubled(8 * kKiB);
    EXPECT_TRUE(span_is_slab(span_of(block)));
    fill(block, 8 * kKiB);
    block = static_cast<char *>(heap_resize(block, 16 * kKiB));
    EXPECT_EQ(heap_resize(block, GROWTH_NEW_PAGES * PAGE_BYTES), block);
    EXPECT_TRUE(holds(block, 8 * kKiB));
    free_fast(block);
}

TEST_F(Growth, WhatWouldWasteMostOfAPageIsASlabs)
{
    // Their slabs have free slots: a new slab might release the kept run.
    void *beside[] = {allocate(4 * kKiB), allocate(4 * kKiB + 16)};
    free_fast(doubled(kMiB));
    void *block = heap_resize(allocate(4 * kKiB), 4 * kKiB + 16);
    EXPECT_TRUE(span_is_slab(span_of(block)));
    void *other = heap_resize(allocate(4 * kKiB), 7 * kKiB);
    EXPECT_FALSE(span_is_slab(span_of(other)));
    for (void *each : {block, other, beside[0], beside[1]})
        free_fast(each);
}

TEST_F(Growth, AShortOneShrinksToASlabs)
{
    free_fast(doubled(kMiB));
    char *block = doubled(16 * kKiB);
    ASSERT_FALSE(span_is_slab(span_of(block)));
    fill(block, 5 * kKiB);
    EXPECT_EQ(heap_resize(block, 15 * kKiB), block); // within its pages
    EXPECT_FALSE(heap_resize_in_place(block, 5 * kKiB));
    block = static_cast<char *>(heap_resize(block, 5 * kKiB));
    EXPECT_TRUE(span_is_slab(span_of(block)));
    EXPECT_TRUE(holds(block, 5 * kKiB));
    free_fast(block);
}

TEST_F(Growth, ALongOneShrinksWithItsRoom)
{
    free_fast(doubled(kMiB));
    char *block = doubled(256 * kKiB);
    const size_t free_before = heap_layer::stats().pages.free_bytes;
    EXPECT_EQ(heap_resize(block, 100 * kKiB), block);
    EXPECT_EQ(own_growth(), 0u);
    EXPECT_EQ(heap_layer::stats().pages.free_bytes,
              free_before + kMiB - (large_pages(100 * kKiB) << PAGE_SHIFT));
    free_fast(block);
}

TEST_F(Growth, SizedFreesOfShortOnes)
{
    for (size_t size = 5 * kKiB; size <= 40 * kKiB; size += 200) {
        char *block = doubled(4 * kKiB);
        block = static_cast<char *>(heap_resize(block, size));
        heap_free_sized(block, size, 1);
    }
    EXPECT_EQ(heap_layer::stats().live_blocks, 0u);
}

TEST_F(Growth, GrownByBytesItKeepsItsContent)
{
    for (int round = 0; round < 3; round++) {
        char *block = static_cast<char *>(allocate(100));
        fill(block, 100);
        for (size_t size = 100, step = 0; size < 3 * kMiB; size += 100 + size / 50) {
            block = static_cast<char *>(heap_resize(block, size));
            ASSERT_NE(block, nullptr);
            ASSERT_TRUE(holds(block, std::max<size_t>(step, 100))) << size;
            fill(block, size);
            step = size;
        }
        free_fast(block);
    }
}

TEST_F(Growth, AKeptOneIsFreeToEverybody)
{
    char *block = doubled(kMiB);
    free_fast(block);
    EXPECT_EQ(span_of(block)->tag, SPAN_KEPT);
    EXPECT_EQ(heap_layer::stats().large_blocks, 0u);
    EXPECT_TRUE(heaps_empty_run_caches());
    EXPECT_EQ(own_growth(), 0u);
}

TEST_F(Growth, NewMemorySendsItBack)
{
    free_fast(doubled(64 * kKiB));
    ASSERT_NE(own_growth(), 0u);
    free_fast(allocate(20 * kMiB));
    EXPECT_EQ(own_growth(), 0u);
}

TEST_F(Growth, AnotherThreadsFreeLeavesTheRoom)
{
    free_fast(doubled(256 * kKiB));
    char *block = doubled(32 * kKiB);
    std::thread([block] { free_fast(block); }).join();
    const uintptr_t room = own_growth();
    EXPECT_NE(room, 0u);
    heap_layer::verify();
    EXPECT_TRUE(heaps_empty_run_caches());
}

// Each thread's block keeps its content, while other threads take the room behind it.
TEST_F(Growth, OwnersAndThievesNeverShareAPage)
{
    constexpr int kThreads = 4;
    constexpr int kRounds = 400;
    std::atomic<int> going{kThreads};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; i++)
        threads.emplace_back([i, &going] {
            for (int round = 0; round < kRounds; round++) {
                auto *block = static_cast<char *>(allocate(64));
                size_t had = 0;
                for (size_t size = 64; size <= 512 * kKiB; size *= 2) {
                    block = static_cast<char *>(heap_resize(block, size));
                    for (size_t at = had; at < size; at += 2048)
                        block[at] = static_cast<char>(i + round);
                    had = size;
                }
                for (size_t at = 2048; at < had; at += 2048)
                    ASSERT_EQ(block[at], static_cast<char>(i + round));
                free_fast(block);
            }
            going--;
        });
    while (going != 0) {
        (void)heaps_empty_run_caches();
        for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
            growth_age(&heap->runs.places[RUN_CACHE_GROWTH]);
        pages_verify();
    }
    for (std::thread &thread : threads)
        thread.join();
}

} // namespace growth_test
