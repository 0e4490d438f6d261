// Large blocks: the kind for each size, and resizing without a copy.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "heap/heap_layer.h"

extern "C" {
#include "base/bits.h"
#include "os/fault.h"
#include "os/memory.h"
#include "page/kept_mappings.h"
#include "page/state.h"
}

namespace large_test
{

using heap_layer::kKiB;
using heap_layer::kMiB;

class Large : public testing::Test
{
  protected:
    void SetUp() override { heap_start(); }
    void TearDown() override { pages_verify(); }

    static struct span *take(size_t size, size_t alignment = PAGE_BYTES)
    {
        struct span *span = large_allocate(size, alignment);
        EXPECT_NE(span, nullptr);
        EXPECT_GE(size_t{span->pages} << PAGE_SHIFT, size);
        return span;
    }
};

TEST_F(Large, RunsAreForTheMiddleMappingsForTheTop)
{
    if (config_guarded_blocks)
        GTEST_SKIP() << "all large blocks are mappings";
    for (size_t size : {MEDIUM_BLOCK_MAX + size_t{1}, 100 * kKiB, 129 * kKiB, 5 * kMiB}) {
        struct span *span = take(size);
        EXPECT_EQ(span->tag, SPAN_LARGE) << size;
        // A run of up to 256 KiB has one of eight lengths a doubling.
        const size_t most = size <= 256 * kKiB ? size / 8 + PAGE_BYTES : size_t{PAGE_BYTES} - 1;
        EXPECT_LE((size_t{span->pages} << PAGE_SHIFT) - size, most);
        large_free(span, span->base);
    }
    for (size_t size : {40 * kMiB, 300 * kMiB}) {
        struct span *span = take(size);
        EXPECT_EQ(span->tag, SPAN_HUGE) << size;
        large_free(span, span->base);
    }
    EXPECT_EQ(heap_layer::stats().large_blocks, 0u);
}

TEST_F(Large, AlignmentIsKept)
{
    for (size_t alignment = PAGE_BYTES; alignment <= 64 * kMiB; alignment *= 2) {
        struct span *span = take(50 * kKiB, alignment);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(span->base) % alignment, 0u);
        large_free(span, span->base);
    }
}

TEST_F(Large, WhatCannotBeIsRefused)
{
    EXPECT_EQ(large_allocate(SIZE_MAX, PAGE_BYTES), nullptr);
    EXPECT_EQ(large_allocate(SIZE_MAX / 2 + 1, PAGE_BYTES), nullptr);
    EXPECT_EQ(large_allocate(SIZE_MAX / 2 - 10, PAGE_BYTES), nullptr);
    EXPECT_EQ(large_allocate(PAGE_BYTES, SIZE_MAX / 2 + 1), nullptr);
    EXPECT_EQ(large_allocate(SIZE_MAX / 4, SIZE_MAX / 4 + 1), nullptr);
}

// Blocks that were written and freed before, of the same and of other sizes, with and without a
// trim, and in the default builds written once more after it.
TEST_F(Large, AZeroedBlockReadsZero)
{
    std::vector<std::pair<char *, size_t>> blocks;
    for (int round = 0; round < 6; round++) {
        for (size_t size = 40000; size <= 200000; size += 8009) {
            for (size_t bytes : {size, size, size + 90000, size, size / 2 + 30000, size}) {
                char *block = static_cast<char *>(heap_allocate_zeroed(bytes));
                ASSERT_NE(block, nullptr);
                ASSERT_TRUE(block[0] == 0 && memcmp(block, block + 1, bytes - 1) == 0) << bytes;
                memset(block, 1, bytes);
                blocks.emplace_back(block, bytes);
            }
            if (blocks.size() < 24)
                continue;
            for (const auto &[block, bytes] : blocks)
                free_fast(block);
            const bool trims = round % 2 != 0;
            if (trims)
                heap_release(0);
            for (const auto &[block, bytes] : blocks)
                if (trims && !config_guarded_blocks)
                    memset(block + bytes / 2, 1, bytes / 4);
            blocks.clear();
        }
    }
    for (const auto &[block, bytes] : blocks)
        free_fast(block);
}

