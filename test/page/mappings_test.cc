// Memory outside the arenas: mappings of runs and of large blocks.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cerrno>

#include "page/page_layer.h"

extern "C" {
#include "os/fault.h"
#include "os/memory.h"
}

namespace mappings_test
{

// Mappings: runs of pages with a kernel mapping of their own, outside the arenas.

class RunMappings : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }
};

TEST_F(RunMappings, RunsAreAlignedZeroAndUsable)
{
    for (size_t alignment = PAGE_BYTES; alignment <= 64 * page_layer::kMiB; alignment *= 8) {
        struct span *span = fork_run_take(20, alignment, 3);
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(span->base) % alignment, 0u);
        EXPECT_EQ(span->pages, 20u);
        EXPECT_EQ(span->dirty_pages, 0u);
        EXPECT_TRUE(page_layer::reads(span->base, 20 * PAGE_BYTES, 0));
        page_layer::fill(span, 1);
        EXPECT_EQ(arena_of(span->base), nullptr);
        page_map_set(span->base, 20, span); // the map covers it
        EXPECT_EQ(page_map_find(span->base + 19 * PAGE_BYTES), span);
        page_map_set(span->base, 20, nullptr);
        char *base = span->base;
        fork_run_give(span);
        unsigned char page;
        EXPECT_NE(mincore(base, PAGE_BYTES, &page), 0) << "the run is still mapped";
    }
}

TEST_F(RunMappings, AGivenUpHeaderServesAgain)
{
    struct span *first = fork_run_take(4, PAGE_BYTES, 0);
    ASSERT_NE(first, nullptr);
    fork_run_give(first);
    // The run waits in the deferred list; the next holder of the lock moves it to the free runs.
    struct span *run = pages_take(1, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    pages_give(run);
    bool again = false;
    struct span *spans[64];
    for (auto &span : spans) {
        span = fork_run_take(1, PAGE_BYTES, 0);
        again |= span == first;
    }
    EXPECT_TRUE(again);
    for (struct span *span : spans)
        fork_run_give(span);
}

TEST_F(RunMappings, RefusedOnesGiveNull)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    // metadata can do with a smaller chunk, so not every failed call has an effect
    size_t refused = 0;
    for (size_t call = 0; call < 8; call++) {
        os_fault_plan(call, 1, ENOMEM);
        struct span *span = fork_run_take(4, 16 * page_layer::kMiB, 1);
        os_fault_plan(0, 0, 0);
        if (span) {
            page_layer::fill(span, 1);
            fork_run_give(span);
        } else {
            EXPECT_LT(call, 6u) << "more failures than system calls";
        }
        refused += span == nullptr;
    }
    EXPECT_GT(refused, 0u);
    pages_verify();
}

// Huge blocks: mappings of their own that grow by moving page tables.

using page_layer::kMiB;
using page_layer::reads;

class BlockMappings : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }
};

TEST_F(BlockMappings, IsZeroMappedAndCounted)
{
    const page_stats before = page_layer::stats();
    struct span *span = pages_map_huge(33 * kMiB + 1, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    EXPECT_EQ(span->tag, SPAN_HUGE);
    EXPECT_TRUE(span->zero);
    EXPECT_GE(page_layer::bytes_of(span), 33 * kMiB + 1);
    EXPECT_EQ(page_map_find(span->base), span);
    EXPECT_EQ(page_map_find(span->base + PAGE_BYTES)->tag, SPAN_NONE);
    EXPECT_EQ(arena_of(span->base), nullptr);
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

TEST_F(BlockMappings, TakesAnyAlignment)
{
    for (size_t alignment = PAGE_BYTES; alignment <= 256 * kMiB; alignment *= 4) {
        struct span *span = pages_map_huge(100, alignment);
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(span->base) % alignment, 0u);
        page_layer::fill(span, 1);
        pages_give_huge(span);
    }
}

// A linear overflow of one block does not reach the next block.
TEST_F(BlockMappings, DoNotTouch)
{
    for (size_t size : {64 * kMiB, 64 * kMiB + os_page_size()}) {
        for (size_t alignment : {os_page_size(), 8 * kMiB}) {
            struct span *spans[16];
            for (struct span *&span : spans)
                ASSERT_NE(span = pages_map_huge(size, alignment), nullptr);
            for (struct span *one : spans)
                for (struct span *other : spans)
                    EXPECT_NE(one->base + page_layer::bytes_of(one), other->base);
            for (struct span *span : spans)
                pages_give_huge(span);
        }
    }
}

// The addresses behind a block are released, so that blocks fit into an address space limit.
TEST_F(BlockMappings, TheGapBehindABlockIsUnmapped)
{
    for (size_t size : {64 * kMiB, 64 * kMiB + os_page_size()}) {
        struct span *span = pages_map_huge(size, os_page_size());
        ASSERT_NE(span, nullptr);
        unsigned char page;
        EXPECT_NE(mincore(span->base + page_layer::bytes_of(span), os_page_size(), &page), 0);
        pages_give_huge(span);
    }
}

TEST_F(BlockMappings, BeyondTheAddressSpaceIsRefused)
{
    EXPECT_EQ(pages_map_huge(size_t{1} << 47, PAGE_BYTES), nullptr);
    EXPECT_EQ(pages_map_huge(size_t{1} << 62, PAGE_BYTES), nullptr);
    EXPECT_EQ(page_layer::stats().huge_count, 0u);
}

TEST_F(BlockMappings, ContentsSurviveGrowthAndShrinking)
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

// A neighbour directly behind a block makes it move; the old address must no longer be found.
TEST_F(BlockMappings, AMovedBlockIsFoundAtItsNewPlaceOnly)
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

TEST_F(BlockMappings, RefusedResizeLeavesItAsItWas)
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
    EXPECT_FALSE(pages_resize_huge(span, kMiB, true)) << "shrinking needs the kernel, too";
    os_fault_plan(0, 0, 0);
    EXPECT_TRUE(reads(span->base, kMiB, 9));
    pages_give_huge(span);
    pages_give_huge(guard);
}

