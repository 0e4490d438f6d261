// Splitting spans in use: both parts live on, and each is given back by itself.

#include <gtest/gtest.h>

#include <cstring>

extern "C" {
#include "os/memory.h"
#include "page/page.h"
#include "page/state.h"
}

namespace split_test
{

TEST(Split, BothPartsAreSpansOfTheirOwn)
{
    os_init();
    struct span *first = pages_take(10, PAGE_BYTES);
    ASSERT_NE(first, nullptr);
    char *base = first->base;
    memset(base, 1, 10 * PAGE_BYTES);
    struct span *rest = pages_split(first, 4, false);
    ASSERT_NE(rest, nullptr);
    page_map_set(rest->base, 1, rest);
    EXPECT_EQ(rest->base, base + 4 * PAGE_BYTES);
    EXPECT_EQ(rest->pages, 6u);
    EXPECT_EQ(first->pages, 4u);
    EXPECT_EQ(rest->tag, first->tag);
    pages_give(first);
    EXPECT_EQ(rest->base[0], 1);
    pages_give(rest);
    pages_verify();
}

TEST(Split, HugeSpansAreCounted)
{
    struct page_stats before;
    pages_read_stats(&before);
    struct span *first = pages_map_huge(40 << 20, PAGE_BYTES);
    ASSERT_NE(first, nullptr);
    struct span *rest = pages_split(first, 100, true);
    ASSERT_NE(rest, nullptr);
    page_map_set(rest->base, 1, rest);
    struct page_stats now;
    pages_read_stats(&now);
    EXPECT_EQ(now.huge_count, before.huge_count + 2);
    pages_give_huge(first);
    rest->base[0] = 1;
    pages_give_huge(rest);
    pages_read_stats(&now);
    EXPECT_EQ(now.huge_count, before.huge_count);
    EXPECT_EQ(now.huge_bytes, before.huge_bytes);
}

// The header of the rest served another span before, whose fields must not remain in it.
TEST(Split, TheRestHasGrownOnlyIfTheWholeHad)
{
    struct span *first = pages_map_huge(40 << 20, PAGE_BYTES);
    ASSERT_NE(first, nullptr);
    struct span *used_before = header_take(&page_shards[0], 0);
    ASSERT_NE(used_before, nullptr);
    memset(&used_before->fresh_slot, true, sizeof used_before->fresh_slot);
    ASSERT_TRUE(lock_acquire(&page_shards[0].lock));
    header_push(used_before);
    lock_release(&page_shards[0].lock);
    struct span *rest = pages_split(first, 100, true);
    ASSERT_EQ(rest, used_before);
    EXPECT_TRUE(rest->zero);
    EXPECT_FALSE(rest->grew);
    page_map_set(rest->base, 1, rest);
    pages_give_huge(first);
    pages_give_huge(rest);
}

// The number of dirty pages of a run is in the place of these flags until the run is taken.
TEST(Split, TheRestOfALongDirtyRunHasNoFlags)
{
    constexpr size_t kPages = 2 << 9;
    os_init();
    struct span *run = pages_take(kPages, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    memset(run->base, 1, kPages * PAGE_BYTES);
    pages_give(run);
    struct span *first = pages_take(kPages, PAGE_BYTES);
    ASSERT_NE(first, nullptr);
    ASSERT_FALSE(first->zero);
    struct span *rest = pages_split(first, 100, false);
    ASSERT_NE(rest, nullptr);
    const uint8_t none[] = {0, 0, 0}; // a bool of another value must not be read as one
    EXPECT_EQ(memcmp(&rest->zero, none, sizeof none), 0) << "zero, grew and longer";
    page_map_set(rest->base, 1, rest);
    pages_give(first);
    pages_give(rest);
}

} // namespace split_test
