// Free spans, under the lock of their shard: they are cut, merged and found as neighbours.

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "page/page_layer.h"

namespace free_spans_test
{

class FreeSpans : public testing::Test
{
  protected:
    // Takes the shard's lock, with spare headers for every cut.
    void SetUp() override
    {
        page_layer::start();
        ASSERT_EQ(pages_grow(page_layer::shard, 512), 0);
        struct span *headers[8];
        for (struct span *&header : headers)
            header = headers_make(page_layer::shard, 0, 1);
        ASSERT_TRUE(shard_acquire(page_layer::shard));
        free_spans_settle(page_layer::shard, nullptr);
        for (struct span *header : headers)
            header_push(header);
    }

    void TearDown() override
    {
        shard_release(page_layer::shard);
        pages_verify();
    }
};

TEST_F(FreeSpans, WhatIsCarvedComesBackMerged)
{
    for (size_t alignment : {size_t{1}, size_t{16}, size_t{64}}) {
        const size_t before = page_layer::shard->free_pages;
        size_t dirty_pages = 0;
        char *run = range_carve(page_layer::shard, 10, alignment, false, &dirty_pages);
        ASSERT_NE(run, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(run) % (alignment << PAGE_SHIFT), 0u);
        EXPECT_EQ(page_layer::shard->free_pages, before - 10);
        struct arena *arena = arena_of(run);
        ASSERT_NE(arena, nullptr);
        EXPECT_EQ(span_free_neighbour(arena, run), nullptr);
        EXPECT_EQ(bins_verify(page_layer::shard), page_layer::shard->free_pages);
        range_release(arena, run, 10, dirty_pages);
        EXPECT_EQ(page_layer::shard->free_pages, before);
        EXPECT_EQ(bins_verify(page_layer::shard), before);
    }
}

TEST_F(FreeSpans, AWithdrawnSpanIsNoNeighbour)
{
    size_t dirty_pages = 0;
    char *run = range_carve(page_layer::shard, 20, 1, false, &dirty_pages);
    ASSERT_NE(run, nullptr);
    struct arena *arena = arena_of(run);
    range_release(arena, run, 8, 0);
    struct span *left = span_free_neighbour(arena, run + 7 * PAGE_BYTES);
    ASSERT_NE(left, nullptr);
    span_withdraw(left);
    EXPECT_EQ(span_free_neighbour(arena, run + 7 * PAGE_BYTES), nullptr);
    range_release(arena, run + 8 * PAGE_BYTES, 12, dirty_pages); // next to it, not merged with it
    struct span *right = span_free_neighbour(arena, run + 8 * PAGE_BYTES);
    ASSERT_NE(right, nullptr);
    EXPECT_EQ(right->base, run + 8 * PAGE_BYTES);
    span_release(arena, left);
    EXPECT_EQ(span_free_neighbour(arena, left->base), left) << "the spans are merged again";
    EXPECT_GE(left->pages, 20u);
}

TEST_F(FreeSpans, NothingFitsIsNull)
{
    size_t dirty_pages = 0;
    EXPECT_EQ(
        range_carve(page_layer::shard, page_layer::shard->free_pages + 1, 1, false, &dirty_pages),
        nullptr);
}

// Runs that slabs leave keep their length for the next slabs, and are merged when a longer run is
// needed.
TEST(LooseSpans, AreMergedBeforeFreshMemoryIsTaken)
{
    page_layer::start();
    if (config_random_runs)
        GTEST_SKIP() << "runs are taken and cut at random";
    constexpr size_t kSlabs = 8, kPages = page_layer::kShapes[1].pages;
    struct span *slabs[kSlabs];
    std::set<char *> runs;
    for (int round = 0; round < 3; round++) {
        std::set<char *> taken;
        for (struct span *&slab : slabs) {
            slab = pages_take_slab(1);
            taken.insert(slab->base);
        }
        EXPECT_TRUE(round == 0 || taken == runs);
        runs = taken;
        for (struct span *slab : slabs)
            pages_give_slab(slab, 0);
        pages_verify();
    }
    char *lowest = *runs.begin();
    ASSERT_EQ(lowest + (kSlabs - 1) * kPages * PAGE_BYTES, *runs.rbegin());
    struct span *whole = pages_take(kSlabs * kPages, PAGE_BYTES);
    EXPECT_EQ(whole->base, lowest);
    EXPECT_FALSE(whole->zero);
    pages_give(whole);
    pages_verify();
}

// A returned run has a loose run as one neighbour, and a free run that is not loose behind that
// one.
TEST(LooseSpans, ARunIsMergedWithAllThatIsFreeBesideIt)
{
    page_layer::start();
    if (config_random_runs)
        GTEST_SKIP() << "runs are taken and cut at random";
    constexpr size_t kPages = page_layer::kShapes[1].pages;
    for (const bool last_is_lowest : {false, true}) {
        struct span *room = pages_take(3 * kPages, PAGE_BYTES);
        ASSERT_NE(room, nullptr);
        char *lowest = room->base;
        pages_give(room);
        struct span *ends[2], *slab;
        ends[0] = pages_take(kPages, PAGE_BYTES);
        slab = pages_take_slab(1);
        ends[1] = pages_take(kPages, PAGE_BYTES);
        ASSERT_TRUE(ends[0] && slab && ends[1]);
        ASSERT_EQ(ends[0]->base, lowest);
        ASSERT_EQ(ends[1]->base, lowest + 2 * kPages * PAGE_BYTES);
        pages_give(ends[last_is_lowest]);
        pages_give_slab(slab, 0);
        pages_give(ends[!last_is_lowest]);
        pages_verify();
    }
}

// There are more loose runs than may wait, and another run is given back among them.
TEST(LooseSpans, ManyAreMergedAsTheyCome)
{
    page_layer::start();
    std::vector<struct span *> slabs(1000);
    for (int round = 0; round < 3; round++) {
        for (struct span *&slab : slabs)
            slab = pages_take_slab(round % 2);
        for (size_t i = 0; i < slabs.size(); i += 2)
            pages_give_slab(slabs[i], 0);
        pages_verify();
        struct span *run = pages_take(3, PAGE_BYTES);
        for (size_t i = 1; i < slabs.size(); i += 2) {
            pages_give_slab(slabs[i], 0);
            if (i == 501)
                pages_give(run);
        }
        pages_verify();
    }
    EXPECT_TRUE(pages_trim(0));
    EXPECT_EQ(page_layer::stats().dirty_bytes, 0u);
    pages_verify();
}

} // namespace free_spans_test
