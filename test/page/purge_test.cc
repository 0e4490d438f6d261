// Purging of free pages, and the cap on free memory.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <future>
#include <thread>
#include <vector>

#include "page/page_layer.h"

extern "C" {
#include "os/fault.h"
#include "os/memory.h"
#include "os/process.h"
}

namespace purge_test
{

// Release of memory: the cap, decay by low-water mark, the soft limit, trim, and a kernel that
// refuses. mincore decides which memory counts as released.

using page_layer::configure;
using page_layer::end_interval;
using page_layer::kMiB;

constexpr uint64_t kNever = 1000000;
constexpr size_t kNoCap = size_t{1} << 40;

size_t dirty() { return page_layer::stats().dirty_bytes; }

// Takes a run and writes to all of it.
struct span *used(size_t bytes)
{
    struct span *span = pages_take(bytes >> PAGE_SHIFT, PAGE_BYTES);
    EXPECT_NE(span, nullptr);
    page_layer::fill(span, 1);
    return span;
}

size_t resident(char *start, size_t bytes)
{
    std::vector<unsigned char> pages(bytes / os_page_size());
    EXPECT_EQ(mincore(start, bytes, pages.data()), 0);
    size_t count = 0;
    for (unsigned char page : pages)
        count += page & 1;
    return count * os_page_size();
}

class Purge : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_layer::start();
        configure(kNever, kNoCap);
        page_layer::purge_all_due();
    }
    void TearDown() override
    {
        configure(kNever, kNoCap);
        pages_trim(0);
        pages_verify();
    }
};

TEST_F(Purge, TrimGivesBackAllButWhatIsKept)
{
    struct span *span = used(16 * kMiB);
    char *start = span->base;
    pages_give(span);
    EXPECT_EQ(dirty(), 16 * kMiB);
    EXPECT_EQ(resident(start, 16 * kMiB), 16 * kMiB);
    EXPECT_FALSE(pages_trim(16 * kMiB));
    EXPECT_EQ(dirty(), 16 * kMiB);
    EXPECT_TRUE(pages_trim(0));
    EXPECT_EQ(dirty(), 0u);
    EXPECT_EQ(resident(start, 16 * kMiB), 0u);
    EXPECT_FALSE(pages_trim(0)) << "nothing can be released";
    EXPECT_GE(page_layer::stats().purged_bytes, 16 * kMiB);
}

// A write to a freed block after the purge of its pages makes them not zero. In hardened builds the
// run is all that is between two fences: of a longer stretch, the next run may be the other end.
TEST_F(Purge, ALateWriteDoesNotShowInAClearedRun)
{
    constexpr size_t kBytes = 100 * PAGE_BYTES;
    struct span *span = used(kBytes);
    char *start = span->base;
    pages_give(span);
    EXPECT_TRUE(pages_trim(0));
    memset(start + 7 * PAGE_BYTES, 1, 3 * PAGE_BYTES + 1);
    std::vector<struct span *> spans;
    do
        spans.push_back(pages_take(kBytes >> PAGE_SHIFT, PAGE_BYTES));
    while (spans.back()->base != start && spans.size() < 1000);
    ASSERT_EQ(spans.back()->base, start);
    pages_clear(spans.back(), kBytes);
    EXPECT_EQ(resident(start, kBytes), 0u) << "what is cleared need not be resident";
    EXPECT_TRUE(page_layer::reads(start, kBytes, 0));
    for (struct span *taken : spans)
        pages_give(taken);
}

TEST_F(Purge, ALateWriteToASlabDoesNotShowInAClearedRun)
{
    struct span *slab = page_layer::take_slab(3, true);
    char *start = slab->base;
    const size_t bytes = size_t{page_layer::kShapes[3].pages} << PAGE_SHIFT;
    memset(start, 1, bytes);
    pages_give_slab(slab, 0);
    EXPECT_TRUE(pages_trim(0));
    memset(start, 1, bytes);
    std::vector<struct span *> spans;
    do
        spans.push_back(pages_take(bytes >> PAGE_SHIFT, PAGE_BYTES));
    while (spans.back()->base != start && spans.size() < 1000);
    ASSERT_EQ(spans.back()->base, start);
    pages_clear(spans.back(), bytes);
    EXPECT_TRUE(page_layer::reads(start, bytes, 0));
    for (struct span *taken : spans)
        pages_give(taken);
}