TEST_F(Large, ARunResizesInPlaceWhereItsNeighbourIsFree)
{
    struct span *span = take(kMiB);
    char *base = span->base;
    memset(base, 3, kMiB);
    EXPECT_EQ(large_resize(span, 200 * kKiB, true), base);
    const size_t granule = config_guarded_blocks ? os_page_size() >> PAGE_SHIFT : 1;
    EXPECT_EQ(size_t{span->pages}, align_up(large_pages(200 * kKiB), granule));
    EXPECT_EQ(large_resize(span, kMiB, true), base) << "the rest of the block's own run is free";
    EXPECT_EQ(large_resize(span, MEDIUM_REQUEST_MAX, true), nullptr) << "slabs serve that size";
    EXPECT_EQ(large_resize(span, SIZE_MAX / 2 + 1, true), nullptr);
    for (size_t i = 0; i < 200 * kKiB; i++)
        ASSERT_EQ(base[i], 3);
    large_free(span, span->base);
}

// A run of up to 256 KiB stays as it is while three quarters of it are filled, as a medium block.
TEST_F(Large, AShortRunStaysWhileMostOfItIsFilled)
{
    if (config_guarded_blocks)
        GTEST_SKIP() << "large blocks are mappings";
    struct span *span = take(129 * kKiB);
    const size_t bytes = size_t{span->pages} << PAGE_SHIFT;
    EXPECT_EQ(bytes, 144 * kKiB);
    for (size_t size : {bytes, bytes / 4 * 3 + 1, 129 * kKiB}) {
        EXPECT_NE(large_resize(span, size, false), nullptr) << size;
        EXPECT_EQ(size_t{span->pages} << PAGE_SHIFT, bytes) << size;
        EXPECT_TRUE(large_matches(span, size, 1)) << size;
    }
    EXPECT_FALSE(large_matches(span, bytes + 1, 1));
    EXPECT_FALSE(large_matches(span, bytes / 4 * 3, 1));
    EXPECT_NE(large_resize(span, bytes / 4 * 3, false), nullptr);
    EXPECT_EQ(size_t{span->pages}, large_pages(bytes / 4 * 3)) << "its tail is given back";
    large_free(span, span->base);
}

TEST_F(Large, AMappingGrowsWithoutACopyAndShrinks)
{
    struct span *span = take(40 * kMiB);
    memset(span->base, 4, 40 * kMiB);
    ASSERT_NE(large_resize(span, 100 * kMiB, true), nullptr);
    EXPECT_GE(size_t{span->pages} << PAGE_SHIFT, 100 * kMiB);
    EXPECT_EQ(page_map_find(span->base), span);
    for (size_t i = 0; i < 40 * kMiB; i += 512)
        ASSERT_EQ(span->base[i], 4);
    char *base = span->base;
    EXPECT_EQ(large_resize(span, 99 * kMiB, true), base);
    EXPECT_EQ(large_resize(span, 3 * kMiB, true), base);
    EXPECT_LT(size_t{span->pages} << PAGE_SHIFT, 5 * kMiB)
        << "the block keeps memory that it does not need";
    EXPECT_EQ(base[3 * kMiB - 1], 4);
    large_free(span, span->base);
}

// A mapping that shrinks must not keep a part of its former length.
TEST_F(Large, AMappingThatShrinksGivesItsTailBack)
{
    struct span *span = take(64 * kMiB);
    char *base = span->base;
    memset(base, 5, 64 * kMiB);
    for (size_t size : {60 * kMiB, 50 * kMiB, 45 * kMiB}) {
        EXPECT_EQ(large_resize(span, size, true), base);
        EXPECT_EQ(size_t{span->pages} << PAGE_SHIFT, size);
        EXPECT_TRUE(large_matches(span, size, 1));
        unsigned char resident;
        if (!config_guarded_blocks) { // in guarded builds its addresses stay, without memory
            EXPECT_NE(mincore(base + size, 1, &resident), 0) << "the tail is still mapped";
        }
    }
    EXPECT_EQ(large_resize(span, 44 * kMiB, true), base);
    if (!config_guarded_blocks) {
        EXPECT_EQ(size_t{span->pages} << PAGE_SHIFT, 45 * kMiB)
            << "so small a difference needs no system call";
    }
    EXPECT_EQ(base[44 * kMiB - 1], 5);
    large_free(span, span->base);
}

TEST_F(Large, ABlockThatMovesWhileItGrowsBecomesAMapping)
{
    if (config_guarded_blocks)
        GTEST_SKIP() << "all large blocks are mappings";
    (void)pages_trim(0); // memory of other cases would serve it
    struct span *small = large_allocate_growing(100 * kKiB);
    struct span *big = large_allocate_growing(20 * kMiB);
    ASSERT_TRUE(small && big);
    EXPECT_EQ(small->tag, SPAN_LARGE);
    EXPECT_EQ(big->tag, SPAN_HUGE);
    EXPECT_GT(size_t{big->pages} << PAGE_SHIFT, 20 * kMiB) << "room for the next step";
    EXPECT_EQ(large_allocate_growing(SIZE_MAX), nullptr);
    large_free(small, small->base);
    large_free(big, big->base);
}

