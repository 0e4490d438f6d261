// Shards: which one serves, where runs return to, and what all of them count together. Each case
// needs a process of its own, because it depends on what all shards have free.

#include <atomic>
#include <gtest/gtest.h>
#include <set>
#include <thread>
#include <vector>

#include "page/page_layer.h"

extern "C" {
#include "os/fault.h"
}

namespace shards_test
{

using page_layer::configure;
using page_layer::fill;
using page_layer::kMiB;
using page_layer::stats;

constexpr uint64_t kDecayMs = 1000000; // nothing decays by age here
constexpr unsigned kShards = 4;
constexpr size_t kLent = GROWTH_MAX_PAGES + 512; // free pages of which a shard lends

class Shards : public testing::Test
{
  protected:
    void SetUp() override
    {
        page_layer::start();
        configure(kDecayMs, 1024 * kMiB);
        // as with four processors, whatever this machine has
        store_relaxed(&pages_state.shard_count, kShards);
        pages_trim(0); // no shard has memory to lend
    }

    void TearDown() override
    {
        own_shard = 0;
        pages_verify();
    }

    static struct span *take(uint8_t shard, size_t pages)
    {
        own_shard = shard;
        struct span *span = pages_take(pages, PAGE_BYTES);
        if (span)
            fill(span, 1);
        return span;
    }

    // Purges all memory that two intervals did not need.
    static void decay_all()
    {
        for (int i = 0; i < 2; i++) {
            page_layer::end_interval();
            pages_tick();
        }
        page_layer::purge_all_due();
    }

    static struct page_shard *home(const struct span *span)
    {
        const struct arena *arena = arena_of(span->base);
        return arena ? arena->shard : nullptr;
    }
};

TEST_F(Shards, EachThreadGetsOneThatTheFewestUse)
{
    store_relaxed(&pages_state.shard_count, 1u);
    const unsigned most = std::min(os_processor_count(), unsigned{SHARDS_MAX});
    std::vector<unsigned> threads(most, 0);
    for (unsigned i = 0; i < 2 * most; i++) {
        const unsigned shard = pages_enter_shard(0);
        ASSERT_LT(shard, most);
        EXPECT_EQ(threads[shard]++, i / most);
        EXPECT_EQ(own_shard, shard);
    }
    for (unsigned i = 0; i < 3; i++) { // the one that it had before, if another would not be better
        pages_leave_shard(static_cast<uint8_t>(most - 1));
        EXPECT_EQ(pages_enter_shard(static_cast<uint8_t>(most - 1)), most - 1);
    }
    shards_forget_threads();
    EXPECT_EQ(pages_enter_shard(static_cast<uint8_t>(most - 1)), most - 1);
    for (unsigned i = 0; i < most - 1; i++)
        EXPECT_NE(pages_enter_shard(0), most - 1) << "the one that this thread uses";
}

// A program with one thread may be in a sandbox that forbids to ask for processors.
TEST_F(Shards, ThreadsOneAfterAnotherUseTheFirst)
{
    store_relaxed(&pages_state.shard_count, 1u);
    for (unsigned i = 0; i < 3; i++) {
        EXPECT_EQ(pages_enter_shard(0), 0u);
        pages_leave_shard(0);
    }
    EXPECT_EQ(shard_count(), 1u);
}

TEST_F(Shards, RunsReturnToTheirsWhoeverFreesThem)
{
    for (uint8_t shard = 0; shard < kShards; shard++) {
        struct span *span = take(shard, 10);
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(home(span), &page_shards[shard]);
        EXPECT_EQ(span->shard, shard);
        const size_t before = page_shards[shard].free_pages;
        std::thread([span] { pages_give(span); }).join();
        EXPECT_EQ(page_shards[shard].free_pages, before + 10);
        pages_verify();
    }
}

TEST_F(Shards, PartsOfARunBelongToItsShard)
{
    struct span *span = take(1, 10);
    ASSERT_NE(span, nullptr);
    own_shard = 2;
    struct span *rest = pages_split(span, 4, false);
    ASSERT_NE(rest, nullptr);
    EXPECT_EQ(rest->shard, 1u);
    page_map_set_page(rest->base, rest);
    EXPECT_TRUE(pages_shrink(rest, 2));
    pages_give(span);
    pages_give(rest);
}

// A thread uses memory that another one left, rather than let its own shard grow.
TEST_F(Shards, OneLendsToAThreadWhoseShardWouldGrow)
{
    pages_give(take(2, 100));
    struct span *freed = take(0, kLent);
    ASSERT_NE(freed, nullptr);
    char *base = freed->base;
    pages_give(freed);
    ASSERT_GE(page_shards[0].dirty_pages, kLent);
    struct span *lent = take(1, 100);
    ASSERT_NE(lent, nullptr);
    EXPECT_EQ(home(lent), &page_shards[0]);
    EXPECT_GE(lent->base, base);
    pages_give(lent);

    struct span *own = take(2, 100);
    EXPECT_EQ(home(own), &page_shards[2]) << "it has a free run";
    pages_give(own);
}

TEST_F(Shards, ALenderMakesTheHeadersThatItLacks)
{
    pages_give(take(0, kLent));
    struct page_shard *lender = &page_shards[0];
    ASSERT_TRUE(lock_acquire(&lender->lock));
    for (unsigned kind : {0u, unsigned{page_layer::kShapes[1].side_units}})
        while (header_pop(lender, kind))
            continue;
    lock_release(&lender->lock);
    own_shard = 1;
    struct span *slab = pages_take_slab(1);
    ASSERT_NE(slab, nullptr);
    EXPECT_EQ(home(slab), lender);
    slab->owner = 0;
    pages_give_slab(slab, 0);
}

// The first shard has told its counts when there was no other one, and does nothing since.
TEST_F(Shards, TheFirstLendsWhatItFreedWhenItWasTheOnlyOne)
{
    store_relaxed(&pages_state.shard_count, 1u);
    pages_give(take(0, kLent));
    store_relaxed(&pages_state.shard_count, kShards);
    struct span *lent = take(1, 100);
    EXPECT_EQ(home(lent), &page_shards[0]);
    pages_give(lent);
}

TEST_F(Shards, OneThatUsesMoreThanItHasFreeDoesNotLend)
{
    struct span *used = take(0, kLent);
    struct span *freed = take(0, kLent);
    struct span *gap = take(0, 1); // keeps the next growth away from the free run
    pages_give(freed);
    struct span *own = take(3, 100);
    ASSERT_NE(own, nullptr);
    EXPECT_EQ(home(own), &page_shards[3]);
    for (struct span *span : {used, gap, own})
        pages_give(span);
}

// Otherwise threads that replace large blocks pass their pages around.
TEST_F(Shards, AShardWithLittleFreeMemoryKeepsIt)
{
    pages_give(take(0, GROWTH_MAX_PAGES));
    struct span *own = take(1, 100);
    ASSERT_NE(own, nullptr);
    EXPECT_EQ(home(own), &page_shards[1]);
    pages_give(own);
}

TEST_F(Shards, TheOthersServeWhenTheSystemRefuses)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    struct span *freed = take(0, 4096);
    ASSERT_NE(freed, nullptr);
    pages_give(freed);
    pages_trim(0); // shard 0 has free pages without memory
    os_fault_plan(0, SIZE_MAX, ENOMEM);
    std::vector<struct span *> spans;
    for (size_t got = 0; got < 3000; got += 100)
        spans.push_back(take(1, 100));
    os_fault_plan(0, 0, 0);
    for (struct span *span : spans) {
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(home(span), &page_shards[0]);
        pages_give(span);
    }
}

