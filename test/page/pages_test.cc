// Runs and slabs of the page layer, and its inspection.

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "page/page_layer.h"

namespace pages_test
{

// Runs of pages: they are split, merged, grown and shrunk in place; which pages are known to be
// zero.

using page_layer::bytes_of;
using page_layer::end_of;
using page_layer::kMiB;
using page_layer::reads;

class Pages : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_layer::start();
        page_layer::configure(1000000, size_t{1} << 40); // nothing is purged by decay
    }
    void TearDown() override { pages_verify(); }

    static struct span *take(size_t pages, size_t alignment = PAGE_BYTES)
    {
        struct span *span = pages_take(pages, alignment);
        EXPECT_NE(span, nullptr);
        return span;
    }

    // Adjacent runs, cut out of one run, so that the neighbours are known also in builds that take
    // runs from either end.
    static std::vector<struct span *> take_adjacent(size_t count, size_t pages)
    {
        std::vector<struct span *> spans = {take(count * pages)};
        while (spans.size() < count) {
            struct span *rest = pages_split(spans.back(), pages, false);
            page_map_set(rest->base, 1, rest);
            spans.push_back(rest);
        }
        return spans;
    }
};

TEST_F(Pages, TakenRunsAreDistinctMappedAndWritable)
{
    std::vector<struct span *> spans;
    for (size_t pages = 1; pages <= 600; pages = pages * 2 + 1) {
        struct span *span = take(pages);
        EXPECT_EQ(span->pages, pages);
        EXPECT_EQ(span->tag, SPAN_LARGE);
        EXPECT_EQ(span->owner, 0u);
        EXPECT_EQ(page_map_find(span->base), span);
        page_layer::fill(span, static_cast<char>(spans.size() + 1));
        spans.push_back(span);
    }
    for (size_t i = 0; i < spans.size(); i++)
        EXPECT_TRUE(reads(spans[i]->base, bytes_of(spans[i]), static_cast<char>(i + 1)));
    pages_verify();
    for (struct span *span : spans)
        pages_give(span);
}

