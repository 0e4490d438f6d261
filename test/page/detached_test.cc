// Runs with a mapping of their own.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

#include "page/page_layer.h"

namespace
{

class Detached : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }
};

TEST_F(Detached, RunsAreAlignedZeroAndUsable)
{
    for (size_t alignment = PAGE_BYTES; alignment <= 64 * page_layer::kMiB; alignment *= 8) {
        struct span *span = detached_take(20, alignment, 3, 20 * PAGE_BYTES);
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(span->base) % alignment, 0u);
        EXPECT_EQ(span->pages, 20u);
        EXPECT_EQ(span->dirty_pages, 0u);
        EXPECT_TRUE(page_layer::reads(span->base, 20 * PAGE_BYTES, 0));
        page_layer::fill(span, 1);
        EXPECT_EQ(arena_find(span->base), nullptr);
        page_map_set(span->base, 20, span); // the map covers it
        EXPECT_EQ(page_map_find(span->base + 19 * PAGE_BYTES), span);
        page_map_set(span->base, 20, nullptr);
        char *base = span->base;
        detached_give(span);
        unsigned char page;
        EXPECT_NE(mincore(base, PAGE_BYTES, &page), 0) << "it is still mapped";
    }
}

TEST_F(Detached, AGivenUpHeaderServesAgain)
{
    struct span *first = detached_take(4, PAGE_BYTES, 0, PAGE_BYTES);
    ASSERT_NE(first, nullptr);
    detached_give(first);
    // It waits among the deferred; the next holder of the lock puts it into its list.
    struct span *run = pages_take(1, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    pages_give(run);
    bool again = false;
    struct span *spans[64];
    for (auto &span : spans) {
        span = detached_take(1, PAGE_BYTES, 0, PAGE_BYTES);
        again |= span == first;
    }
    EXPECT_TRUE(again);
    for (struct span *span : spans)
        detached_give(span);
}

TEST_F(Detached, RefusedOnesGiveNull)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    size_t refused = 0; // metadata makes do with less, so not every call that fails is felt
    for (size_t call = 0; call < 8; call++) {
        os_fault_plan(call, 1, ENOMEM);
        struct span *span = detached_take(4, 16 * page_layer::kMiB, 1, PAGE_BYTES);
        os_fault_plan(0, 0, 0);
        if (span) {
            page_layer::fill(span, 1);
            detached_give(span);
        } else {
            EXPECT_LT(call, 6u) << "more calls than it makes";
        }
        refused += span == nullptr;
    }
    EXPECT_GT(refused, 0u);
    pages_verify();
}

} // namespace
