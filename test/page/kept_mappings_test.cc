// Kept mappings for blocks that grow: what a freed block leaves, which blocks take it, and when it
// is released. The kernel's mincore decides which memory counts as released.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <random>
#include <thread>
#include <vector>

#include "page/page_layer.h"

extern "C" {
#include "base/bits.h"
#include "os/fault.h"
#include "os/memory.h"
#include "os/process.h"
}

namespace kept_mappings_test
{

using page_layer::configure;
using page_layer::kMiB;
using page_layer::reads;
using page_layer::stats;

constexpr uint64_t kNever = 1000000;
constexpr size_t kOption = CAP_FIRST_PART * 64 * kMiB; // of which 64 MiB are the cap at first

size_t pages_in(size_t bytes) { return bytes >> PAGE_SHIFT; }
size_t room_bytes() { return kept_mapping_pages() << PAGE_SHIFT; }

bool is_mapped(const char *start)
{
    unsigned char pages[64]; // an emulator may have larger pages than its host, which answers
    return mincore(const_cast<char *>(start), os_page_size(), pages) == 0;
}

uint64_t mapping_calls()
{
    return os_calls[OS_CALL_MAP] + os_calls[OS_CALL_UNMAP] + os_calls[OS_CALL_REMAP];
}

struct span *grown(size_t bytes, char value = 1)
{
    struct span *span = pages_map_growing(bytes);
    EXPECT_NE(span, nullptr);
    page_layer::fill(span, value);
    return span;
}

class KeptMappings : public testing::Test
{
  protected:
    void SetUp() override
    {
        if (!config_kept_mappings)
            GTEST_SKIP() << "hardened builds keep no mappings";
        page_layer::start();
        configure(kNever, kOption);
        page_layer::forget_cap();
        pages_trim(0);
        ASSERT_EQ(kept_mapping_pages(), 0u);
        // Raises the peak, so that the mappings that a case keeps stay below it.
        struct span *most = pages_map_huge(256 * kMiB, PAGE_BYTES);
        ASSERT_NE(most, nullptr);
        pages_give_huge(most);
        ASSERT_EQ(kept_mapping_pages(), 0u) << "a block that has not grown is not kept";
        page_layer::forget_cap(); // forgets that it was released
    }
    void TearDown() override
    {
        if (!config_kept_mappings)
            return;
        pages_press(false);
        pages_verify();
        EXPECT_EQ(stats().huge_count, 0u);
        EXPECT_EQ(stats().huge_bytes, 0u);
        configure(kNever, kOption);
        pages_trim(0);
        EXPECT_EQ(kept_mapping_pages(), 0u);
        pages_verify();
    }
};

TEST_F(KeptMappings, ServesTheNextBlockThatGrowsWithoutASystemCall)
{
    struct span *span = grown(4 * kMiB, 3);
    char *base = span->base;
    const size_t length = page_layer::bytes_of(span);
    pages_give_huge(span);
    EXPECT_EQ(room_bytes(), length);
    EXPECT_TRUE(is_mapped(base));
    const uint64_t before = mapping_calls();
    span = pages_map_growing(kMiB + 5);
    ASSERT_NE(span, nullptr);
    EXPECT_EQ(span->base, base);
    EXPECT_EQ(span->tag, SPAN_HUGE);
    EXPECT_FALSE(span->zero);
    EXPECT_EQ(page_map_find(base), span);
    EXPECT_EQ(page_layer::bytes_of(span), kMiB + os_page_size()) << "the rest is a kept mapping";
    EXPECT_EQ(stats().huge_bytes, page_layer::bytes_of(span));
    EXPECT_EQ(room_bytes(), length - page_layer::bytes_of(span));
    pages_verify();
    for (size_t size = 2 * kMiB; size < length; size += kMiB / 4) {
        ASSERT_TRUE(pages_extend_huge(span, pages_in(size))) << size;
        EXPECT_EQ(page_layer::bytes_of(span), size);
        EXPECT_EQ(room_bytes(), length - size);
        EXPECT_TRUE(reads(span->base, size, 3));
    }
    ASSERT_TRUE(pages_extend_huge(span, pages_in(length))) << "up to the end of the kept mapping";
    EXPECT_EQ(kept_mapping_pages(), 0u);
    EXPECT_FALSE(pages_extend_huge(span, pages_in(length) + 16))
        << "nothing is left of the kept mapping";
    EXPECT_EQ(mapping_calls(), before);
    pages_give_huge(span);
    EXPECT_EQ(room_bytes(), length);
}

TEST_F(KeptMappings, ABlockAndTheRoomBehindItBecomeOneAgain)
{
    struct span *span = grown(8 * kMiB);
    const char *base = span->base;
    const size_t length = page_layer::bytes_of(span);
    pages_give_huge(span);
    for (size_t size : {2 * kMiB, kMiB, 3 * kMiB, 8 * kMiB}) {
        span = pages_map_growing(size);
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(span->base, base);
        pages_give_huge(span);
        EXPECT_EQ(room_bytes(), length) << size;
        pages_verify();
    }
}

TEST_F(KeptMappings, WhatIsBehindABlockIsForItAlone)
{
    pages_give_huge(grown(16 * kMiB));
    struct span *first = grown(2 * kMiB);
    struct span *second = grown(2 * kMiB);
    EXPECT_NE(second->base, page_layer::end_of(first));
    EXPECT_TRUE(pages_extend_huge(first, pages_in(16 * kMiB)));
    pages_give_huge(first);
    pages_give_huge(second);
}

TEST_F(KeptMappings, TheShortestRangeThatIsLongEnoughServes)
{
    struct span *spans[] = {grown(8 * kMiB), grown(3 * kMiB), grown(5 * kMiB)};
    const char *wanted = spans[2]->base;
    for (struct span *span : spans)
        pages_give_huge(span);
    struct span *span = grown(4 * kMiB);
    EXPECT_EQ(span->base, wanted);
    pages_give_huge(span);
}

TEST_F(KeptMappings, ABlockThatGrowsBeyondItKeepsItsContents)
{
    pages_give_huge(grown(4 * kMiB));
    struct span *span = grown(2 * kMiB, 7);
    ASSERT_GT(kept_mapping_pages(), 0u);
    ASSERT_FALSE(pages_extend_huge(span, pages_in(20 * kMiB)));
    ASSERT_TRUE(pages_resize_huge(span, 20 * kMiB, true));
    EXPECT_EQ(kept_mapping_pages(), 0u);
    EXPECT_EQ(page_layer::bytes_of(span), 20 * kMiB);
    EXPECT_TRUE(reads(span->base, 2 * kMiB, 7));
    page_layer::fill(span, 8);
    EXPECT_EQ(stats().huge_bytes, 20 * kMiB);
    pages_give_huge(span);
}

TEST_F(KeptMappings, ABlockThatShrinksLeavesNoneBehindAHole)
{
    pages_give_huge(grown(8 * kMiB));
    struct span *span = grown(4 * kMiB, 7);
    ASSERT_TRUE(pages_resize_huge(span, 2 * kMiB, true));
    EXPECT_EQ(kept_mapping_pages(), 0u);
    EXPECT_FALSE(is_mapped(span->base + 2 * kMiB));
    EXPECT_TRUE(reads(span->base, 2 * kMiB, 7));
    pages_give_huge(span);
}

TEST_F(KeptMappings, OfABlockThatHadGrownAPartIsKept)
{
    configure(kNever, CAP_FIRST_PART * 16 * kMiB);
    struct span *span = pages_map_huge(20 * kMiB, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    const char *base = span->base;
    pages_give_huge(span);
    EXPECT_EQ(kept_mapping_pages(), 0u) << "that length may never be needed again";
    EXPECT_FALSE(is_mapped(base));
    page_layer::forget_cap();
    span = pages_map_huge(20 * kMiB, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    ASSERT_TRUE(pages_resize_huge(span, 21 * kMiB, true));
    const size_t cap_bytes = align_down(cap_pages() << PAGE_SHIFT, os_page_size());
    ASSERT_LT(cap_bytes, 20 * kMiB);
    pages_give_huge(span);
    EXPECT_EQ(room_bytes(), cap_bytes);
    span = pages_map_huge(20 * kMiB, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    EXPECT_TRUE(span->zero) << "kept mappings do not serve fixed blocks";
    EXPECT_TRUE(reads(span->base, 20 * kMiB, 0));
    pages_give_huge(span);
}

TEST_F(KeptMappings, IsCountedAsFreeAndDirty)
{
    const page_stats before = stats();
    struct span *span = grown(4 * kMiB);
    const size_t length = page_layer::bytes_of(span);
    EXPECT_EQ(stats().counted_bytes, before.counted_bytes + length);
    pages_give_huge(span);
    const page_stats after = stats();
    EXPECT_EQ(after.huge_bytes, before.huge_bytes);
    EXPECT_EQ(after.huge_count, before.huge_count);
    EXPECT_EQ(after.free_bytes, before.free_bytes + length);
    EXPECT_EQ(after.dirty_bytes, before.dirty_bytes + length);
    EXPECT_EQ(after.committed_bytes, before.committed_bytes + length);
    EXPECT_EQ(after.counted_bytes, before.counted_bytes + length);
}

TEST_F(KeptMappings, TheCapHoldsForItAndForFreeRunsTogether)
{
    configure(kNever, 32 * kMiB);
    struct span *run = pages_take(pages_in(4 * kMiB), PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    page_layer::fill(run, 1);
    struct span *span = grown(32 * kMiB);
    const char *base = span->base;
    const size_t cap_bytes = align_down(cap_pages() << PAGE_SHIFT, os_page_size());
    ASSERT_LE(cap_bytes, 8 * kMiB);
    pages_give_huge(span);
    EXPECT_EQ(room_bytes(), cap_bytes) << "the first part is a kept mapping";
    EXPECT_TRUE(is_mapped(base + cap_bytes - os_page_size()));
    EXPECT_FALSE(is_mapped(base + cap_bytes));
    pages_give(run);
    EXPECT_LE(stats().dirty_bytes, cap_bytes);
    EXPECT_GT(kept_mapping_pages(), 0u);
    configure(kNever, 0);
    pages_trim(0);
    pages_give_huge(grown(4 * kMiB));
    EXPECT_EQ(kept_mapping_pages(), 0u);
}

// Growth of a block counts as memory that is taken.
TEST_F(KeptMappings, TheCapLearnsFromBlocksThatGrow)
{
    constexpr size_t kMost = 32 * kMiB;
    configure(kNever, 8 * kMiB);
    for (int round = 0; round < 3; round++) {
        struct span *span = grown(kMiB);
        for (size_t size = 2 * kMiB; size <= kMost; size *= 2)
            ASSERT_TRUE(pages_extend_huge(span, pages_in(size)) ||
                        pages_resize_huge(span, size, true));
        ASSERT_EQ(page_layer::bytes_of(span), kMost);
        pages_give_huge(span);
        EXPECT_LE(room_bytes(), kMost);
    }
    EXPECT_EQ(room_bytes(), kMost);
}

// The free runs push the mapping above the cap in each round, until the cap has learned.
TEST_F(KeptMappings, TheCapLearnsFromMappingsThatLeaveForFreeRuns)
{
    configure(kNever, CAP_FIRST_PART * 16 * kMiB);
    for (int round = 0; round < 4; round++) {
        std::vector<struct span *> runs;
        for (int i = 0; i < 5; i++) {
            runs.push_back(pages_take(pages_in(2 * kMiB), PAGE_BYTES));
            page_layer::fill(runs.back(), 1);
        }
        pages_give_huge(grown(12 * kMiB));
        for (struct span *run : runs)
            pages_give(run);
    }
    EXPECT_GE(room_bytes(), 12 * kMiB);
}

TEST_F(KeptMappings, TheCapLearnsFromBlocksThatGrowTogether)
{
    constexpr size_t kBlocks = 16, kMost = 4 * kMiB;
    configure(kNever, CAP_FIRST_PART * 16 * kMiB);
    for (int round = 0; round < 4; round++) {
        std::vector<struct span *> blocks;
        for (size_t i = 0; i < kBlocks; i++)
            blocks.push_back(grown(kMiB));
        for (size_t size = kMiB + kMiB / 2; size <= kMost; size += kMiB / 2)
            for (struct span *span : blocks)
                ASSERT_TRUE(pages_in(size) <= span->pages ||
                            pages_extend_huge(span, pages_in(size)) ||
                            pages_resize_huge(span, size, true));
        for (struct span *span : blocks)
            pages_give_huge(span);
    }
    EXPECT_GE(room_bytes(), kBlocks * kMost - kMiB);
}

TEST_F(KeptMappings, BlocksInUseCountWhenFreeRunsArrive)
{
    configure(kNever, CAP_FIRST_PART * 16 * kMiB);
    struct span *used = pages_map_huge(100 * kMiB, PAGE_BYTES);
    struct span *run = pages_take(pages_in(8 * kMiB), PAGE_BYTES);
    ASSERT_TRUE(used && run);
    page_layer::fill(run, 1);
    pages_give_huge(grown(12 * kMiB));
    const size_t before = room_bytes();
    EXPECT_GE(before, 12 * kMiB);
    pages_give(run);
    EXPECT_EQ(room_bytes(), before);
    pages_give_huge(used);
}

TEST_F(KeptMappings, ASmallTakeIsNoReasonToKeepALongRange)
{
    cap_note_given(pages_in(200 * kMiB));
    cap_note_taken(pages_in(200 * kMiB));
    pages_give_huge(grown(200 * kMiB));
    ASSERT_GE(room_bytes(), 200 * kMiB);
    for (int interval = 0; interval < 60; interval++) {
        pages_give_huge(grown(2 * kMiB));
        cap_age(kept_mapping_age());
    }
    EXPECT_LE(room_bytes(), kOption / CAP_FIRST_PART + kMiB);
    EXPECT_GT(room_bytes(), 0u);
}

// A kept mapping does not serve zeroed or aligned blocks.
TEST_F(KeptMappings, WhatServesNoneOfThemDoesNotPileUp)
{
    configure(kNever, CAP_FIRST_PART * 16 * kMiB);
    for (int round = 0; round < 30; round++) {
        struct span *span = pages_map_huge(40 * kMiB, PAGE_BYTES);
        ASSERT_NE(span, nullptr);
        pages_give_huge(span);
    }
    EXPECT_LE(room_bytes(), 80 * kMiB);
}

TEST_F(KeptMappings, ABlockThatExtendsHasGrown)
{
    pages_give_huge(grown(40 * kMiB));
    struct span *span = pages_map_kept(20 * kMiB);
    ASSERT_NE(span, nullptr);
    EXPECT_FALSE(span->grew);
    EXPECT_TRUE(pages_extend_huge(span, pages_in(30 * kMiB)));
    EXPECT_TRUE(span->grew);
    pages_give_huge(span);
}

TEST_F(KeptMappings, ABlockThatIsTooShortToBeKeptTeachesNothing)
{
    const size_t before = cap_pages();
    for (int round = 0; round < 30; round++)
        pages_give_huge(pages_map_huge(KEPT_MAPPING_MIN_PAGES / 2 * PAGE_BYTES, PAGE_BYTES));
    EXPECT_EQ(cap_pages(), before);
}

TEST_F(KeptMappings, NoRangeIsKeptThatServesNobody)
{
    pages_give_huge(grown(KEPT_MAPPING_MIN_PAGES / 2 * PAGE_BYTES));
    EXPECT_EQ(kept_mapping_pages(), 0u);
}

TEST_F(KeptMappings, TheListIsBounded)
{
    configure(kNever, 1024 * kMiB);
    std::vector<struct span *> spans;
    for (int i = 0; i < 2 * KEPT_MAPPINGS_MAX; i++)
        spans.push_back(pages_map_growing(kMiB));
    for (struct span *span : spans)
        pages_give_huge(span);
    EXPECT_LE(room_bytes(), KEPT_MAPPINGS_MAX * 2 * kMiB);
    pages_verify();
}

TEST_F(KeptMappings, GoesBackAfterAnIntervalInWhichNobodyTookFromIt)
{
    configure(40, 64 * kMiB);
    struct span *span = grown(4 * kMiB);
    const char *base = span->base;
    pages_give_huge(span);
    for (int i = 0; i < 20 && kept_mapping_pages() != 0; i++) {
        os_sleep_ms(30);
        pages_tick();
    }
    EXPECT_EQ(kept_mapping_pages(), 0u);
    EXPECT_FALSE(is_mapped(base));
}

// A long range is unmapped by several calls.
TEST_F(KeptMappings, NoTickUnmapsMoreThanItsPart)
{
    configure(kNever, 1024 * kMiB);
    struct span *span = grown(200 * kMiB);
    const char *base = span->base;
    pages_give_huge(span);
    ASSERT_GE(room_bytes(), 200 * kMiB);
    uint64_t since_us = os_now_us();
    page_layer::purge_all_due();
    size_t left = kept_mapping_pages();
    kept_mapping_age();
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(kept_mapping_decay(PURGE_STEP_PAGES), 0u)
            << "it was free for less than an interval";
    kept_mapping_age();
    configure(40, 1024 * kMiB);
    page_layer::end_interval();
    for (int calls = 0; calls < 200 && left != 0; calls++) {
        const uint64_t begin_us = os_now_us();
        pages_tick();
        EXPECT_LE((left - kept_mapping_pages()) << PAGE_SHIFT,
                  page_layer::due_most_bytes(since_us) + kMiB);
        since_us = begin_us;
        left = kept_mapping_pages();
        pages_verify();
    }
    EXPECT_EQ(left, 0u);
    EXPECT_FALSE(is_mapped(base));
}

// At the limit of mappings (vm.max_map_count) the kernel refuses to cut one. The memory is returned
// then, and only the addresses are lost.
TEST_F(KeptMappings, ARefusedUnmapReturnsTheMemory)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    constexpr size_t kBytes = 20 * kMiB;
    unsigned char resident[kBytes / PAGE_BYTES];
    for (int kind = 0; kind < 2; kind++) {
        configure(kNever, kind == 0 ? kOption : 0); // with 0 no mapping is kept
        struct span *span = kind == 0 ? grown(kBytes) : pages_map_huge(kBytes, PAGE_BYTES);
        page_layer::fill(span, 1);
        char *base = span->base;
        if (kind == 0)
            pages_give_huge(span);
        os_fault_plan(0, 1, ENOMEM);
        if (kind == 0)
            EXPECT_NE(kept_mapping_purge(SIZE_MAX), 0u);
        else
            pages_give_huge(span);
        os_fault_plan(0, 0, 0);
        ASSERT_TRUE(is_mapped(base)) << "the call was not refused";
        ASSERT_EQ(mincore(base, kBytes, resident), 0);
        for (size_t page = 0; page < kBytes / os_page_size(); page++)
            ASSERT_EQ(resident[page] & 1, 0) << kind << " page " << page;
        munmap(base, kBytes);
    }
}

TEST_F(KeptMappings, WhatIsInUseAllTheTimeStays)
{
    configure(40, 64 * kMiB);
    pages_give_huge(grown(4 * kMiB));
    for (int i = 0; i < 20; i++) {
        os_sleep_ms(10);
        pages_tick();
        struct span *span = pages_map_growing(2 * kMiB);
        ASSERT_NE(span, nullptr);
        ASSERT_FALSE(span->zero) << i;
        pages_give_huge(span);
    }
}

TEST_F(KeptMappings, TrimPressureAndTheSoftLimitTakeIt)
{
    pages_give_huge(grown(4 * kMiB));
    EXPECT_TRUE(pages_trim(0));
    EXPECT_EQ(kept_mapping_pages(), 0u);
    pages_give_huge(grown(4 * kMiB));
    pages_press(true);
    EXPECT_EQ(kept_mapping_pages(), 0u);
    pages_give_huge(grown(4 * kMiB));
    EXPECT_EQ(kept_mapping_pages(), 0u);
    pages_press(false);
    pages_give_huge(grown(4 * kMiB));
    ASSERT_NE(kept_mapping_pages(), 0u);
    configure(kNever, kOption, stats().counted_bytes + kMiB);
    struct span *span = pages_map_huge(2 * kMiB, PAGE_BYTES);
    EXPECT_EQ(kept_mapping_pages(), 0u);
    pages_give_huge(span);
}

TEST_F(KeptMappings, TrimKeepsAsMuchAsItIsTold)
{
    pages_trim(0);
    pages_give_huge(grown(8 * kMiB));
    const size_t before = room_bytes();
    EXPECT_TRUE(pages_trim(before - kMiB));
    EXPECT_EQ(room_bytes(), before - kMiB);
    EXPECT_FALSE(pages_trim(before - kMiB));
}

TEST_F(KeptMappings, TheHardLimitCountsItAndTakesItBeforeItRefuses)
{
    const size_t base = stats().counted_bytes;
    configure(kNever, kOption, 0, base + 20 * kMiB);
    pages_give_huge(grown(16 * kMiB));
    EXPECT_GE(room_bytes(), 16 * kMiB);
    struct span *span = pages_map_huge(19 * kMiB, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    EXPECT_LE(stats().counted_bytes, base + 20 * kMiB);
    EXPECT_LE(room_bytes(), kMiB);
    EXPECT_EQ(pages_map_growing(4 * kMiB), nullptr);
    pages_give_huge(span);
    pages_give_huge(grown(16 * kMiB));
    struct span *run = pages_take(pages_in(12 * kMiB), PAGE_BYTES);
    ASSERT_NE(run, nullptr) << "arenas count as well";
    EXPECT_LE(stats().counted_bytes, base + 20 * kMiB);
    pages_give(run);
}

// Before the arenas grow or a mapping is made beyond the former peak, kept mappings are unmapped.
// So the process exceeds that peak by one growth at most.
TEST_F(KeptMappings, DoesNotMakeTheProcessLargerThanItWas)
{
    std::vector<struct span *> runs; // at first all that is free, so that the arenas grow
    while (struct span *span = pages_take_free(pages_in(kMiB), PAGE_BYTES))
        runs.push_back(span);
    struct span *most = grown(32 * kMiB);
    store_relaxed(&pages_state.most_pages, size_t{0}); // as if the process began here
    struct span *other = pages_map_huge(PAGE_BYTES, PAGE_BYTES);
    const size_t most_bytes = stats().counted_bytes + 4 * kMiB;
    pages_give_huge(most);
    ASSERT_GE(room_bytes(), 32 * kMiB);
    for (int i = 0; i < 16; i++) {
        runs.push_back(pages_take(pages_in(kMiB), PAGE_BYTES));
        EXPECT_LE(stats().counted_bytes, most_bytes);
    }
    EXPECT_GT(room_bytes(), 8 * kMiB) << "only the necessary mappings were released";
    struct span *huge = pages_map_huge(10 * kMiB, PAGE_BYTES);
    EXPECT_LE(stats().counted_bytes, most_bytes);
    for (struct span *run : runs)
        pages_give(run);
    pages_give_huge(huge);
    pages_give_huge(other);
}

// One impossible request does not end the rule.
TEST_F(KeptMappings, ARefusedMappingIsNoPeak)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    struct span *span = pages_map_huge(2 * kMiB, PAGE_BYTES);
    const size_t most = load_relaxed(&pages_state.most_pages);
    os_fault_plan(0, SIZE_MAX / 2, ENOMEM);
    EXPECT_EQ(pages_map_huge(1024 * kMiB, PAGE_BYTES), nullptr);
    EXPECT_FALSE(pages_resize_huge(span, 1024 * kMiB, true));
    os_fault_plan(0, 0, 0);
    EXPECT_EQ(load_relaxed(&pages_state.most_pages), most);
    pages_give_huge(span);
}

TEST_F(KeptMappings, ItGoesWhereTheSystemRefusesMemory)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    for (int kind = 0; kind < 3; kind++) {
        pages_give_huge(grown(4 * kMiB));
        ASSERT_NE(kept_mapping_pages(), 0u);
        struct span *blocker = kind == 2 ? pages_map_huge(2 * kMiB, PAGE_BYTES) : nullptr;
        os_fault_plan(0, SIZE_MAX / 2, ENOMEM);
        if (kind == 0) {
            EXPECT_EQ(pages_take(pages_in(1024 * kMiB), PAGE_BYTES), nullptr);
        } else if (kind == 1) {
            EXPECT_EQ(pages_map_huge(1024 * kMiB, PAGE_BYTES), nullptr);
        } else {
            EXPECT_FALSE(pages_resize_huge(blocker, 1024 * kMiB, true));
        }
        os_fault_plan(0, 0, 0);
        EXPECT_EQ(kept_mapping_pages(), 0u) << kind;
        if (blocker)
            pages_give_huge(blocker);
        pages_trim(0);
        pages_verify();
    }
}

// While another thread forks no mapping is kept, and the kept ones stay.
TEST_F(KeptMappings, AForkElsewhereLeavesItAlone)
{
    pages_give_huge(grown(8 * kMiB));
    struct span *first = grown(2 * kMiB);
    struct span *second = grown(4 * kMiB);
    const size_t before = kept_mapping_pages();
    pages_freeze();
    std::thread([&] {
        pages_give_huge(first);
        EXPECT_EQ(kept_mapping_pages(), before);
        EXPECT_FALSE(pages_extend_huge(second, second->pages + 1u));
        ASSERT_TRUE(pages_resize_huge(second, 3 * kMiB, true));
        EXPECT_EQ(kept_mapping_purge(SIZE_MAX), 0u);
        EXPECT_EQ(kept_mapping_decay(SIZE_MAX), 0u);
        struct span *third = pages_map_growing(kMiB);
        ASSERT_NE(third, nullptr);
        EXPECT_TRUE(third->zero);
        pages_give_huge(third);
    }).join();
    pages_thaw();
    pages_give_huge(second);
    pages_verify();
    EXPECT_GE(kept_mapping_pages(), before);
}

TEST_F(KeptMappings, AChildHasItsParents)
{
    struct span *span = grown(4 * kMiB, 5);
    const char *base = span->base;
    pages_give_huge(span);
    const pid_t child = fork();
    if (child == 0) {
        struct span *own = pages_map_growing(3 * kMiB);
        bool right = own && own->base == base && reads(own->base, 3 * kMiB, 5);
        if (own) {
            page_layer::fill(own, 6);
            pages_give_huge(own);
        }
        pages_verify();
        right = right && kept_mapping_pages() >= pages_in(4 * kMiB) && pages_trim(0) &&
                kept_mapping_pages() == 0;
        _exit(right ? 0 : 1);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    span = pages_map_growing(4 * kMiB);
    EXPECT_EQ(span->base, base);
    EXPECT_TRUE(reads(span->base, 4 * kMiB, 5));
    pages_give_huge(span);
}

// Threads grow, shrink and free blocks at random while others purge.
TEST_F(KeptMappings, ThreadsSeeOnlyTheirOwnBytes)
{
    configure(1, 24 * kMiB);
    constexpr int kThreads = 4;
    std::atomic<int> running{kThreads};
    std::vector<std::thread> threads;
    for (int number = 0; number < kThreads; number++)
        threads.emplace_back([&, number] {
            std::mt19937 random(static_cast<unsigned>(number));
            struct span *span = nullptr;
            const char value = static_cast<char>(number + 1);
            for (int step = 0; step < 300; step++) {
                if (span == nullptr) {
                    ASSERT_NE(span = pages_map_growing(kMiB + random() % kMiB), nullptr);
                } else if (random() % 4 == 0) {
                    pages_give_huge(span);
                    span = nullptr;
                    continue;
                } else {
                    const size_t size = kMiB + random() % (6 * kMiB);
                    const bool fits = pages_extend_huge(span, pages_in(size));
                    ASSERT_TRUE(fits || pages_resize_huge(span, size, true));
                    EXPECT_GE(page_layer::bytes_of(span) + os_page_size(), size);
                    EXPECT_EQ(span->base[0], value);
                    EXPECT_EQ(span->base[kMiB - 1], value);
                }
                const size_t bytes = page_layer::bytes_of(span);
                for (size_t at = 0; at < bytes; at += PAGE_BYTES)
                    span->base[at] = value;
                span->base[kMiB - 1] = value;
                std::this_thread::yield();
                for (size_t at = 0; at < bytes; at += PAGE_BYTES)
                    ASSERT_EQ(span->base[at], value);
            }
            if (span)
                pages_give_huge(span);
            running--;
        });
    for (int turn = 0; running != 0; turn++) {
        pages_tick();
        if (turn % 8 == 0)
            (void)kept_mapping_purge(300);
        pages_verify();
        std::this_thread::yield();
    }
    for (std::thread &thread : threads)
        thread.join();
    pages_verify();
}

} // namespace kept_mappings_test