TEST_F(Purge, ManySmallRunsAreTrimmedToo)
{
    std::vector<struct span *> spans;
    for (size_t i = 0; i < 400; i++)
        spans.push_back(used(5 * PAGE_BYTES));
    for (size_t i = 0; i < spans.size(); i += 2)
        pages_give(spans[i]);
    EXPECT_EQ(dirty(), 200u * 5 * PAGE_BYTES);
    EXPECT_TRUE(pages_trim(0));
    EXPECT_EQ(dirty(), 0u);
    for (size_t i = 1; i < spans.size(); i += 2) {
        EXPECT_TRUE(page_layer::reads(spans[i]->base, 5 * PAGE_BYTES, 1)) << "the run is in use";
        pages_give(spans[i]);
    }
}

TEST_F(Purge, TheCapHolds)
{
    configure(kNever, 4 * kMiB);
    std::vector<struct span *> spans;
    for (int i = 0; i < 20; i++)
        spans.push_back(used(kMiB));
    for (struct span *span : spans)
        pages_give(span);
    // Nothing is in use any more, so only the cap counts.
    EXPECT_LE(dirty(), 4 * kMiB);
    EXPECT_GT(dirty(), 0u) << "below the cap memory is kept for the next user";
}

// A heap that shrinks for good keeps a small part; memory that is needed again twice stays.
TEST_F(Purge, TheCapLearns)
{
    constexpr size_t kBytes = 48 * kMiB;
    configure(kNever, 64 * kMiB);
    pages_trim(0);
    page_layer::forget_cap();
    std::vector<size_t> kept;
    std::vector<size_t> went;
    for (int round = 0; round < 6; round++) {
        const size_t before = page_layer::stats().purged_bytes;
        std::vector<struct span *> spans;
        for (size_t bytes = 0; bytes < kBytes; bytes += kMiB / 4)
            spans.push_back(used(kMiB / 4));
        for (struct span *span : spans)
            pages_give(span);
        kept.push_back(dirty());
        went.push_back(page_layer::stats().purged_bytes - before);
    }
    EXPECT_LE(kept[0], 16 * kMiB) << "48 MiB may never be needed again";
    EXPECT_GE(went[0], 32 * kMiB);
    EXPECT_GE(kept[2], kBytes * 3 / 4);
    EXPECT_EQ(went[4], 0u);
    EXPECT_EQ(went[5], 0u);
    page_layer::forget_cap();
    pages_trim(0);
    std::vector<struct span *> spans;
    for (size_t bytes = 0; bytes < 10 * kBytes; bytes += kMiB / 4)
        spans.push_back(used(kMiB / 4));
    for (struct span *span : spans)
        pages_give(span);
    EXPECT_LE(dirty(), 3 * kMiB) << "480 MiB were released for good";
}

// Memory that is freed under pressure is purged although the program may need it again at once.
TEST_F(Purge, PressureDoesNotChangeTheCap)
{
    configure(kNever, 64 * kMiB);
    pages_trim(0);
    page_layer::forget_cap();
    const size_t cap = cap_pages();
    pages_press(true);
    for (int round = 0; round < 4; round++) {
        struct span *run = used(48 * kMiB);
        struct span *mapping = pages_map_growing(32 * kMiB);
        ASSERT_NE(mapping, nullptr);
        pages_give(run);
        EXPECT_EQ(cap_pages(), cap) << "round " << round;
        pages_give_huge(mapping);
        EXPECT_EQ(cap_pages(), cap) << "round " << round;
    }
    pages_press(false);
    pages_give(used(48 * kMiB));
    EXPECT_LT(cap_pages(), cap) << "without pressure the cap learns";
}

TEST_F(Purge, MemoryThatWasNotNeededDecays)
{
    configure(40, kNoCap);
    pages_give(used(8 * kMiB));
    for (int i = 0; i < 8 && dirty() > 0; i++) {
        os_sleep_ms(30);
        pages_tick();
    }
    EXPECT_EQ(dirty(), 0u);
}

// A small part of a long free run is taken and given back repeatedly: the rest of the run was not
// needed and decays.
TEST_F(Purge, TheRestOfARunInUseDecays)
{
    configure(40, kNoCap);
    pages_give(used(8 * kMiB));
    for (int i = 0; i < 6; i++) {
        pages_give(used(64 << 10));
        os_sleep_ms(30);
        pages_tick();
    }
    EXPECT_LE(dirty(), 1 * kMiB);
}