// All threads read the counts of pages_state, so a shard does not write them at each operation.
TEST_F(Shards, CountsAreToldInPortions)
{
    std::vector<struct span *> spans;
    for (int i = 0; i < 2 * TOLD_PAGES / 8; i++) {
        spans.push_back(take(1, 8));
        ASSERT_NE(spans.back(), nullptr);
    }
    const auto difference = [] {
        const size_t exact = stats().dirty_bytes >> PAGE_SHIFT;
        const size_t told = load_relaxed(&pages_state.dirty_pages);
        return std::max(exact, told) - std::min(exact, told);
    };
    std::set<size_t> told;
    for (struct span *span : spans) {
        const size_t exact = stats().dirty_bytes;
        pages_give(span);
        EXPECT_EQ(stats().dirty_bytes, exact + 8 * PAGE_BYTES) << "statistics are exact";
        EXPECT_LE(difference(), size_t{kShards} * TOLD_PAGES);
        told.insert(load_relaxed(&pages_state.dirty_pages));
    }
    EXPECT_LE(told.size(), 4u);
    pages_limit_soft(1024 * kMiB);
    EXPECT_EQ(difference(), 0u) << "a limit needs exact counts";
    struct span *span = take(1, 8);
    EXPECT_EQ(difference(), 0u);
    pages_give(span);
    EXPECT_EQ(difference(), 0u);
    pages_limit_soft(0);
}

