// Giving memory back: cap, decay by low-water mark, soft limit, trim, and a kernel that refuses.
// What counts as gone is what mincore says.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <cerrno>
#include <future>
#include <thread>
#include <vector>

#include "page/page_layer.h"

namespace
{

using page_layer::configure;
using page_layer::kMiB;

constexpr uint64_t kNever = 1000000;
constexpr size_t kNoCap = size_t{1} << 40;

size_t dirty() { return page_layer::stats().dirty_bytes; }

// A run of memory that was written.
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
    EXPECT_FALSE(pages_trim(0)) << "nothing is left to give";
    EXPECT_GE(page_layer::stats().purged_bytes, 16 * kMiB);
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
        EXPECT_TRUE(page_layer::reads(spans[i]->base, 5 * PAGE_BYTES, 1)) << "it was in use";
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
    // Nothing is in use any more, so that the cap alone counts.
    EXPECT_LE(dirty(), 4 * kMiB);
    EXPECT_GT(dirty(), 0u) << "below the cap memory is kept for the next user";
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

// A little of a long free run is taken and given, again and again: the rest of it was not needed.
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

// Free runs that are too short give way where the process would become larger than it ever was.
TEST_F(Purge, GrowthTakesTheMemoryOfRunsThatAreTooShort)
{
    if (!config_room)
        GTEST_SKIP() << "growth is not watched in this build";
    constexpr size_t kShort = 64 << 10;
    std::vector<struct span *> runs;
    for (int i = 0; i < 64; i++)
        runs.push_back(used(kShort));
    for (size_t i = 0; i < runs.size(); i += 2)
        pages_give(runs[i]);
    const size_t before = dirty();
    ASSERT_GE(before, 32 * kShort);
    store_relaxed(&pages_state.most_pages, counted_pages()); // as if it had never been larger
    store_relaxed(&pages_state.growth_pages, size_t{0});
    struct span *longer = used(4 * kShort);
    EXPECT_LE(counted_pages(), load_relaxed(&pages_state.most_pages));
    EXPECT_LE(dirty(), before - 4 * kShort);
    EXPECT_GE(dirty(), before - 6 * kShort) << "no more went than had to, but for a few pages";
    pages_give(longer);
    for (size_t i = 1; i < runs.size(); i += 2)
        pages_give(runs[i]);
}

// Runs of many lengths come and go at the peak. How much went, and the peak.
struct Turnover {
    size_t purged_pages, most_pages;
};

void turn_over(Turnover *turnover)
{
    constexpr size_t kLive = 256, kTurns = 20000, kMostPages = 32;
    store_relaxed(&pages_state.growth_pages, size_t{0}); // as if it began now
    store_relaxed(&pages_state.most_pages, counted_pages());
    const size_t purged = page_layer::stats().purged_bytes;
    uint64_t random = 1;
    auto draw = [&random](size_t below) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        return size_t{random >> 33} % below;
    };
    std::vector<struct span *> runs(kLive);
    for (size_t turn = 0; turn < kTurns; turn++) {
        struct span *&run = runs[draw(kLive)];
        if (run)
            pages_give(run);
        run = pages_take(1 + draw(kMostPages), PAGE_BYTES);
        ASSERT_NE(run, nullptr);
    }
    *turnover = {(page_layer::stats().purged_bytes - purged) >> PAGE_SHIFT,
                 load_relaxed(&pages_state.most_pages)};
    for (struct span *run : runs)
        if (run)
            pages_give(run);
}

// What goes back is missed soon where lengths come and go: so it has an end, and the peak rises.
TEST_F(Purge, TurnoverAtThePeakGivesBackTwiceOfItAtMost)
{
    if (!config_room)
        GTEST_SKIP() << "growth is not watched in this build";
    Turnover turnover = {};
    ASSERT_NO_FATAL_FAILURE(turn_over(&turnover));
    EXPECT_LE(turnover.purged_pages, 2 * turnover.most_pages);
}

// Each call stops the other threads for a moment.
TEST_F(Purge, TurnoverAtThePeakGivesBackAQuarterOfItWithThreads)
{
    if (!config_room)
        GTEST_SKIP() << "growth is not watched in this build";
    std::promise<void> done;
    std::thread other([&done] { done.get_future().wait(); });
    Turnover turnover = {};
    turn_over(&turnover);
    done.set_value();
    other.join();
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_GT(turnover.purged_pages, 0u);
    EXPECT_LE(turnover.purged_pages, turnover.most_pages / 4);
}

