// Guarded blocks: the inaccessible pages around them, and how they grow and shrink.

#include "page/guarded_kit.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace guarded_test
{

constexpr size_t kKiB = 1024;
using page_layer::kMiB;
using Guarded = guarded_kit::Blocks;
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
    EXPECT_EQ(span->base, base) << "the block had room to grow";
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
        ASSERT_GE(span->behind_pages, 1u);
        EXPECT_DEATH(touch(span->base + size), "");
        EXPECT_DEATH(touch(span->base + size + (size_t{span->behind_pages} << PAGE_SHIFT) - 1), "");
    }
    pages_give_guarded(span);
}

// A block counted twice for a moment would make a hard limit refuse another thread's request.
TEST_F(Guarded, ABlockIsNeverCountedTwice)
{
    constexpr size_t kLeast = 10 * kMiB;
    struct page_stats start;
    pages_read_stats(&start);
    std::atomic<bool> over{false};
    std::atomic<size_t> most{0};
    std::thread reader([&] {
        while (!over) {
            struct page_stats now;
            pages_read_stats(&now);
            most = std::max(most.load(), now.huge_bytes - start.huge_bytes);
        }
    });
    for (int round = 0; round < 2000; round++) {
        struct span *span = map(kLeast);
        ASSERT_TRUE(pages_resize_guarded(span, 2 * kLeast, true));
        ASSERT_TRUE(pages_resize_guarded(span, kLeast, true));
        pages_give_guarded(span);
    }
    over = true;
    reader.join();
    EXPECT_LE(most, 2 * kLeast);
    struct page_stats end;
    pages_read_stats(&end);
    EXPECT_EQ(end.huge_bytes, start.huge_bytes);
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

} // namespace guarded_test