// Blocks of 32 to 96 MiB that are allocated again and again must not be mapped and faulted in each
// time.
TEST_F(BlockMappings, WhatComesAgainIsKept)
{
    if (!config_kept_mappings)
        GTEST_SKIP() << "hardened builds keep no mappings";
    page_layer::configure(1000000, 64 * kMiB);
    // raises the peak, so that kept mappings stay below it
    struct span *most = pages_map_huge(256 * kMiB, PAGE_BYTES);
    ASSERT_NE(most, nullptr);
    pages_give_huge(most);
    page_layer::forget_cap();
    for (size_t bytes : {40 * kMiB, 90 * kMiB, 200 * kMiB}) {
        pages_trim(0);
        for (int round = 0; round < 2; round++) {
            struct span *span = pages_map_kept(bytes);
            EXPECT_EQ(span, nullptr) << "the length was needed only once so far";
            span = pages_map_huge(bytes, PAGE_BYTES);
            ASSERT_NE(span, nullptr);
            memset(span->base, 5, kMiB);
            pages_give_huge(span);
        }
        EXPECT_EQ(kept_mapping_pages() << PAGE_SHIFT, bytes);
        const uint64_t before = os_calls[OS_CALL_MAP] + os_calls[OS_CALL_UNMAP];
        for (int round = 0; round < 20; round++) {
            struct span *span = pages_map_kept(bytes);
            ASSERT_NE(span, nullptr) << round;
            EXPECT_FALSE(span->zero);
            EXPECT_TRUE(reads(span->base, kMiB, 5));
            pages_give_huge(span);
            if (round % 4 == 3)
                cap_age(kept_mapping_age()); // the decay leaves it, since it is in use
        }
        EXPECT_EQ(os_calls[OS_CALL_MAP] + os_calls[OS_CALL_UNMAP], before);
    }
    pages_trim(0);
    page_layer::forget_cap();
    struct span *last = pages_map_huge(40 * kMiB, PAGE_BYTES);
    ASSERT_NE(last, nullptr);
    pages_give_huge(last);
    EXPECT_EQ(kept_mapping_pages(), 0u) << "the length was not needed for long";
}

TEST_F(BlockMappings, MovingBytesGivesTheSourceBackOnTheWay)
{
    struct span *source = pages_map_huge(20 * kMiB, PAGE_BYTES);
    struct span *destination = pages_map_huge(24 * kMiB, PAGE_BYTES);
    ASSERT_TRUE(source && destination);
    for (size_t at = 0; at < 20 * kMiB; at += 512)
        source->base[at] = static_cast<char>(at / 512 % 251 + 1);
    pages_move_bytes(destination, source, 20 * kMiB);
    for (size_t at = 0; at < 20 * kMiB; at += 512)
        ASSERT_EQ(destination->base[at], static_cast<char>(at / 512 % 251 + 1));
    EXPECT_TRUE(reads(source->base + kMiB, kMiB, 0)) << "the source still holds its memory";
    pages_give_huge(source);
    pages_give_huge(destination);
}

} // namespace mappings_test