TEST_F(Pages, FreeNeighboursMergeInEveryOrder)
{
    std::vector<size_t> order = {0, 1, 2, 3};
    do {
        const auto spans = take_adjacent(4, 5);
        char *start = spans[0]->base;
        const size_t free_before = page_layer::stats().free_bytes;
        for (size_t index : order) {
            pages_give(spans[index]);
            pages_verify(); // no two free runs are adjacent
        }
        EXPECT_EQ(page_layer::stats().free_bytes, free_before + 20 * PAGE_BYTES);
        struct span *merged = page_map_find(start);
        if (merged->tag == SPAN_FREE && merged->base == start) {
            EXPECT_GE(merged->pages, 20u);
        }
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_F(Pages, WhatIsLeftOfARunGoesBack)
{
    pages_give(take(64));
    const page_stats before = page_layer::stats();
    struct span *span = take(9);
    EXPECT_EQ(page_layer::stats().free_bytes, before.free_bytes - 9 * PAGE_BYTES);
    EXPECT_EQ(page_layer::stats().committed_bytes, before.committed_bytes);
    pages_give(span);
    EXPECT_EQ(page_layer::stats().free_bytes, before.free_bytes);
}

TEST_F(Pages, AlignmentIsCutOut)
{
    std::vector<struct span *> spans;
    for (size_t alignment = PAGE_BYTES; alignment <= 4 * kMiB; alignment *= 2) {
        struct span *span = take(3, alignment);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(span->base) % alignment, 0u);
        EXPECT_EQ(span->pages, 3u);
        spans.push_back(span);
        pages_verify();
    }
    for (struct span *span : spans)
        pages_give(span);
}

TEST_F(Pages, MoreThanAHeaderCountsIsRefused)
{
    EXPECT_EQ(pages_take(size_t{1} << 40, PAGE_BYTES), nullptr);
    EXPECT_EQ(pages_take(size_t{1} << 30, PAGE_BYTES), nullptr); // more than an arena may have
}

// Which memory is known to be zero.

TEST_F(Pages, FreshMemoryIsKnownToBeZero)
{
    pages_trim(0);
    struct span *span = take(700);
    ASSERT_TRUE(span->zero);
    EXPECT_TRUE(reads(span->base, bytes_of(span), 0));
    page_layer::fill(span, 1);
    pages_give(span);
}

TEST_F(Pages, UsedMemoryIsNotTakenForZero)
{
    struct span *span = take(30);
    page_layer::fill(span, 1);
    pages_give(span);
    for (int i = 0; i < 100; i++) {
        struct span *again = take(1 + static_cast<size_t>(i) % 40);
        if (again->zero) {
            EXPECT_TRUE(reads(again->base, bytes_of(again), 0));
        }
        page_layer::fill(again, 2);
        pages_give(again);
    }
}

TEST_F(Pages, PurgedMemoryIsKnownToBeZeroAgain)
{
    struct span *span = take(50);
    page_layer::fill(span, 1);
    pages_give(span);
    EXPECT_GT(page_layer::stats().dirty_bytes, 0u);
    EXPECT_TRUE(pages_trim(0));
    EXPECT_EQ(page_layer::stats().dirty_bytes, 0u);
    span = take(50);
    EXPECT_TRUE(span->zero);
    EXPECT_TRUE(reads(span->base, bytes_of(span), 0));
    pages_give(span);
}

TEST_F(Pages, ARunThatIsPartlyDirtyIsNotZero)
{
    const auto spans = take_adjacent(4, 8);
    for (struct span *span : spans)
        pages_give(span);
    pages_trim(0);
    struct span *one = take(8); // a dirty part within a clean run
    page_layer::fill(one, 1);
    char *inside = one->base;
    pages_give(one);
    struct span *whole = take(32);
    if (whole->base <= inside && inside < end_of(whole)) {
        EXPECT_FALSE(whole->zero);
    }
    EXPECT_TRUE(!whole->zero || reads(whole->base, bytes_of(whole), 0));
    pages_give(whole);
}

// Growing and shrinking in place.

TEST_F(Pages, GrowsIntoAFreeNeighbour)
{
    const auto spans = take_adjacent(3, 10);
    page_layer::fill(spans[0], 5);
    EXPECT_FALSE(pages_extend(spans[0], 11)) << "the neighbour is in use";
    pages_give(spans[1]);
    ASSERT_TRUE(pages_extend(spans[0], 14));
    EXPECT_EQ(spans[0]->pages, 14u);
    pages_verify();
    EXPECT_FALSE(pages_extend(spans[0], 21)) << "longer than the free neighbour";
    ASSERT_TRUE(pages_extend(spans[0], 20)) << "as long as the free neighbour";
    EXPECT_EQ(end_of(spans[0]), spans[2]->base);
    EXPECT_TRUE(reads(spans[0]->base, 10 * PAGE_BYTES, 5));
    page_layer::fill(spans[0], 6);
    pages_verify();
    pages_give(spans[0]);
    pages_give(spans[2]);
}

TEST_F(Pages, ShrinksAndGivesTheRestBack)
{
    const auto spans = take_adjacent(2, 20);
    page_layer::fill(spans[0], 5);
    const size_t free_before = page_layer::stats().free_bytes;
    pages_shrink(spans[0], 3);
    EXPECT_EQ(spans[0]->pages, 3u);
    EXPECT_EQ(page_layer::stats().free_bytes, free_before + 17 * PAGE_BYTES);
    EXPECT_TRUE(reads(spans[0]->base, 3 * PAGE_BYTES, 5));
    pages_verify();
    ASSERT_TRUE(pages_extend(spans[0], 20)) << "into the rest of the run";
    pages_give(spans[0]);
    pages_give(spans[1]);
}

TEST_F(Pages, ARestThatWasUsedIsNotZero)
{
    struct span *span = take(20);
    page_layer::fill(span, 5);
    pages_shrink(span, 3);
    struct span *rest = take(17);
    EXPECT_TRUE(!rest->zero || reads(rest->base, bytes_of(rest), 0));
    pages_give(rest);
    pages_give(span);
}

// Slabs.

TEST_F(Pages, SlabsAreMappedOnEveryPageAndKeepTheirColdArea)
{
    for (unsigned size_class = 0; size_class < 3; size_class++) {
        const slab_shape &shape = page_layer::kShapes[size_class];
        struct span *slab = pages_take_slab(size_class);
        ASSERT_NE(slab, nullptr);
        EXPECT_TRUE(span_is_slab(slab));
        EXPECT_EQ(slab_class(slab), size_class);
        EXPECT_EQ(slab->capacity, 0) << "the header is new";
        for (size_t page = 0; page < shape.pages; page++)
            EXPECT_EQ(page_map_find(slab->base + page * PAGE_BYTES), slab);
        EXPECT_TRUE(reads(reinterpret_cast<char *>(slab + 1), shape.side_units * 64, 0));
        pages_verify();
        char *base = slab->base;
        slab->capacity = 9;
        pages_give_slab(slab, 0);
        EXPECT_FALSE(span_is_slab(page_map_find(base)));
        pages_verify();
    }
}

TEST_F(Pages, RandomOperationsKeepTheInvariants)
{
    std::mt19937 random(3);
    std::vector<struct span *> spans;
    for (int round = 0; round < 4000; round++) {
        const size_t choice = random() % 10;
        const size_t index = spans.empty() ? 0 : random() % spans.size();
        const size_t pages = 1 + random() % (random() % 8 == 0 ? 800 : 40);
        if (spans.empty() || (choice < 5 && spans.size() < 200)) {
            struct span *span = take(pages, size_t{PAGE_BYTES} << random() % 4);
            ASSERT_TRUE(!span->zero || reads(span->base, bytes_of(span), 0));
            page_layer::fill(span, 1);
            spans.push_back(span);
        } else if (choice < 8) {
            pages_give(spans[index]);
            spans[index] = spans.back();
            spans.pop_back();
        } else if (pages < spans[index]->pages) {
            pages_shrink(spans[index], pages);
        } else if (pages > spans[index]->pages && pages_extend(spans[index], pages)) {
            page_layer::fill(spans[index], 2);
        }
        if (round % 500 == 0)
            pages_trim(random() % kMiB);
        if (round % 20 == 0)
            pages_verify();
    }
    for (struct span *span : spans)
        pages_give(span);
    pages_verify();
    EXPECT_EQ(page_layer::stats().free_bytes, page_layer::stats().committed_bytes);
}

TEST_F(Pages, WhatIsFreeIsTakenWithoutGrowth)
{
    struct span *run = pages_take(100, PAGE_BYTES);
    struct span *behind = pages_take(1, PAGE_BYTES);
    pages_give(run);
    const size_t committed = page_layer::stats().committed_bytes;
    struct span *again = pages_take_free(100, PAGE_BYTES);
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(again->tag, SPAN_LARGE);
    EXPECT_EQ(pages_take_free(page_layer::stats().free_bytes / PAGE_BYTES + 1, PAGE_BYTES),
              nullptr);
    EXPECT_EQ(page_layer::stats().committed_bytes, committed);
    pages_give(again);
    pages_give(behind);
}

// Inspection of the page layer: the walk, the search, the sums, and the verifier, which is shown to
// find broken invariants.

using Spans = std::map<char *, struct span *>;

void collect(struct span *span, char *start, void *context)
{
    static_cast<Spans *>(context)->emplace(start, span);
}

Spans walk()
{
    Spans spans;
    pages_each(collect, &spans);
    return spans;
}

class Inspect : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_layer::start();
        page_layer::configure(1000000, size_t{1} << 40);
    }
};