TEST_F(Purge, MemoryInTurnoverIsLeftAlone)
{
    configure(40, kNoCap);
    pages_give(used(8 * kMiB));
    const size_t purged = page_layer::stats().purged_bytes;
    for (int i = 0; i < 40; i++) {
        struct span *span = used(8 * kMiB); // all of it, again and again
        pages_give(span);
        os_sleep_ms(5);
        pages_tick();
    }
    EXPECT_EQ(page_layer::stats().purged_bytes, purged);
}

// Memory that becomes due at once is purged by many calls.
TEST_F(Purge, NoTickPurgesMoreThanItsPart)
{
    configure(40, kNoCap);
    std::vector<struct span *> runs;
    for (int i = 0; i < 24; i++)
        runs.push_back(used(16 * kMiB));
    runs.push_back(used(PAGE_BYTES));
    for (size_t i = 0; i + 1 < runs.size(); i++)
        pages_give(runs[i]);
    ASSERT_GE(dirty(), 24 * 16 * kMiB);
    end_interval();
    pages_tick(); // from now on nothing of it is needed
    uint64_t since_us = os_now_us();
    page_layer::purge_all_due();
    end_interval();
    const uint64_t advised = load_relaxed(&os_calls[OS_CALL_ADVISE]);
    uint64_t calls = 0;
    for (; calls < 500 && dirty() > 0; calls++) {
        const size_t before = dirty();
        const uint64_t begin_us = os_now_us();
        pages_tick();
        EXPECT_LE(before - dirty(), page_layer::due_most_bytes(since_us) + 2 * kMiB);
        since_us = begin_us;
    }
    EXPECT_EQ(dirty(), 0u);
    EXPECT_LE(load_relaxed(&os_calls[OS_CALL_ADVISE]) - advised, 3 * calls);
    pages_verify();
    pages_give(runs.back());
}

// A process whose calls are rare gives back the memory with few of them.
TEST_F(Purge, ATickAfterALongTimePurgesMore)
{
    configure(40, kNoCap);
    pages_give(used(10 * kMiB));
    pages_give(used(10 * kMiB));
    end_interval();
    pages_tick();
    end_interval();
    pages_tick();
    configure(kNever, kNoCap); // no interval ends any more
    os_sleep_ms(50);
    pages_tick();
    EXPECT_EQ(dirty(), 0u);
}

// Due memory that the program takes before its purge is not purged when it is freed again.
TEST_F(Purge, DueMemoryThatIsNeededAgainStays)
{
    if (config_random_runs)
        GTEST_SKIP() << "runs are at random places in this build, so not all dirty pages are taken";
    configure(40, kNoCap);
    pages_give(used(30 * kMiB));
    end_interval();
    pages_tick();
    end_interval();
    pages_tick();
    configure(kNever, kNoCap);
    if (dirty() == 0)
        GTEST_SKIP() << "the thread waited for the processor and purged all with one call";
    struct span *again = used(dirty());
    EXPECT_EQ(dirty(), 0u);
    pages_give(again);
    const size_t kept = dirty();
    for (int i = 0; i < 20; i++)
        pages_tick();
    EXPECT_EQ(dirty(), kept);
}

// A heap that shrinks purges above the cap in small parts, too.
TEST_F(Purge, NoGivePurgesMuchMoreThanItGives)
{
    constexpr size_t kRun = 64 << 10;
    configure(kNever, 4 * kMiB);
    std::vector<struct span *> runs;
    for (size_t bytes = 0; bytes < 192 * kMiB; bytes += kRun)
        runs.push_back(used(kRun));
    size_t most = 0;
    for (struct span *run : runs) {
        const size_t before = page_layer::stats().purged_bytes;
        pages_give(run);
        most = std::max(most, page_layer::stats().purged_bytes - before);
    }
    EXPECT_GT(most, 0u);
    EXPECT_LE(most, (PURGE_STEP_PAGES << PAGE_SHIFT) + 2 * kRun + 2 * kMiB);
    EXPECT_LE(dirty(), 4 * kMiB);
}

