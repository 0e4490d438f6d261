// Looking at the page layer: the walk, the search, the sums, and a verifier that does not sleep.

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "page/page_layer.h"

namespace
{

using Spans = std::map<char *, struct span *>;

bool collect(struct span *span, char *start, void *context)
{
    static_cast<Spans *>(context)->emplace(start, span);
    return true;
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
                pages_give_slab(place->second);
            else
                pages_give(place->second);
            model.erase(place);
        }
        ASSERT_EQ(walk(), model);
    }
    for (const auto &[start, span] : model) {
        if (span_is_slab(span))
            pages_give_slab(span);
        else
            pages_give(span);
    }
    EXPECT_TRUE(walk().empty());
}

TEST_F(Inspect, TheWalkStopsWhenToldTo)
{
    struct span *first = pages_take(1, PAGE_BYTES);
    struct span *second = pages_take(1, PAGE_BYTES);
    size_t seen = 0;
    pages_each(
        [](struct span *, char *, void *context) {
            ++*static_cast<size_t *>(context);
            return false;
        },
        &seen);
    EXPECT_EQ(seen, 1u);
    pages_give(first);
    pages_give(second);
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
    EXPECT_EQ(pages_search(inside, &start), nullptr) << "it is free";
    EXPECT_TRUE(pages_holds(inside));
    EXPECT_FALSE(pages_holds(&local));
    pages_give_slab(slab);
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

// The entries of a slab are written one by one, without the lock.
TEST_F(Inspect, TheVerifierMeetsASlabWhoseEntriesAreBeingWritten)
{
    std::vector<struct span *> taken;
    char *end = nullptr;
    for (bool slab = true; !end || pages_holds(end); slab = !slab) { // to the end of an arena
        ASSERT_LT(taken.size(), 100000u);
        taken.push_back(slab ? pages_take_slab(2) : pages_take(1, PAGE_BYTES));
        ASSERT_NE(taken.back(), nullptr);
        end = slab ? page_layer::end_of_slab(taken.back(), 2) : nullptr;
    }
    struct span *last = taken.back();
    page_map_set_page(last->base, nullptr); // the map as a walk may see it
    pages_verify();
    page_map_set_page(last->base, last);
    for (struct span *each : taken) {
        if (span_is_slab(each))
            pages_give_slab(each);
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
    while (page_map_find(base)->tag != SPAN_FREE) // it merged with what was free before it
        base -= PAGE_BYTES;
    struct span *free_run = page_map_find(base);
    EXPECT_DEATH(
        {
            pages_state.free_pages++;
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

} // namespace