TEST_F(Inspect, TheWalkSeesExactlyWhatIsInUse)
{
    std::mt19937 random(4);
    Spans model;
    for (int round = 0; round < 500; round++) {
        if (random() % 3 != 0 || model.empty()) {
            const bool slab = random() % 2 == 0;
            struct span *span = slab ? pages_take_slab(static_cast<unsigned>(round) % 3)
                                     : pages_take(1 + random() % 30, PAGE_BYTES);
            ASSERT_NE(span, nullptr);
            model.emplace(span->base, span);
        } else {
            const auto place =
                std::next(model.begin(), static_cast<ptrdiff_t>(random() % model.size()));
            if (span_is_slab(place->second))
                pages_give_slab(place->second, 0);
            else
                pages_give(place->second);
            model.erase(place);
        }
        ASSERT_EQ(walk(), model);
    }
    for (const auto &[start, span] : model) {
        if (span_is_slab(span))
            pages_give_slab(span, 0);
        else
            pages_give(span);
    }
    EXPECT_TRUE(walk().empty());
}

TEST_F(Inspect, TheSearchFindsTheMiddleOfARun)
{
    struct span *span = pages_take(20, PAGE_BYTES);
    struct span *slab = pages_take_slab(2);
    char *start = nullptr;
    const size_t last = 20 * PAGE_BYTES - 1;
    for (size_t offset : {size_t{0}, size_t{1}, last / 2, last}) {
        EXPECT_EQ(pages_search(span->base + offset, &start), span) << offset;
        EXPECT_EQ(start, span->base);
    }
    EXPECT_EQ(pages_search(slab->base + 9 * PAGE_BYTES, &start), slab);
    EXPECT_EQ(start, slab->base);
    const int local = 0;
    EXPECT_EQ(pages_search(&local, &start), nullptr);
    EXPECT_EQ(pages_search(nullptr, &start), nullptr);
    char *inside = span->base + PAGE_BYTES;
    pages_give(span);
    EXPECT_EQ(pages_search(inside, &start), nullptr) << "the page is free";
    EXPECT_TRUE(pages_holds(inside));
    EXPECT_FALSE(pages_holds(&local));
    pages_give_slab(slab, 0);
}