TEST_F(Shards, NoneOfThemPassesTheHardLimit)
{
    pages_trim(0);
    const size_t most = stats().counted_bytes + 8 * kMiB;
    pages_limit_hard(most);
    std::vector<std::thread> threads;
    std::atomic<size_t> served{0};
    for (uint8_t i = 0; i < kShards; i++)
        threads.emplace_back([i, most, &served] {
            std::vector<struct span *> own;
            for (int turn = 0; turn < 300; turn++) {
                struct span *span = take(i, 1 + static_cast<size_t>(turn % 60));
                if (span == nullptr || turn % 50 == 49) {
                    for (struct span *each : own)
                        pages_give(each);
                    own.clear();
                }
                if (span) {
                    served++;
                    own.push_back(span);
                }
                while (!lock_acquire(&pages_state.lock)) // admissions hold it
                    std::this_thread::yield();
                EXPECT_LE(limits_counted_pages() << PAGE_SHIFT, most);
                lock_release(&pages_state.lock);
            }
            for (struct span *each : own)
                pages_give(each);
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_GT(served, 600u);
    pages_limit_hard(0);
}

TEST_F(Shards, ARefusalByTheHardLimitIsOneOnly)
{
    pages_limit_hard(stats().counted_bytes + kMiB);
    const size_t before = stats().refusals;
    EXPECT_EQ(take(1, 2 * kMiB >> PAGE_SHIFT), nullptr);
    EXPECT_EQ(stats().refusals, before + 1);
    pages_limit_hard(0);
}

// Until the other thread releases its shard, the growth is committed and not told as free.
TEST_F(Shards, AGrowthOfAnotherThreadIsNoReasonToRefuse)
{
    pages_give(take(1, 4 * kMiB >> PAGE_SHIFT));
    pages_limit_hard(stats().counted_bytes + 2 * kMiB); // 4 MiB of them are dirty
    ASSERT_EQ(pages_grow(&page_shards[0], 8 * kMiB >> PAGE_SHIFT), 0);
    std::atomic<bool> settled{false};
    std::thread other([&settled] {
        ASSERT_TRUE(shard_acquire(&page_shards[0]));
        free_spans_settle(&page_shards[0], nullptr);
        settled = true;
        usleep(50000);
        shard_release(&page_shards[0]);
    });
    while (!settled)
        std::this_thread::yield();
    own_shard = 1;
    const size_t before = stats().refusals;
    EXPECT_TRUE(limits_purge_for_hard(3 * kMiB >> PAGE_SHIFT));
    EXPECT_EQ(stats().refusals, before);
    other.join();
    pages_limit_hard(0);
}

// Memory is kept up to what the program uses. Pages that another thread is purging are not in use.
TEST_F(Shards, WhatIsBeingPurgedIsNotInUse)
{
    constexpr size_t kCap = kMiB;
    struct span *purged = take(0, 16 * kMiB >> PAGE_SHIFT);
    struct span *freed = take(1, 3 * kMiB >> PAGE_SHIFT);
    struct span *last = take(1, 2 * kMiB >> PAGE_SHIFT);
    for (struct span *span : {purged, freed, last})
        ASSERT_NE(span, nullptr);
    pages_give(purged);
    pages_give(freed);
    ASSERT_TRUE(shard_acquire(&page_shards[0]));
    struct span *longest = bins_longest(&page_shards[0], DIRTY);
    span_withdraw(longest);
    span_begin_purge(longest);
    shard_release(&page_shards[0]);
    pages_verify();

    configure(kDecayMs, CAP_FIRST_PART * kCap);
    page_layer::forget_cap();
    pages_give(last);
    EXPECT_LE(stats().dirty_bytes, 4 * kMiB);

    ASSERT_TRUE(shard_acquire(&page_shards[0]));
    fetch_sub_relaxed(&pages_state.purging_pages, size_t{longest->pages});
    fetch_sub_relaxed(&pages_state.purging_dirty, longest->dirty_pages);
    span_end_purge(longest);
    span_release(span_arena(longest), longest);
    shard_release(&page_shards[0]);
}

TEST_F(Shards, ATrimReachesAll)
{
    for (uint8_t shard = 0; shard < kShards; shard++)
        pages_give(take(shard, 100));
    EXPECT_GE(stats().dirty_bytes, kShards * 100 * PAGE_BYTES);
    own_shard = 2;
    EXPECT_TRUE(pages_trim(0));
    EXPECT_EQ(stats().dirty_bytes, 0u);
}

TEST_F(Shards, TheDecayReachesAll)
{
    configure(1, 1024 * kMiB);
    for (uint8_t shard = 0; shard < kShards; shard++)
        pages_give(take(shard, 100));
    decay_all();
    EXPECT_EQ(stats().dirty_bytes, 0u);
}

// A run that is freed during a fork is deferred, and maybe no thread uses its shard afterwards.
class DeferredInAShard : public Shards
{
  protected:
    static constexpr size_t kPages = kMiB >> PAGE_SHIFT;

    static void free_during_a_fork()
    {
        struct span *span = take(2, kPages);
        own_shard = 1;
        pages_freeze();
        std::thread([span] { pages_give(span); }).join();
        pages_thaw();
        ASSERT_NE(page_shards[2].deferred, nullptr);
    }
};

TEST_F(DeferredInAShard, GoesBackByTime)
{
    configure(1, 1024 * kMiB);
    const size_t before = stats().counted_bytes;
    free_during_a_fork();
    decay_all();
    EXPECT_LE(stats().counted_bytes, before);
}

TEST_F(DeferredInAShard, ServesAtTheHardLimit)
{
    struct span *first = take(1, 1); // the shard has an arena and headers
    free_during_a_fork();
    pages_limit_hard(stats().counted_bytes + kMiB / 4);
    struct span *span = take(1, kPages / 2);
    EXPECT_NE(span, nullptr);
    pages_limit_hard(0);
    pages_give(first);
    if (span)
        pages_give(span);
}

} // namespace shards_test
