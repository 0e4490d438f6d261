// The bins of free spans, compared with a list that is searched from end to end.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "page/page_layer.h"

namespace bins_test
{

class Bins : public testing::Test
{
  protected:
    ~Bins() override
    {
        while (!spans_.empty())
            remove(spans_.front().get());
    }

    struct span *insert(size_t first_page, uint32_t pages, size_t dirty_pages)
    {
        spans_.push_back(std::make_unique<struct span>());
        struct span *span = spans_.back().get();
        span->base = reinterpret_cast<char *>(first_page << PAGE_SHIFT);
        span->pages = pages;
        span->dirty_pages = dirty_pages;
        span->tag = SPAN_FREE;
        bins_insert(span);
        return span;
    }

    void remove(struct span *span)
    {
        bins_remove(span);
        spans_.erase(std::find_if(spans_.begin(), spans_.end(),
                                  [span](const auto &each) { return each.get() == span; }));
    }

    size_t pages() const
    {
        size_t sum = 0;
        for (const auto &span : spans_)
            sum += span->pages;
        return sum;
    }

    std::vector<std::unique_ptr<struct span>> spans_;
};

bool fits(const struct span &span, size_t pages, size_t alignment)
{
    const size_t first = reinterpret_cast<uintptr_t>(span.base) >> PAGE_SHIFT;
    return (first + alignment - 1) / alignment * alignment + pages <= first + span.pages;
}

TEST_F(Bins, EmptyBinsHaveNothing)
{
    EXPECT_EQ(bins_find(page_layer::shard, 1, 1), nullptr);
    EXPECT_EQ(bins_longest(page_layer::shard, DIRTY), nullptr);
    EXPECT_EQ(bins_verify(page_layer::shard), 0u);
}

TEST_F(Bins, TheTightestFitIsFound)
{
    struct span *five = insert(100, 5, 5);
    struct span *seven = insert(200, 7, 7);
    EXPECT_EQ(bins_find(page_layer::shard, 4, 1), five);
    EXPECT_EQ(bins_find(page_layer::shard, 5, 1), five);
    EXPECT_EQ(bins_find(page_layer::shard, 6, 1), seven);
    EXPECT_EQ(bins_find(page_layer::shard, 8, 1), nullptr);
}

TEST_F(Bins, MemoryThatIsThereComesFirst)
{
    struct span *clean = insert(100, 5, 0);
    struct span *dirty = insert(200, 500, 1);
    EXPECT_EQ(bins_find(page_layer::shard, 5, 1), dirty);
    remove(dirty);
    EXPECT_EQ(bins_find(page_layer::shard, 5, 1), clean);
}

TEST_F(Bins, AlignmentCountsFromTheAddress)
{
    insert(1001, 8, 8); // pages 1001 to 1008, of which 1008 is a multiple of 16
    EXPECT_EQ(bins_find(page_layer::shard, 2, 16), nullptr);
    EXPECT_NE(bins_find(page_layer::shard, 1, 16), nullptr);
    struct span *aligned = insert(2048, 2, 2);
    EXPECT_EQ(bins_find(page_layer::shard, 2, 16), aligned);
}

TEST_F(Bins, LongestDirtySpanIsFromTheHighestBin)
{
    insert(100, 5000, 0);
    insert(10000, 20, 20);
    struct span *longest = insert(20000, 3000, 1);
    EXPECT_EQ(bins_longest(page_layer::shard, DIRTY), longest);
    remove(longest);
    ASSERT_NE(bins_longest(page_layer::shard, DIRTY), nullptr);
    EXPECT_EQ(bins_longest(page_layer::shard, DIRTY)->pages, 20u);
}

TEST_F(Bins, EveryLengthHasABin)
{
    for (uint64_t pages = 1; pages <= UINT32_MAX; pages = pages * 9 / 8 + 1) {
        struct span *span = insert(16, static_cast<uint32_t>(pages), 0);
        EXPECT_EQ(bins_find(page_layer::shard, pages, 1), span) << pages;
        EXPECT_EQ(bins_find(page_layer::shard, pages + pages / 4 + 1, 1), nullptr) << pages;
        EXPECT_EQ(bins_verify(page_layer::shard), pages);
        remove(span);
    }
}

TEST_F(Bins, RandomOperationsAgreeWithAList)
{
    std::mt19937 random(9);
    size_t first_page = 1000;
    for (int round = 0; round < 30000; round++) {
        if (random() % 2 == 0 && spans_.size() < 300) {
            const uint32_t pages =
                1 + static_cast<uint32_t>(random() % (random() % 4 == 0 ? 3000 : 70));
            insert(first_page, pages, random() % 2 * (1 + random() % pages));
            first_page += pages + random() % 5;
        } else if (random() % 2 == 0 && !spans_.empty()) {
            remove(spans_[random() % spans_.size()].get());
        }
        const size_t wanted = 1 + random() % (random() % 4 == 0 ? 3000 : 70);
        const size_t alignment = size_t{1} << (random() % 4 == 0 ? random() % 6 : 0);
        const struct span *found = bins_find(page_layer::shard, wanted, alignment);
        const struct span *model = nullptr; // the best span: dirty before clean, then the shortest
        bool roomy = false;                 // a span fits at any alignment, in a bin of its own
        for (const auto &span : spans_) {
            roomy |= span->pages >= (wanted + alignment) * 5 / 4 + 1;
            if (fits(*span, wanted, alignment) &&
                (model == nullptr || (span->dirty_pages != 0) > (model->dirty_pages != 0) ||
                 ((span->dirty_pages != 0) == (model->dirty_pages != 0) &&
                  span->pages < model->pages)))
                model = span.get();
        }
        if (found) {
            ASSERT_TRUE(fits(*found, wanted, alignment));
            if (wanted < 64 && alignment == 1) { // lists of one length: the result is exact
                ASSERT_EQ(found->dirty_pages != 0, model->dirty_pages != 0);
            }
            if (wanted < 64 && alignment == 1 && model->pages < 64) {
                ASSERT_EQ(found->pages, model->pages);
            }
        } else {
            ASSERT_FALSE(roomy) << wanted << " pages at " << alignment;
            ASSERT_TRUE(model == nullptr || wanted >= 64 || alignment > 1);
        }
        if (round % 100 == 0) {
            ASSERT_EQ(bins_verify(page_layer::shard), pages());
        }
    }
}

} // namespace bins_test