// A long-lived process may give back so for ever, but slowly: what went is forgotten with time.
TEST_F(Purge, GrowthIsForgottenWithTime)
{
    if (!config_room)
        GTEST_SKIP() << "growth is not watched in this build";
    constexpr size_t kAMs = 4, kMs = 1000;
    const size_t enough = size_t{1} << 20;
    auto grows = [] {
        pages_trim(0);
        store_relaxed(&pages_state.most_pages, size_t{0}); // and of nothing nothing goes back
        pages_give(used(64 << 10));
    };
    auto passes = [](uint64_t ms) {
        store_relaxed(&pages_state.growth_ms, load_relaxed(&pages_state.interval_start_ms) - ms);
    };
    passes(0);
    store_relaxed(&pages_state.growth_pages, enough);
    grows();
    EXPECT_EQ(load_relaxed(&pages_state.growth_pages), enough) << "no time has passed";
    passes(kMs);
    grows();
    EXPECT_EQ(load_relaxed(&pages_state.growth_pages), enough - kMs * kAMs);
    grows();
    EXPECT_EQ(load_relaxed(&pages_state.growth_pages), enough - kMs * kAMs) << "not twice";
    passes(enough);
    grows();
    EXPECT_EQ(load_relaxed(&pages_state.growth_pages), 0u);
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
    EXPECT_LT(dirty(), kMiB) << "it grew, and kept what it could have given back";
    pages_give(span);
    for (size_t i = 1; i < spans.size(); i += 2)
        pages_give(spans[i]);
}

// A mapping of its own is memory, too: it purges before it comes, before it grows, and counts when
// the arenas grow.
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
    EXPECT_GE(dirty(), 8 * kMiB) << "below the limit nothing has to go";
    struct span *above = pages_map_huge(16 * kMiB, PAGE_BYTES);
    ASSERT_NE(above, nullptr);
    EXPECT_EQ(dirty(), 0u) << "mapped above the limit, and kept what it could have given back";

    pages_give_huge(above);
    pages_give(used(8 * kMiB));
    ASSERT_GE(dirty(), 8 * kMiB);
    ASSERT_TRUE(pages_resize_huge(below, 40 * kMiB, true));
    EXPECT_EQ(dirty(), 0u) << "a mapping grew above the limit";

    struct span *free_soon = used(8 * kMiB);
    struct span *behind_it = used(PAGE_BYTES);
    pages_give(free_soon);
    ASSERT_GE(dirty(), 8 * kMiB);
    struct span *grown = used(page_layer::stats().free_bytes + kMiB);
    EXPECT_EQ(dirty(), 0u) << "the arenas grew beside a mapping";
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
        EXPECT_EQ(dirty(), 0u) << "its pages serve again";
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

// The system refuses a range that has a locked page in it. By calls of our own: the sanitizers'
// mlock does nothing.
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
            GTEST_SKIP() << "no memory may be locked";
    }
    for (struct span *run : runs)
        pages_give(run);
    EXPECT_TRUE(pages_trim(0));
    EXPECT_EQ(dirty(), RUNS / 2 * page);
    EXPECT_FALSE(pages_trim(0)) << "nothing is left to give";
    pages_verify();

    configure(40, kNoCap);
    pages_give(used(kMiB));
    for (int i = 0; i < 8 && dirty() > RUNS / 2 * page; i++) {
        os_sleep_ms(30);
        pages_tick();
    }
    EXPECT_EQ(dirty(), RUNS / 2 * page) << "what is free otherwise decays as ever";
    configure(kNever, kNoCap);

    for (size_t i = 0; i < RUNS; i += 2)
        syscall(SYS_munlock, locked[i], page);
    EXPECT_TRUE(pages_trim(0));
    EXPECT_EQ(dirty(), 0u);
    for (struct span *span : between)
        pages_give(span);
}

// Where all is locked, as by mlockall, a purge ends soon, and what comes after does not try again
// for each run that is given.
TEST_F(Purge, WhereAllIsLockedFewCallsAreMade)
{
    struct span *run = used(16 * kMiB);
    char *start = run->base;
    if (syscall(SYS_mlock, start, 16 * kMiB) != 0)
        GTEST_SKIP() << "so much memory may not be locked";
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

} // namespace
