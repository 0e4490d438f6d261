// Headers and what they keep, and runs with a mapping of their own.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

#include "page/page_layer.h"

namespace
{

class Header : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_layer::start();
        ASSERT_TRUE(lock_acquire(&pages_state.lock));
        lock_release(&pages_state.lock);
    }
};

TEST_F(Header, EachHasItsLineAndItsColdArea)
{
    for (unsigned units = 0; units < COLD_KINDS; units++) {
        struct span *span = header_make(units);
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(span) % 64, 0u);
        EXPECT_EQ(span->cold_64, units);
        EXPECT_EQ(span->tag, SPAN_NONE);
        EXPECT_EQ(span->owner, 0u);
        EXPECT_EQ(span->links != nullptr, units != 0);
        if (units != 0) {
            EXPECT_TRUE(page_layer::reads(reinterpret_cast<char *>(span->links), units * 64, 0));
            memset(span->links, 0xff, units * 64);
        }
    }
}

TEST_F(Header, AreRecycledByTheSizeOfTheirColdArea)
{
    struct span *small = header_make(2);
    struct span *large = header_make(6);
    uint8_t *links = large->links;
    ASSERT_TRUE(lock_acquire(&pages_state.lock));
    header_push(small);
    header_push(large);
    EXPECT_EQ(header_pop(6), large);
    EXPECT_EQ(large->links, links);
    EXPECT_EQ(header_pop(2), small);
    EXPECT_EQ(header_pop(6), nullptr);
    lock_release(&pages_state.lock);
}

TEST_F(Header, DetachedRunsAreAlignedZeroAndUsable)
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

TEST_F(Header, AGivenUpHeaderServesAgain)
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

TEST_F(Header, RefusedDetachedRunsGiveNull)
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