TEST_F(Purge, ATickBeforeItsTimeDoesNothing)
{
    configure(kNever, kNoCap);
    pages_give(used(2 * kMiB));
    for (int i = 0; i < 1000; i++)
        pages_tick();
    EXPECT_EQ(dirty(), 2 * kMiB);
}

TEST_F(Purge, GrowthBeyondTheSoftLimitPurgesFirst)
{
    pages_trim(0);
    // Free memory in pieces that do not fit the next request.
    std::vector<struct span *> spans;
    for (size_t i = 0; i < 64; i++)
        spans.push_back(used(64 * PAGE_BYTES));
    for (size_t i = 0; i < spans.size(); i += 2)
        pages_give(spans[i]);
    ASSERT_GE(dirty(), 8 * kMiB);
    const size_t committed = page_layer::stats().committed_bytes;
    configure(kNever, kNoCap, committed / 2);
    struct span *span = used(page_layer::stats().free_bytes + kMiB);
    EXPECT_LT(dirty(), kMiB) << "the process grew without a purge";
    pages_give(span);
    for (size_t i = 1; i < spans.size(); i += 2)
        pages_give(spans[i]);
}

// A huge mapping counts as memory: it purges before it is mapped and before it grows, and it counts
// when the arenas grow.
TEST_F(Purge, HugeMappingsHeedTheSoftLimit)
{
    pages_trim(0);
    configure(kNever, kNoCap);
    pages_give(used(8 * kMiB));
    const size_t resident = page_layer::stats().committed_bytes - page_layer::stats().free_bytes +
                            page_layer::stats().huge_bytes;
    configure(kNever, kNoCap, resident + 30 * kMiB);
    struct span *below = pages_map_huge(16 * kMiB, PAGE_BYTES);
    ASSERT_NE(below, nullptr);
    EXPECT_GE(dirty(), 8 * kMiB) << "below the limit nothing is purged";
    struct span *above = pages_map_huge(16 * kMiB, PAGE_BYTES);
    ASSERT_NE(above, nullptr);
    EXPECT_EQ(dirty(), 0u) << "a mapping above the limit did not purge";

    pages_give_huge(above);
    pages_give(used(8 * kMiB));
    ASSERT_GE(dirty(), 8 * kMiB);
    ASSERT_TRUE(pages_resize_huge(below, 40 * kMiB, true));
    EXPECT_EQ(dirty(), 0u) << "a growing mapping above the limit did not purge";

    struct span *free_soon = used(8 * kMiB);
    struct span *behind_it = used(PAGE_BYTES);
    pages_give(free_soon);
    ASSERT_GE(dirty(), 8 * kMiB);
    struct span *grown = used(page_layer::stats().free_bytes + kMiB);
    EXPECT_EQ(dirty(), 0u) << "arenas that grow next to a mapping did not purge";
    for (struct span *span : {behind_it, grown})
        pages_give(span);
    pages_give_huge(below);
}

TEST_F(Purge, ARefusedPurgeLosesNothing)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    pages_give(used(4 * kMiB));
    for (int error : {EPERM, ENOMEM, EAGAIN}) {
        os_fault_plan(0, SIZE_MAX / 2, error);
        EXPECT_FALSE(pages_trim(0));
        os_fault_plan(0, 0, 0);
        EXPECT_EQ(dirty(), 4 * kMiB);
        pages_verify();
        struct span *again = used(4 * kMiB);
        EXPECT_EQ(dirty(), 0u) << "the pages serve again";
        pages_give(again);
    }
    configure(kNever, kMiB);
    os_fault_plan(0, SIZE_MAX / 2, EPERM);
    pages_give(used(kMiB)); // above the cap, and the purge is refused
    os_fault_plan(0, 0, 0);
    pages_verify();
    EXPECT_TRUE(pages_trim(0));
    EXPECT_EQ(dirty(), 0u);
}

