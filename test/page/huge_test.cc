// Huge blocks: mappings of their own that grow by moving page tables.

#include <gtest/gtest.h>

#include <cerrno>

#include "page/page_layer.h"

namespace
{

using page_layer::kMiB;
using page_layer::reads;

class Huge : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }
};

TEST_F(Huge, IsZeroMappedAndCounted)
{
    const page_stats before = page_layer::stats();
    struct span *span = pages_map_huge(33 * kMiB + 1, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    EXPECT_EQ(span->tag, SPAN_HUGE);
    EXPECT_TRUE(span->zero);
    EXPECT_GE(page_layer::bytes_of(span), 33 * kMiB + 1);
    EXPECT_EQ(page_map_find(span->base), span);
    EXPECT_EQ(page_map_find(span->base + PAGE_BYTES)->tag, SPAN_NONE);
    EXPECT_EQ(arena_find(span->base), nullptr);
    EXPECT_TRUE(reads(span->base, page_layer::bytes_of(span), 0));
    page_stats now = page_layer::stats();
    EXPECT_EQ(now.huge_count - before.huge_count, 1u);
    EXPECT_EQ(now.huge_bytes - before.huge_bytes, page_layer::bytes_of(span));
    char *base = span->base;
    pages_give_huge(span);
    EXPECT_EQ(page_map_find(base)->tag, SPAN_NONE);
    now = page_layer::stats();
    EXPECT_EQ(now.huge_count, before.huge_count);
    EXPECT_EQ(now.huge_bytes, before.huge_bytes);
}

TEST_F(Huge, TakesAnyAlignment)
{
    for (size_t alignment = PAGE_BYTES; alignment <= 256 * kMiB; alignment *= 4) {
        struct span *span = pages_map_huge(100, alignment);
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(span->base) % alignment, 0u);
        page_layer::fill(span, 1);
        pages_give_huge(span);
    }
}

// A linear overflow of one does not reach the next.
TEST_F(Huge, HardenedOnesDoNotTouch)
{
    if (!config_fences)
        GTEST_SKIP() << "the default build leaves nothing between them";
    struct span *spans[16];
    for (struct span *&span : spans)
        ASSERT_NE(span = pages_map_huge(64 * kMiB, PAGE_BYTES), nullptr);
    for (struct span *one : spans)
        for (struct span *other : spans)
            EXPECT_NE(one->base + page_layer::bytes_of(one), other->base);
    for (struct span *span : spans)
        pages_give_huge(span);
}

TEST_F(Huge, BeyondTheAddressSpaceIsRefused)
{
    EXPECT_EQ(pages_map_huge(size_t{1} << 47, PAGE_BYTES), nullptr);
    EXPECT_EQ(pages_map_huge(size_t{1} << 62, PAGE_BYTES), nullptr);
    EXPECT_EQ(page_layer::stats().huge_count, 0u);
}

TEST_F(Huge, ContentsSurviveGrowthAndShrinking)
{
    struct span *span = pages_map_huge(4 * kMiB, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    page_layer::fill(span, 7);
    for (size_t size : {8 * kMiB, 64 * kMiB, 64 * kMiB + PAGE_BYTES, 6 * kMiB, 5 * kMiB + 3}) {
        ASSERT_TRUE(pages_resize_huge(span, size, true));
        EXPECT_GE(page_layer::bytes_of(span), size);
        EXPECT_LT(page_layer::bytes_of(span), size + os_page_size());
        EXPECT_EQ(page_layer::stats().huge_bytes, page_layer::bytes_of(span));
        EXPECT_EQ(page_map_find(span->base), span);
        EXPECT_TRUE(reads(span->base, 4 * kMiB, 7)) << size;
    }
    EXPECT_TRUE(reads(span->base + 4 * kMiB, page_layer::bytes_of(span) - 4 * kMiB, 0));
    pages_give_huge(span);
}

// A neighbour right behind makes it move; the old address must not be found any more.
TEST_F(Huge, AMovedBlockIsFoundAtItsNewPlaceOnly)
{
    struct span *spans[16];
    for (auto &span : spans) {
        span = pages_map_huge(kMiB, PAGE_BYTES);
        ASSERT_NE(span, nullptr);
        page_layer::fill(span, 3);
    }
    size_t moved = 0;
    for (struct span *span : spans) {
        char *old = span->base;
        ASSERT_TRUE(pages_resize_huge(span, 9 * kMiB, true));
        EXPECT_TRUE(reads(span->base, kMiB, 3));
        EXPECT_EQ(page_map_find(span->base), span);
        if (span->base != old) {
            moved++;
            EXPECT_NE(page_map_find(old), span);
        }
    }
    EXPECT_GT(moved, 0u);
    for (struct span *span : spans)
        pages_give_huge(span);
}

TEST_F(Huge, RefusedResizeLeavesItAsItWas)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    struct span *guard = pages_map_huge(kMiB, PAGE_BYTES);
    struct span *span = pages_map_huge(kMiB, PAGE_BYTES);
    ASSERT_TRUE(guard && span);
    page_layer::fill(span, 9);
    for (size_t call = 0; call < 5; call++) {
        char *base = span->base;
        const size_t bytes = page_layer::bytes_of(span);
        os_fault_plan(call, SIZE_MAX / 2, EPERM);
        const bool grown = pages_resize_huge(span, bytes + 40 * kMiB, true);
        os_fault_plan(0, 0, 0);
        if (!grown) {
            EXPECT_EQ(span->base, base);
            EXPECT_EQ(page_layer::bytes_of(span), bytes);
        }
        EXPECT_TRUE(call != 0 || !grown);
        EXPECT_EQ(page_map_find(span->base), span);
        EXPECT_TRUE(reads(span->base, kMiB, 9));
    }
    os_fault_plan(0, SIZE_MAX / 2, EPERM);
    EXPECT_FALSE(pages_resize_huge(span, kMiB, true)) << "shrinking needs the kernel too";
    os_fault_plan(0, 0, 0);
    EXPECT_TRUE(reads(span->base, kMiB, 9));
    pages_give_huge(span);
    pages_give_huge(guard);
}

TEST_F(Huge, MovingBytesGivesTheSourceBackOnTheWay)
{
    struct span *source = pages_map_huge(20 * kMiB, PAGE_BYTES);
    struct span *destination = pages_map_huge(24 * kMiB, PAGE_BYTES);
    ASSERT_TRUE(source && destination);
    for (size_t at = 0; at < 20 * kMiB; at += 512)
        source->base[at] = static_cast<char>(at / 512 % 251 + 1);
    pages_move_bytes(destination, source, 20 * kMiB);
    for (size_t at = 0; at < 20 * kMiB; at += 512)
        ASSERT_EQ(destination->base[at], static_cast<char>(at / 512 % 251 + 1));
    EXPECT_TRUE(reads(source->base + kMiB, kMiB, 0)) << "still holds its memory";
    pages_give_huge(source);
    pages_give_huge(destination);
}

} // namespace