TEST_F(Inspect, SumsAddUp)
{
    struct span *span = pages_take(33, PAGE_BYTES);
    page_layer::fill(span, 1);
    page_stats stats = page_layer::stats();
    EXPECT_EQ(stats.committed_bytes - stats.free_bytes, 33u * PAGE_BYTES);
    EXPECT_LE(stats.committed_bytes, stats.reserved_bytes);
    EXPECT_LE(stats.dirty_bytes, stats.free_bytes);
    EXPECT_GE(stats.meta_bytes, size_t{META_CHUNK_BYTES} / 4);
    pages_give(span);
    stats = page_layer::stats();
    EXPECT_EQ(stats.committed_bytes, stats.free_bytes);
    EXPECT_GE(stats.dirty_bytes, 33u * PAGE_BYTES);
}

// The entries of a slab in the page map are written one by one, without the lock.
TEST_F(Inspect, TheVerifierMeetsASlabWhoseEntriesAreBeingWritten)
{
    std::vector<struct span *> taken;
    char *end = nullptr;
    for (bool slab = true; !end || pages_holds(end); slab = !slab) { // up to the end of an arena
        ASSERT_LT(taken.size(), 100000u);
        taken.push_back(slab ? pages_take_slab(2) : pages_take(1, PAGE_BYTES));
        ASSERT_NE(taken.back(), nullptr);
        end = slab ? page_layer::end_of_slab(taken.back(), 2) : nullptr;
    }
    struct span *last = taken.back();
    page_map_set_page(last->base, nullptr); // the map as a concurrent walk may see it
    pages_verify();
    page_map_set_page(last->base, last);
    for (struct span *each : taken) {
        if (span_is_slab(each))
            pages_give_slab(each, 0);
        else
            pages_give(each);
    }
}

TEST(InspectDeathTest, TheVerifierFindsBrokenInvariants)
{
    if (!config_debug)
        GTEST_SKIP() << "the verifier runs in debug builds";
    page_layer::start();
    page_layer::configure(1000000, size_t{1} << 40);
    struct span *span = pages_take(8, PAGE_BYTES);
    struct span *behind = pages_take(1, PAGE_BYTES);
    page_layer::fill(span, 1);
    char *base = span->base;
    pages_give(span);
    pages_verify();
    while (page_map_find(base)->tag != SPAN_FREE) // the span merged with the free memory before it
        base -= PAGE_BYTES;
    struct span *free_run = page_map_find(base);
    EXPECT_DEATH(
        {
            page_layer::shard->free_pages++;
            pages_verify();
        },
        "internal error");
    EXPECT_DEATH(
        {
            free_run->dirty_pages--;
            pages_verify();
        },
        "internal error");
    EXPECT_DEATH(
        {
            free_run->base += PAGE_BYTES;
            pages_verify();
        },
        "internal error");
    EXPECT_DEATH(
        {
            page_map_set(page_layer::end_of(free_run) - PAGE_BYTES, 1, nullptr);
            pages_verify();
        },
        "internal error");
    pages_give(behind);
}

} // namespace pages_test
