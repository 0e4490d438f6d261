// Guarded blocks: what lies around them, growing and shrinking, and their addresses once freed.

#include <gtest/gtest.h>

#include "page/page_layer.h"

namespace
{

constexpr size_t kKiB = 1024;
using page_layer::kMiB;

class Guarded : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_layer::start();
        (void)guarded_purge(SIZE_MAX);
    }

    static struct span *map(size_t size, size_t alignment = PAGE_BYTES, size_t spare = 0)
    {
        struct span *span = pages_map_guarded(size, alignment, spare);
        EXPECT_NE(span, nullptr);
        return span;
    }
    static void touch(volatile char *at) { *at = 1; }
};

using GuardedDeathTest = Guarded;

TEST_F(GuardedDeathTest, BothSidesFault)
{
    for (size_t size : {size_t{PAGE_BYTES}, 100 * kKiB, 3 * kMiB}) {
        struct span *span = map(size, PAGE_BYTES, 10 * kKiB);
        memset(span->base, 1, size);
        EXPECT_DEATH(touch(span->base - 1), "");
        EXPECT_DEATH(touch(span->base + size), "");
        pages_give_guarded(span);
    }
}

TEST_F(GuardedDeathTest, FreedAddressesFault)
{
    struct span *span = map(kMiB);
    char *base = span->base;
    pages_give_guarded(span);
    EXPECT_DEATH(touch(base), "");
    EXPECT_DEATH(touch(base + kMiB - 1), "");
}

TEST_F(Guarded, FreedAddressesAreGivenBackInTheEnd)
{
    for (int i = 0; i < 2000; i++)
        pages_give_guarded(map(8 * kMiB)); // 16 GiB of addresses if they stayed
    page_stats stats;
    pages_read_stats(&stats);
    EXPECT_EQ(stats.huge_count, 0u);
    EXPECT_EQ(stats.huge_bytes, 0u);
}

// What the freed block's memory serves next reads zero and lies elsewhere; the old addresses fault.
TEST_F(GuardedDeathTest, KeptMemoryServesTheNextBlockElsewhere)
{
    struct span *span = map(3 * kMiB);
    char *base = span->base;
    memset(base, 1, 3 * kMiB);
    pages_give_guarded(span);
    EXPECT_EQ(guarded_kept_pages(), 3 * kMiB / PAGE_BYTES);
    if (config_guarded_blocks) {
        EXPECT_EQ(page_layer::stats().dirty_bytes, 3 * kMiB);
        EXPECT_EQ(page_layer::stats().free_bytes, 3 * kMiB);
    }
    EXPECT_DEATH(touch(base), "");

    struct span *next = map(3 * kMiB - PAGE_BYTES);
    EXPECT_EQ(guarded_kept_pages(), 0u);
    EXPECT_NE(next->base, base);
    EXPECT_EQ(os_resident(next->base, page_layer::bytes_of(next)), page_layer::bytes_of(next));
    EXPECT_TRUE(page_layer::reads(next->base, page_layer::bytes_of(next), 0));
    EXPECT_TRUE(next->zero);
    EXPECT_DEATH(touch(base), "");
    EXPECT_DEATH(touch(base + 3 * kMiB - 1), "");
    EXPECT_DEATH(touch(next->base + page_layer::bytes_of(next)), "");
    ASSERT_TRUE(pages_resize_guarded(next, 8 * kMiB, true)) << "one mapping still";
    pages_give_guarded(next);
}

TEST_F(Guarded, KeptMemoryServesOnlyBlocksOfLikeLength)
{
    struct span *span = map(3 * kMiB);
    memset(span->base, 1, 3 * kMiB);
    pages_give_guarded(span);
    struct span *shorter = map(kMiB);
    struct span *longer = map(4 * kMiB);
    EXPECT_EQ(guarded_kept_pages(), 3 * kMiB / PAGE_BYTES);
    EXPECT_EQ(os_resident(longer->base, 4 * kMiB), 0u);
    pages_give_guarded(shorter);
    pages_give_guarded(longer);
}

TEST_F(Guarded, WhatWasHardlyUsedIsNotKept)
{
    struct span *span = map(3 * kMiB);
    memset(span->base, 1, 2 * kMiB);
    pages_give_guarded(span);
    EXPECT_EQ(guarded_kept_pages(), 0u);
}