// The pattern of a program that reads one file after another.
TEST_F(Large, TheNextBlockThatGrowsUsesWhatTheLastOneLeft)
{
    if (config_fences)
        GTEST_SKIP() << "hardened builds keep no mappings";
    const auto calls = [] {
        return os_calls[OS_CALL_MAP] + os_calls[OS_CALL_UNMAP] + os_calls[OS_CALL_REMAP] +
               os_calls[OS_CALL_ADVISE];
    };
    const auto read_file = [] {
        struct span *span = large_allocate(100 * kKiB, PAGE_BYTES);
        for (size_t size = 200 * kKiB; size < 16 * kMiB; size += size / 2) {
            memset(span->base, 1, size_t{span->pages} << PAGE_SHIFT);
            if (large_resize(span, size, true) == nullptr) {
                struct span *moved = large_allocate_growing(size);
                ASSERT_NE(moved, nullptr);
                large_free(span, span->base);
                span = moved;
            }
            EXPECT_GE(size_t{span->pages} << PAGE_SHIFT, size);
            EXPECT_TRUE(large_matches(span, size, 1)) << size;
        }
        EXPECT_EQ(span->tag, SPAN_HUGE);
        large_free(span, span->base);
    };
    const page_limits limits = heap_layer::limits();
    heap_layer::set_decay(1000000);
    read_file();
    read_file();
    const uint64_t before = calls();
    for (int i = 0; i < 10; i++)
        read_file();
    EXPECT_EQ(calls(), before);
    pages_configure(&limits);
    EXPECT_EQ(heap_layer::stats().large_blocks, 0u);
    heap_release(0);
    EXPECT_EQ(heap_layer::stats().pages.dirty_bytes, 0u);
}

// A resize that fails leaves the block with the freed memory that was behind it. The size that the
// program asked for is still right.
TEST_F(Large, ASizeMatchesAfterAResizeThatFailed)
{
    if (!config_kept_mappings)
        GTEST_SKIP() << "this build keeps no mappings";
    const page_limits before = heap_layer::limits();
    page_limits limits = before;
    limits.dirty_cap_bytes = 512 * kMiB;
    pages_configure(&limits);
    struct span *grown = large_allocate(40 * kMiB, PAGE_BYTES);
    for (size_t size = 44 * kMiB; size <= 72 * kMiB; size += 4 * kMiB) {
        if (large_resize(grown, size, true) == nullptr) {
            struct span *moved = large_allocate_growing(size);
            large_free(grown, grown->base);
            grown = moved;
        }
    }
    large_free(grown, grown->base);
    struct span *span = large_allocate_mapped(33 * kMiB, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    page_limits limited = limits;
    limited.hard_limit_bytes = heap_layer::stats().pages.committed_bytes + 100 * kMiB;
    pages_configure(&limited);
    EXPECT_EQ(large_resize(span, 2048 * kMiB, true), nullptr);
    pages_configure(&limits);
    ASSERT_GT(span->pages, 50 * kMiB >> PAGE_SHIFT) << "it has what was behind it";
    EXPECT_TRUE(large_matches(span, 33 * kMiB, 1));
    EXPECT_FALSE(large_matches(span, (size_t{span->pages} << PAGE_SHIFT) + 1, 1));
    ASSERT_NE(large_resize(span, 47 * kMiB, true), nullptr);
    EXPECT_FALSE(large_matches(span, 33 * kMiB, 1)) << "after a resize that did not fail";
    large_free(span, span->base);
    pages_configure(&before);
}

TEST_F(Large, SizesThatMatchASpan)
{
    for (size_t size : {33 * kKiB, 100 * kKiB + 1, 5 * kMiB, 40 * kMiB}) {
        struct span *span = take(size);
        EXPECT_TRUE(large_matches(span, size, 1));
        EXPECT_FALSE(large_matches(span, size + 2 * PAGE_BYTES, 1));
        EXPECT_FALSE(large_matches(span, size * 2, 1));
        large_free(span, span->base);
    }
}

TEST_F(Large, RefusedMemoryIsNull)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    for (size_t size : {100 * kMiB, 25 * kMiB}) {
        const heap_stats before = heap_layer::stats();
        os_fault_plan(0, SIZE_MAX / 2, EPERM);
        EXPECT_EQ(large_allocate(size, PAGE_BYTES), nullptr);
        EXPECT_EQ(large_allocate_growing(size), nullptr);
        os_fault_plan(0, 0, 0);
        EXPECT_EQ(heap_layer::stats().large_bytes, before.large_bytes);
        struct span *span = take(size);
        large_free(span, span->base);
    }
}