// The kernel refuses to purge a range with a locked page. The system call is made directly, because
// mlock of the sanitizers does nothing.
TEST_F(Purge, ALockedPageHoldsBackNothingElse)
{
    constexpr size_t RUNS = 4;
    const size_t page = os_page_size();
    std::vector<struct span *> runs, between;
    std::vector<char *> locked;
    for (size_t i = 0; i < RUNS; i++) {
        runs.push_back(used((4 - i) * kMiB));
        between.push_back(used(PAGE_BYTES));
        char *middle = runs[i]->base + 1001 * PAGE_BYTES % page_layer::bytes_of(runs[i]);
        locked.push_back(middle - uintptr_t(middle) % page);
        if (i % 2 == 0 && syscall(SYS_mlock, locked[i], page) != 0)
            GTEST_SKIP() << "memory cannot be locked here";
    }
    for (struct span *run : runs)
        pages_give(run);
    EXPECT_TRUE(pages_trim(0));
    EXPECT_EQ(dirty(), RUNS / 2 * page);
    EXPECT_FALSE(pages_trim(0)) << "nothing can be released";
    pages_verify();

    configure(40, kNoCap);
    pages_give(used(kMiB));
    for (int i = 0; i < 8 && dirty() > RUNS / 2 * page; i++) {
        os_sleep_ms(30);
        pages_tick();
    }
    EXPECT_EQ(dirty(), RUNS / 2 * page) << "other free memory decays as usual";
    configure(kNever, kNoCap);

    for (size_t i = 0; i < RUNS; i += 2)
        syscall(SYS_munlock, locked[i], page);
    EXPECT_TRUE(pages_trim(0));
    EXPECT_EQ(dirty(), 0u);
    for (struct span *span : between)
        pages_give(span);
}

// Where all memory is locked, as by mlockall, a purge soon ends, and later frees do not try again
// for each run.
TEST_F(Purge, WhereAllIsLockedFewCallsAreMade)
{
    struct span *run = used(16 * kMiB);
    char *start = run->base;
    if (syscall(SYS_mlock, start, 16 * kMiB) != 0)
        GTEST_SKIP() << "16 MiB cannot be locked here";
    configure(kNever, kMiB);
    const uint64_t before = load_relaxed(&os_calls[OS_CALL_ADVISE]);
    pages_give(run);
    const uint64_t first = load_relaxed(&os_calls[OS_CALL_ADVISE]);
    EXPECT_LE(first - before, 300u);
    for (int i = 0; i < 100; i++)
        pages_give(used(PAGE_BYTES));
    EXPECT_LE(load_relaxed(&os_calls[OS_CALL_ADVISE]) - first, 200u);
    EXPECT_EQ(resident(start, 16 * kMiB), 16 * kMiB);
    syscall(SYS_munlock, start, 16 * kMiB);
    EXPECT_TRUE(pages_trim(0));
    EXPECT_EQ(dirty(), 0u);
}

TEST_F(Purge, OnlyWholeSystemPagesOfAPartAreMarked)
{
    if (os_page_size() == PAGE_BYTES) {
        EXPECT_EQ(pages_whole_marked(nullptr, 0x8001), 0x8001u);
        return;
    }
    const size_t count = os_page_size() >> PAGE_SHIFT;
    const uint64_t all = UINT64_MAX >> (64 - count);
    struct span *span = used(2 * os_page_size());
    char *start = span->base + os_page_size();
    start -= uintptr_t(start) % os_page_size();
    EXPECT_EQ(pages_whole_marked(start, all << 1), 0u);
    EXPECT_EQ(pages_whole_marked(start, all | all << count << 1), all);
    pages_give(span);
}

// The cap on free memory: the events that raise it and those that lower it.

using page_layer::kMiB;

constexpr size_t kOption = 64 * kMiB >> PAGE_SHIFT;
constexpr size_t kFirst = kOption / CAP_FIRST_PART;
constexpr size_t kLeast = kOption / CAP_MIN_PART;

class Cap : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_layer::start();
        page_layer::configure(1000000, kOption << PAGE_SHIFT);
        page_layer::forget_cap();
    }
    // The tolerance is eight pages: cap_age() returns by an eighth of the difference, rounded down.
    static bool is_first() { return cap_pages() + 8 > kFirst && cap_pages() < kFirst + 8; }
};

TEST_F(Cap, IsAQuarterOfTheOptionAtFirst)
{
    EXPECT_TRUE(is_first());
    cap_note_taken(1000);
    EXPECT_TRUE(is_first()) << "no memory was released before";
}

// A large heap that shrinks for good keeps little in the end.
TEST_F(Cap, IsLoweredByWhatGoes)
{
    cap_note_given(16000);
    EXPECT_LT(cap_pages(), kFirst - 900);
    EXPECT_GT(cap_pages(), kFirst - 1100);
    cap_note_given(160000);
    EXPECT_EQ(cap_pages(), kLeast);
}

