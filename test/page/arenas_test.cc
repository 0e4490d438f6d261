// Arenas and how they grow. Each case needs a process of its own, since cases in one process see
// each other's arenas.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "os/resident.h"
#include "page/page_layer.h"

extern "C" {
#include "os/fault.h"
#include "os/memory.h"
}

namespace arenas_test
{

// Arenas: they are found by address, and reserved in steps that shrink when the kernel refuses.
// Each case needs a process of its own, since cases in one process see each other's arenas.

class Arena : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }

    // The arena that the last call of arena_add() added.
    struct arena *added(size_t pages)
    {
        const size_t before = arena_count();
        std::vector<struct arena *> known;
        for (size_t i = 0; i < before; i++)
            known.push_back(arenas_added[i]);
        if (arena_add(page_layer::shard, pages) != 0 || arena_count() != before + 1)
            return nullptr;
        for (size_t i = 0; i <= before; i++)
            if (i == before || known[i] != arenas_added[i])
                return arenas_added[i];
        return nullptr;
    }
};

TEST_F(Arena, HoldsItsAddressesAndNoOthers)
{
    struct arena *arena = added(1);
    ASSERT_NE(arena, nullptr);
    const size_t bytes = arena->pages << PAGE_SHIFT;
    EXPECT_GE(bytes, page_layer::kMiB / 16);
    EXPECT_EQ(arena_of(arena->base), arena);
    EXPECT_EQ(arena_of(arena->base + bytes - 1), arena);
    EXPECT_NE(arena_of(arena->base + bytes), arena);
    EXPECT_NE(arena_of(arena->base - 1), arena);
    EXPECT_EQ(arena_of(nullptr), nullptr);
    EXPECT_EQ(arena_of(&arena), nullptr);
    EXPECT_EQ(arena_of(arena->base), arena);
    EXPECT_EQ(arena_of(arena->base + bytes - 1), arena);
    EXPECT_NE(arena_of(arena->base + bytes), arena);
    EXPECT_EQ(arena_of(&arena), nullptr);
    EXPECT_EQ(arena_page(arena, arena->base + 5 * PAGE_BYTES + 17), 5u);
}

// At the border of two regions of the page map an arena would need two leaves, each above a MiB.
TEST(ArenaPlace, TheFirstBeginsInTheLowerHalfOfARegion)
{
    if (config_tsan)
        GTEST_SKIP() << "ThreadSanitizer has fixed places";
    for (int process = 0; process < 12; process++) {
        const pid_t child = fork();
        if (child == 0) {
            page_layer::start();
            if (arena_add(page_layer::shard, 1) != 0)
                _exit(1);
            const auto base = reinterpret_cast<uintptr_t>(arenas_added[0]->base);
            _exit(base >> (REGION_SHIFT - 1) & 1 ? 2 : 0);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_EQ(status, 0);
    }
}

TEST_F(Arena, AllAreFoundByAddressAndListedByAge)
{
    std::vector<struct arena *> known;
    for (int i = 0; i < 5; i++) {
        struct arena *arena = added(1);
        ASSERT_NE(arena, nullptr);
        known.push_back(arena);
    }
    for (size_t i = 0; i < 5; i++)
        EXPECT_EQ(arenas_added[arena_count() - 5 + i], known[i]);
    for (size_t i = 0; i < arena_count(); i++)
        EXPECT_EQ(arena_of(arenas_added[i]->base + PAGE_BYTES), arenas_added[i]);
}

// A reader must not see the raised count before the new entry is stored.
TEST_F(Arena, ReadersMeetOnlyWholeEntries)
{
    std::atomic<bool> done = false;
    std::thread reader([&] {
        while (!done) {
            size_t reserved = 0;
            const size_t count = arena_count();
            std::set<struct arena *> seen;
            for (size_t i = 0; i < count; i++) {
                struct arena *arena = arenas_added[i];
                ASSERT_NE(arena, nullptr);
                ASSERT_TRUE(seen.insert(arena).second) << "twice";
                reserved += arena->pages;
            }
            ASSERT_TRUE(count == 0 || reserved > 0);
            struct page_stats stats;
            pages_read_stats(&stats);
            (void)pages_holds(&stats);
        }
    });
    for (int i = 0; i < 40; i++)
        EXPECT_EQ(arena_add(page_layer::shard, 1 + static_cast<size_t>(i % 3)), 0);
    done = true;
    reader.join();
}

// Pages whose commit the kernel refused can be claimed again by the next thread that needs that
// many.
TEST_F(Arena, RefusedPagesAreNotLost)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    struct arena *arena = added((20 * page_layer::kMiB) >> PAGE_SHIFT);
    ASSERT_NE(arena, nullptr);
    size_t whole = arena->pages;
    int error = 0;
    os_fault_plan(0, 1, ENOMEM);
    EXPECT_EQ(arena_commit(page_layer::shard, &whole, whole, ARENA_EXACTLY, &error), nullptr);
    os_fault_plan(0, 0, 0);
    EXPECT_EQ(error, -ENOMEM);
    EXPECT_EQ(arena->frontier, 0u);
    EXPECT_EQ(arena->hole_pages, 0u);
    char *all = arena_commit(page_layer::shard, &whole, whole, ARENA_EXACTLY, &error);
    ASSERT_EQ(all, arena->base);
    memset(all, 1, whole << PAGE_SHIFT);
    EXPECT_EQ(arena_commit(page_layer::shard, &whole, whole, ARENA_EXACTLY, &error), nullptr);
    EXPECT_EQ(error, -ENOSPC);
}