// At the limit of address space, a growing block must find memory wherever malloc finds it: in an
// arena, or in kept runs, and not only in a new mapping.
TEST_F(Large, GrowingWorksWhereAllocatingDoes)
{
    if (!config_debug || config_guarded_blocks)
        GTEST_SKIP() << "faults are injected in debug builds";
    for (size_t size : {1900 * kKiB, 2 * kMiB, 2200 * kKiB, 5 * kMiB, 20 * kMiB}) {
        struct span *room = take(size + kMiB);
        large_free(room, room->base); // a run of an arena, which gets it back
        os_fault_plan(0, SIZE_MAX / 2, ENOMEM);
        struct span *span = large_allocate_growing(size);
        os_fault_plan(0, 0, 0);
        ASSERT_NE(span, nullptr) << size;
        EXPECT_EQ(span->tag, SPAN_LARGE);
        large_free(span, span->base);
    }
}

TEST_F(Large, GrowingEmptiesTheKeptRuns)
{
    if (!config_debug || config_guarded_blocks)
        GTEST_SKIP() << "faults are injected in debug builds";
    constexpr size_t kRun = 200 * kKiB;
    struct span *before = take(kRun);
    struct span *run = take(kRun);
    const char *place = run->base;
    large_free(run, run->base); // kept by this thread
    os_fault_plan(0, SIZE_MAX / 2, ENOMEM);
    size_t found = 0;
    std::vector<struct span *> spans;
    while (struct span *span = large_allocate_growing(kRun - 3 * kKiB)) {
        found += span->base == place;
        spans.push_back(span);
    }
    os_fault_plan(0, 0, 0);
    EXPECT_EQ(found, 1u);
    for (struct span *span : spans)
        large_free(span, span->base);
    large_free(before, before->base);
}

// While a thread resizes a block, no other thread may free it or query it.
TEST(LargeDeathTest, AFreeOfWhatAnotherThreadResizes)
{
    for (size_t size : {200 * kKiB, 64 * kMiB}) {
        void *block = heap_layer::allocate(size);
        struct span *span = heap_layer::span_of(block);
        const auto hold = [=] { ASSERT_TRUE(large_lock(span, block)); };
        EXPECT_DEATH((hold(), free_fast(block)),
                     "^cairn: concurrent free and realloc of [^\n]*\n$");
        EXPECT_DEATH((hold(), (void)heap_resize(block, 3 * size)),
                     "^cairn: concurrent realloc and realloc of [^\n]*\n$");
        EXPECT_DEATH((hold(), (void)heap_usable_size(block)),
                     "^cairn: concurrent malloc_usable_size and realloc of [^\n]*\n$");
        hold();
        EXPECT_FALSE(large_lock(span, block));
        large_unlock(span);
        EXPECT_GE(heap_usable_size(block), size);
        free_fast(block);
    }
}

// Another block may have the header by the time that a resize of a freed block locks it: that block
// can still be freed.
TEST_F(Large, AHeaderOfAnotherBlockIsNotLocked)
{
    for (size_t size : {200 * kKiB, 64 * kMiB}) {
        void *block = heap_layer::allocate(size);
        struct span *span = heap_layer::span_of(block);
        const uint8_t kind = span->tag;
        EXPECT_FALSE(large_lock(span, static_cast<char *>(block) - PAGE_BYTES));
        EXPECT_EQ(span->tag, kind);
        span->tag = kind;
        free_fast(block);
    }
}

// The resizing thread does not exist in a child of fork.
TEST(LargeDeathTest, AChildFreesWhatAThreadOfItsParentResizes)
{
    for (size_t size : {200 * kKiB, 64 * kMiB}) {
        void *block = heap_layer::allocate(size);
        struct span *span = heap_layer::span_of(block);
        ASSERT_TRUE(large_lock(span, block));
        const pid_t child = fork();
        if (child == 0) {
            block = heap_resize(block, size - 10 * kKiB);
            free_fast(block);
            _exit(0);
        }
        int status = -1;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
        large_unlock(span);
        free_fast(block);
    }
}

} // namespace large_test