TEST_F(Guarded, KeptMemoryIsBoundedByTheCap)
{
    page_layer::configure(1000, 8 * kMiB);
    struct span *spans[20];
    for (struct span *&span : spans)
        memset((span = map(kMiB))->base, 1, kMiB);
    for (struct span *span : spans)
        pages_give_guarded(span);
    EXPECT_GE(guarded_kept_pages(), 6 * kMiB / PAGE_BYTES);
    EXPECT_LE(guarded_kept_pages(), 10 * kMiB / PAGE_BYTES);
    page_layer::configure(1000, 0);
    struct span *span = map(4 * kMiB);
    memset(span->base, 1, 4 * kMiB);
    const size_t before = guarded_kept_pages();
    pages_give_guarded(span);
    EXPECT_LE(guarded_kept_pages(), before);
}

TEST_F(Guarded, KeptMemoryGoesBackOnDemandAndByAge)
{
    page_layer::configure(20, 64 * kMiB);
    for (const bool by_age : {false, true}) {
        struct span *spans[4];
        for (struct span *&span : spans)
            memset((span = map(kMiB))->base, 1, kMiB);
        for (struct span *span : spans)
            pages_give_guarded(span);
        ASSERT_GE(guarded_kept_pages(), 2 * kMiB / PAGE_BYTES);
        if (!by_age && config_guarded_blocks) {
            EXPECT_TRUE(pages_trim(0));
        }
        for (int i = 0; by_age && i < 4; i++) {
            usleep(30000);
            pages_tick(nullptr);
            if (!config_guarded_blocks)
                guarded_tick();
        }
        if (!config_guarded_blocks)
            (void)guarded_purge(SIZE_MAX);
        EXPECT_EQ(guarded_kept_pages(), 0u);
    }
}

TEST_F(Guarded, AlignmentIsKept)
{
    for (size_t alignment = PAGE_BYTES; alignment <= 64 * kMiB; alignment *= 4) {
        struct span *span = map(50 * kKiB, alignment);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(span->base) % alignment, 0u);
        EXPECT_EQ(page_map_find(span->base), span);
        pages_give_guarded(span);
    }
}

TEST_F(Guarded, GrowsAndShrinksWithItsContents)
{
    struct span *span = map(100 * kKiB, PAGE_BYTES, 12 * kKiB);
    for (size_t i = 0; i < 100 * kKiB; i++)
        span->base[i] = static_cast<char>(i * 7);
    char *base = span->base;
    ASSERT_TRUE(pages_resize_guarded(span, 108 * kKiB, true));
    EXPECT_EQ(span->base, base) << "there was room";
    for (size_t size : {600 * kKiB, 112 * kKiB, 3 * kMiB, 100 * kKiB, 5 * kMiB, 6 * kMiB}) {
        const size_t old = size_t{span->pages} << PAGE_SHIFT;
        ASSERT_TRUE(pages_resize_guarded(span, size, true));
        EXPECT_EQ(size_t{span->pages} << PAGE_SHIFT, size);
        EXPECT_EQ(page_map_find(span->base), span);
        for (size_t i = 0; i < 100 * kKiB; i++)
            ASSERT_EQ(span->base[i], static_cast<char>(i * 7)) << size;
        for (size_t i = old; i < size; i++)
            ASSERT_EQ(span->base[i], 0) << size;
        memset(span->base + 100 * kKiB, 1, size - 100 * kKiB);
        ASSERT_GE(span->behind_bytes, PAGE_BYTES);
        EXPECT_DEATH(touch(span->base + size), "");
        EXPECT_DEATH(touch(span->base + size + span->behind_bytes - 1), "");
    }
    pages_give_guarded(span);
}

TEST_F(Guarded, WhatCannotBeIsRefused)
{
    EXPECT_EQ(pages_map_guarded(SIZE_MAX / 2, PAGE_BYTES, 0), nullptr);
    EXPECT_EQ(pages_map_guarded(size_t{1} << 43, PAGE_BYTES, size_t{1} << 47), nullptr);
    struct span *span = map(kMiB);
    EXPECT_FALSE(pages_resize_guarded(span, SIZE_MAX / 2, true));
    EXPECT_EQ(size_t{span->pages} << PAGE_SHIFT, kMiB);
    pages_give_guarded(span);
}

} // namespace