TEST_F(Cap, IsRaisedByWhatWasNeededAgain)
{
    cap_note_given(8000);
    const size_t lowered = cap_pages();
    cap_note_taken(800);
    const size_t once = cap_pages();
    EXPECT_GE(once, lowered + 800);
    EXPECT_LE(once, lowered + 1000);
    cap_note_taken(80000);
    EXPECT_GE(cap_pages(), lowered + 8000);
    EXPECT_LE(cap_pages(), lowered + 10000) << "the cap rises by the released memory at most";
}

TEST_F(Cap, WhatWentLongAgoIsNotMissed)
{
    cap_note_given(8000);
    cap_age(0);
    const size_t lowered = cap_pages();
    cap_note_taken(800);
    EXPECT_GE(cap_pages(), lowered + 800) << "the release was in the interval before";
    cap_age(0);
    const size_t before = cap_pages();
    cap_note_taken(800);
    EXPECT_EQ(cap_pages(), before);
}

TEST_F(Cap, ComesBackToTheFirst)
{
    cap_note_given(80000);
    cap_note_taken(80000);
    EXPECT_GT(cap_pages(), kFirst + 60000);
    for (int i = 0; i < 10; i++)
        cap_age(0);
    EXPECT_LT(cap_pages(), kFirst + 30000);
    page_layer::forget_cap();
    EXPECT_TRUE(is_first());
    cap_note_given(1000000);
    EXPECT_EQ(cap_pages(), kLeast);
    page_layer::forget_cap();
    EXPECT_TRUE(is_first());
}

TEST_F(Cap, StaysAtTheSwingOfWhatIsFree)
{
    cap_note_given(80000);
    cap_note_taken(80000);
    for (int i = 0; i < 60; i++)
        cap_age(60000);
    EXPECT_GE(cap_pages(), 60000u);
    EXPECT_LE(cap_pages(), 60100u);
    for (int i = 0; i < 200; i++)
        cap_age(10);
    EXPECT_TRUE(is_first());
}

TEST_F(Cap, TheSwingIsThatOfTheTakes)
{
    constexpr size_t kPages = 3 * kFirst;
    cap_note_given(5 * kFirst);
    cap_note_taken(5 * kFirst);
    pages_give(pages_take(kPages, PAGE_BYTES));
    for (int i = 0; i < 60; i++) {
        pages_give(pages_take(kPages, PAGE_BYTES));
        end_interval();
        pages_tick();
    }
    EXPECT_GE(cap_pages(), kPages);
    EXPECT_LE(cap_pages(), kPages + 8);
    for (int i = 0; i < 60; i++) {
        pages_give(pages_take(1, PAGE_BYTES)); // the same one
        end_interval();
        pages_tick();
    }
    EXPECT_TRUE(is_first());
}

TEST_F(Cap, LearnsFromARunThatExtendsIntoPurgedPages)
{
    if (config_fences)
        GTEST_SKIP() << "a fence may be right behind the run";
    constexpr size_t kPages = 8 * kFirst;
    struct span *run = pages_take(kPages, PAGE_BYTES);
    ASSERT_NE(run, nullptr);
    ASSERT_TRUE(pages_shrink(run, 16));
    pages_trim(0);
    cap_note_given(kPages);
    const size_t before = cap_pages();
    ASSERT_TRUE(pages_extend(run, kPages / 2));
    EXPECT_GE(cap_pages(), before + kPages / 2 - 64);
    pages_give(run);
}

TEST_F(Cap, FollowsTheOption)
{
    page_layer::configure(1000000, 0);
    cap_note_given(8000);
    cap_note_taken(8000);
    EXPECT_EQ(cap_pages(), 0u) << "no memory may be kept";
    page_layer::configure(1000000, 1024 * PAGE_BYTES);
    for (int i = 0; i < 10; i++) {
        cap_note_given(80000);
        cap_note_taken(80000);
    }
    EXPECT_EQ(cap_pages(), size_t{1024 * CAP_MAX_TIMES});
    page_layer::configure(1000000, SIZE_MAX / 2);
    EXPECT_GT(cap_pages(), SIZE_MAX / PAGE_BYTES / 1024);
}

} // namespace purge_test