TEST_F(Arena, ThreadsThatAreRefusedLoseNothing)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    struct arena *arena = added((60 * page_layer::kMiB) >> PAGE_SHIFT);
    ASSERT_NE(arena, nullptr);
    std::atomic<size_t> taken = 0;
    std::vector<std::thread> threads;
    os_fault_plan(3, 2000, EAGAIN);
    for (size_t i = 0; i < 4; i++)
        threads.emplace_back([i, &taken] {
            for (size_t round = 0; round < 600; round++) {
                size_t pages = 1 + (round * 7 + i * 3) % 5;
                int error = 0;
                char *start = arena_commit(page_layer::shard, &pages, pages, ARENA_EXACTLY, &error);
                if (start == nullptr)
                    continue;
                ASSERT_TRUE(page_layer::reads(start, pages << PAGE_SHIFT, 0))
                    << "pages were handed out twice";
                memset(start, 1, pages << PAGE_SHIFT);
                taken += pages;
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    os_fault_plan(0, 0, 0);
    EXPECT_GT(taken, 0u);
    EXPECT_EQ(arena->frontier - arena->hole_pages, taken);
    EXPECT_LT(arena->hole_pages, arena->frontier / 2 + 30) << "holes are not used again";
}

// When no arena has room for the whole request, the rest of an arena is committed by one call, not
// by a call for each page.
TEST_F(Arena, TheRestOfAnArenaIsTakenAtOnce)
{
    struct arena *arena = added((20 * page_layer::kMiB) >> PAGE_SHIFT);
    ASSERT_NE(arena, nullptr);
    const size_t granule = os_page_size() >> PAGE_SHIFT;
    size_t most = arena->pages - 4 * granule;
    int error = 0;
    char *start = arena_commit(page_layer::shard, &most, most, ARENA_EXACTLY, &error);
    ASSERT_NE(start, nullptr);
    arena = arena_of(start);
    ASSERT_EQ(arena->pages - arena->frontier, 4 * granule);
    size_t pages = size_t{1} << 20; // more than any arena has
    start = arena_commit(page_layer::shard, &pages, 4 * granule, ARENA_EXACTLY, &error);
    ASSERT_NE(start, nullptr);
    EXPECT_EQ(pages, 4 * granule);
    EXPECT_EQ(arena_of(start), arena);
    EXPECT_EQ(arena->frontier, arena->pages);
    memset(start, 1, pages << PAGE_SHIFT);
    pages = size_t{1} << 20;
    EXPECT_EQ(arena_commit(page_layer::shard, &pages, pages, ARENA_EXACTLY, &error), nullptr);
    EXPECT_EQ(error, -ENOSPC);
}

TEST_F(Arena, TheFullestWithRoomIsTaken)
{
    struct arena *first = added(1);
    struct arena *second = added(1);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(arena_with_room(page_layer::shard, first->pages + second->pages + (size_t{1} << 21)),
              nullptr);
    first->frontier = first->pages - 10; // as if all but ten pages were committed
    EXPECT_EQ(arena_with_room(page_layer::shard, 10), first);
    EXPECT_NE(arena_with_room(page_layer::shard, 11), first);
    first->frontier = first->pages;
    EXPECT_NE(arena_with_room(page_layer::shard, 1), first);
    first->frontier = 0;
}

TEST_F(Arena, StepsGrowWithTheHeapAndHoldWhatIsAsked)
{
    struct arena *large = added((300 * page_layer::kMiB) >> PAGE_SHIFT);
    ASSERT_NE(large, nullptr);
    EXPECT_GE(large->pages << PAGE_SHIFT, 300 * page_layer::kMiB);
    const size_t reserved = page_layer::stats().reserved_bytes;
    struct arena *next = added(1);
    ASSERT_NE(next, nullptr);
    EXPECT_GE(next->pages << PAGE_SHIFT, reserved / 4);
    EXPECT_EQ(page_layer::stats().reserved_bytes, reserved + (next->pages << PAGE_SHIFT));
}

TEST_F(Arena, BeyondTheBitmapIsRefused)
{
    EXPECT_EQ(arena_add(page_layer::shard, (size_t{1} << 20) + 1), -ENOSPC);
}

TEST_F(Arena, RefusedReservationsShrink)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    os_fault_plan(0, 2, ENOMEM); // the first two sizes
    struct arena *small = added(3);
    os_fault_plan(0, 0, 0);
    ASSERT_NE(small, nullptr);
    EXPECT_LT(small->pages << PAGE_SHIFT, 64 * page_layer::kMiB);
    const size_t count = arena_count();
    os_fault_plan(0, SIZE_MAX / 2, ENOMEM);
    EXPECT_EQ(arena_add(page_layer::shard, 3), -ENOSPC);
    os_fault_plan(0, 0, 0);
    EXPECT_EQ(arena_count(), count);
    EXPECT_EQ(arena_add(page_layer::shard, 3), 0);
}

TEST_F(Arena, ThreadsAddTogether)
{
    const size_t before = arena_count();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([] {
            for (int round = 0; round < 5; round++)
                EXPECT_EQ(arena_add(page_layer::shard, 1), 0);
        });
    for (std::thread &thread : threads)
        thread.join();
    ASSERT_EQ(arena_count(), before + 20);
    for (size_t i = 0; i < arena_count(); i++)
        EXPECT_EQ(arena_of(arenas_added[i]->base), arenas_added[i]);
}

TEST(ArenaDeathTest, ReservedMemoryIsNotUsable)
{
    page_layer::start();
    ASSERT_EQ(arena_add(page_layer::shard, 1), 0);
    volatile char *inside = arenas_added[arena_count() - 1]->base + 100 * PAGE_BYTES;
    EXPECT_DEATH(*inside = 1, "");
}

// Growth of the arenas: a request is served undivided, and in hardened builds the committed part of
// an arena has a fence in every mebibyte.

class Grow : public testing::Test
{
  protected:
    void SetUp() override { page_layer::start(); }

    // The new pages are free, and so counted, at the end.
    static bool grow(size_t pages)
    {
        const bool grown = pages_grow(page_layer::shard, pages) == 0;
        EXPECT_TRUE(shard_acquire(page_layer::shard));
        free_spans_settle(page_layer::shard, nullptr);
        shard_release(page_layer::shard);
        return grown;
    }

    static void touch(volatile char *at) { *at = 1; }
};

// A limit on the data segment counts committed pages, also those of free runs.
TEST_F(Grow, FreeRunsGiveWayToALongerOneAtADataLimit)
{
    if (config_tsan || CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "ThreadSanitizer needs memory of its own; qemu-user has no such limit";
    constexpr size_t kPages = 64, kLongPages = 1024;
    std::vector<struct span *> taken, freed;
    for (size_t pages = 0; pages < 8 * kLongPages; pages += kPages) {
        struct span *span = pages_take(kPages, PAGE_BYTES);
        page_layer::fill(span, 1);
        (pages / kPages % 2 == 0 ? freed : taken).push_back(span); // each holds two others apart
    }
    while (struct span *rest = pages_take_free(kLongPages, PAGE_BYTES))
        taken.push_back(rest);
    for (struct span *span : freed)
        pages_give(span);
    const size_t committed = load_relaxed(&pages_state.committed_pages);

    struct rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
    const struct rlimit limit = {status_bytes("VmData:") + page_layer::kMiB, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
    for (int i = 0; i < 3; i++) {
        struct span *span = pages_take(kLongPages, PAGE_BYTES);
        ASSERT_NE(span, nullptr) << i;
        EXPECT_TRUE(page_layer::reads(span->base, page_layer::bytes_of(span), 0));
        page_layer::fill(span, 2);
        taken.push_back(span);
        pages_verify();
    }
    EXPECT_EQ(pages_take(16 * kLongPages, PAGE_BYTES), nullptr);
    EXPECT_LE(load_relaxed(&pages_state.committed_pages),
              committed + page_layer::kMiB / PAGE_BYTES);
    ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
    for (struct span *span : taken)
        pages_give(span);
    pages_verify();
}

TEST_F(Grow, FreeRunsGiveWayToAHugeBlockAtADataLimit)
{
    if (config_tsan || CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "ThreadSanitizer needs memory of its own; qemu-user has no such limit";
    constexpr size_t kPages = 256;
    std::vector<struct span *> taken, freed;
    for (size_t i = 0; i < 256; i++) { // half of 256 MiB, in runs of a MiB
        struct span *span = pages_take(kPages, PAGE_BYTES);
        ASSERT_NE(span, nullptr);
        (i % 2 == 0 ? freed : taken).push_back(span);
    }
    for (struct span *span : freed)
        pages_give(span);
    struct rlimit before;
    ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
    const struct rlimit limit = {status_bytes("VmData:") + page_layer::kMiB, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
    constexpr size_t kBytes = 64 * page_layer::kMiB;
    page_limits limits;
    pages_read_limits(&limits);
    page_limits limited = limits;
    limited.hard_limit_bytes = page_layer::kMiB;
    pages_configure(&limited);
    const size_t committed = load_relaxed(&pages_state.committed_pages);
    EXPECT_EQ(pages_map_huge(kBytes, PAGE_BYTES), nullptr);
    EXPECT_EQ(load_relaxed(&pages_state.committed_pages), committed) << "the hard limit refuses";
    pages_configure(&limits);
    struct span *huge = pages_map_huge(kBytes, PAGE_BYTES);
    ASSERT_NE(huge, nullptr);
    EXPECT_TRUE(pages_resize_huge(huge, kBytes + kBytes / 4, true));
    EXPECT_FALSE(pages_make_room(size_t{1} << 60, PAGE_BYTES)) << "there are no such addresses";
    ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
    if (huge)
        pages_give_huge(huge);
    for (struct span *span : taken)
        pages_give(span);
    pages_verify();
}

// A hole that is committed again reads zero, until a block that was freed before is written.
TEST_F(Grow, WhatIsWrittenLateToAHoleIsCleared)
{
    if (config_fences)
        GTEST_SKIP() << "fences decide where the next run is";
    constexpr size_t kPages = 512;
    struct span *span = pages_take(kPages, PAGE_BYTES);
    ASSERT_NE(span, nullptr);
    char *base = span->base;
    page_layer::fill(span, 1);
    pages_give(span);
    ASSERT_TRUE(grow_make_room(kPages, true));
    struct span *first = pages_take(16, PAGE_BYTES);
    ASSERT_NE(first, nullptr);
    char *late = span_end(first);
    struct span *behind = page_map_find(late); // a free run says so at its first page
    if (first->base < base || late >= base + (kPages << PAGE_SHIFT) ||
        load_relaxed(&behind->tag) != SPAN_FREE) {
        pages_give(first);
        GTEST_SKIP() << "no more than the block was committed again";
    }
    *late = 1;
    struct span *next = pages_take_free(16, PAGE_BYTES);
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(next->base, late);
    pages_clear(next, 16 * PAGE_BYTES);
    EXPECT_TRUE(page_layer::reads(next->base, 16 * PAGE_BYTES, 0));
    pages_give(next);
    pages_give(first);
    pages_verify();
}

class HardenedGrowDeathTest : public Grow
{
  protected:
    void SetUp() override
    {
        if (!config_fences)
            GTEST_SKIP() << "this build has no fences within arenas";
        Grow::SetUp();
    }
};

size_t mappings_of_process()
{
    std::ifstream maps("/proc/self/maps");
    size_t count = 0;
    for (std::string line; std::getline(maps, line);)
        count++;
    return count;
}

// The program needs mappings, too: for libraries, files and the stacks of threads.
TEST_F(HardenedGrowDeathTest, ALargeHeapLeavesMappingsToTheProgram)
{
    constexpr size_t kRunPages = 16;
    const size_t before = mappings_of_process();
    std::vector<struct span *> runs;
    for (size_t pages = 0; pages < 3 * page_layer::kMiB / 4; pages += kRunPages) { // 3 GiB
        runs.push_back(pages_take(kRunPages, PAGE_BYTES));
        ASSERT_NE(runs.back(), nullptr);
    }
    EXPECT_LE(mappings_of_process() - before, 16000u);
    for (struct span *run : runs)
        pages_give(run);
}

TEST_F(Grow, WhatWasAskedForIsUndivided)
{
    for (size_t pages : {size_t{1}, size_t{700}, size_t{5000}}) {
        const size_t committed = page_layer::stats().committed_bytes;
        ASSERT_TRUE(grow(pages));
        EXPECT_GE(page_layer::stats().committed_bytes, committed + (pages << PAGE_SHIFT));
        const size_t grown = page_layer::stats().committed_bytes;
        struct span *span = pages_take(pages, PAGE_BYTES);
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(page_layer::stats().committed_bytes, grown) << "the memory was committed already";
        pages_give(span);
    }
    pages_verify();
}

// The kernel uses a huge page only where the whole of it is accessible at the first touch.
TEST_F(Grow, FromAHugePageOnItIsByWholeOnes)
{
    if (config_fences)
        GTEST_SKIP() << "fences divide the steps of growth of this build";
    while (page_layer::stats().committed_bytes < HUGE_PAGE_BYTES)
        ASSERT_TRUE(grow(1));
    size_t unaligned = 0;
    for (int i = 0; i < 40; i++) {
        const size_t before = page_layer::stats().committed_bytes;
        const size_t arenas = arena_count();
        ASSERT_TRUE(grow(1));
        const struct arena *newest = arenas_added[arenas - 1];
        const size_t left = newest->pages - newest->frontier;
        const size_t grown = page_layer::stats().committed_bytes - before;
        EXPECT_TRUE(grown >= HUGE_PAGE_BYTES || left == 0) << grown << ", not an arena's rest";
        const auto end =
            reinterpret_cast<uintptr_t>(newest->base) + (newest->frontier << PAGE_SHIFT);
        unaligned += arena_count() == arenas && left != 0 && end % HUGE_PAGE_BYTES != 0;
        unaligned += newest->pages << PAGE_SHIFT >= 2 * size_t{HUGE_PAGE_BYTES} &&
                     reinterpret_cast<uintptr_t>(newest->base) % HUGE_PAGE_BYTES != 0;
    }
    EXPECT_EQ(unaligned, 0u);
    pages_verify();
}

TEST_F(Grow, ASmallHeapIsCommittedByAQuarterOfAMebibyte)
{
    if (page_layer::stats().committed_bytes >= HUGE_PAGE_BYTES / 2)
        GTEST_SKIP() << "other cases ran in this process";
    const size_t before = page_layer::stats().committed_bytes;
    ASSERT_TRUE(grow(1));
    EXPECT_LT(page_layer::stats().committed_bytes, before + HUGE_PAGE_BYTES / 2);
}

TEST_F(Grow, ARefusalIsFalseAndLosesNothing)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    const size_t committed = page_layer::stats().committed_bytes;
    os_fault_plan(0, SIZE_MAX / 2, ENOMEM);
    EXPECT_FALSE(grow(5000));
    os_fault_plan(0, 0, 0);
    EXPECT_EQ(page_layer::stats().committed_bytes, committed);
    EXPECT_TRUE(grow(5000));
    pages_verify();
}

// Every mebibyte of an arena contains a fence, however its pages are used.
TEST_F(HardenedGrowDeathTest, RunsOfAnArenaEndAtOne)
{
    struct span *first = pages_take(4, PAGE_BYTES);
    ASSERT_NE(first, nullptr);
    char *at = first->base;
    const auto run_on = [&] {
        for (size_t i = 0; i < 1024 * 1024; i++)
            touch(at + i);
    };
    EXPECT_EXIT(run_on(), testing::KilledBySignal(SIGSEGV), "");
    const auto run_back = [&] {
        for (size_t i = 0; i < 1024 * 1024; i++)
            touch(at - i);
    };
    EXPECT_EXIT(run_back(), testing::KilledBySignal(SIGSEGV), "");
    pages_give(first);
}

TEST_F(HardenedGrowDeathTest, LongRunsAreNotDivided)
{
    for (size_t pages : {size_t{33}, size_t{64}, size_t{700}, size_t{5000}}) {
        struct span *span = pages_take(pages, PAGE_BYTES);
        ASSERT_NE(span, nullptr);
        memset(span->base, 1, pages << PAGE_SHIFT);
        pages_give(span);
    }
    pages_verify();
}

} // namespace arenas_test
