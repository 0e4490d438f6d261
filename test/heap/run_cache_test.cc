// Kept runs: short ones by their length, long ones that come and go, slabs of their class; within a
// budget, taken by any thread, released when old. Each case needs a process of its own, since free
// pages of one case serve the next.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "heap/heap_layer.h"

extern "C" {
#include "heap/harden.h"
#include "os/memory.h"
}

namespace run_cache_test
{

using heap_layer::kKiB;

class RunCache : public testing::Test
{
  protected:
    void SetUp() override
    {
        heap_layer::own_heap();
        (void)heaps_empty_run_caches();
    }
    void TearDown() override
    {
        (void)heaps_empty_run_caches();
        pages_verify();
    }

    static struct span *run(size_t pages) { return pages_take(pages, PAGE_BYTES); }

    struct run_cache cache_ = {};
};

// Takes a kept run of one of these lengths.
struct span *take(struct run_cache *cache, size_t pages)
{
    return run_cache_take(cache, pages, PAGE_BYTES);
}

TEST_F(RunCache, LengthsAreEightADoubling)
{
    size_t numbers = 0;
    for (size_t pages = 1; pages <= RUN_CACHE_SHORT_PAGES; pages++) {
        const size_t rounded = run_round(pages);
        EXPECT_GE(rounded, pages);
        EXPECT_LE(rounded - pages, pages / 8) << pages;
        EXPECT_EQ(run_round(rounded), rounded);
        EXPECT_EQ(run_length(pages), run_length(rounded));
        if (rounded == pages) {
            EXPECT_EQ(run_length(pages), numbers++) << pages;
        }
    }
    EXPECT_EQ(numbers, size_t{RUN_LENGTHS});
    EXPECT_EQ(run_round(RUN_CACHE_SHORT_PAGES + 1), size_t{RUN_CACHE_SHORT_PAGES + 1});
}

TEST_F(RunCache, ARunServesItsOwnLengthAndTheNextShorterOne)
{
    struct span *span = run(18);
    ASSERT_NE(span, nullptr);
    (void)run_cache_put(&cache_, span);
    EXPECT_EQ(span->tag, SPAN_KEPT);
    EXPECT_EQ(take(&cache_, 15), nullptr);
    EXPECT_EQ(take(&cache_, 20), nullptr);
    EXPECT_EQ(take(&cache_, 18), span);
    EXPECT_EQ(span->tag, SPAN_LARGE);
    EXPECT_EQ(take(&cache_, 18), nullptr);
    (void)run_cache_put(&cache_, span);
    EXPECT_EQ(take(&cache_, 16), span);
    EXPECT_EQ(span->pages, 18u);
    pages_give(span);
}

// Half of a run of two pages would be unused.
TEST_F(RunCache, TheShortestRunsServeTheirOwnLengthOnly)
{
    for (size_t pages = 2; pages <= RUN_EXACT_PAGES + 1; pages++) {
        struct span *span = run(pages);
        (void)run_cache_put(&cache_, span);
        EXPECT_EQ(take(&cache_, pages - 1), nullptr) << pages;
        EXPECT_EQ(take(&cache_, pages), span) << pages;
        pages_give(span);
    }
}

TEST_F(RunCache, AnAlignedRequestTakesOnlyARunThatIsAligned)
{
    constexpr size_t kAlignment = 16 * PAGE_BYTES;
    struct span *span = pages_take(12, kAlignment);
    struct span *odd = pages_take(13, kAlignment); // its front is cut off below
    ASSERT_TRUE(span && odd);
    (void)run_cache_put(&cache_, span);
    EXPECT_EQ(run_cache_take(&cache_, 12, kAlignment), span);
    span->base += PAGE_BYTES;
    (void)run_cache_put(&cache_, span);
    EXPECT_EQ(run_cache_take(&cache_, 12, kAlignment), nullptr);
    EXPECT_EQ(take(&cache_, 12), span);
    span->base -= PAGE_BYTES;
    pages_give(span);
    pages_give(odd);
}

TEST_F(RunCache, RunsOfALengthAreAListLastInFirstOut)
{
    const size_t length = run_length(10);
    struct span *first = run(10), *second = run(10);
    EXPECT_FALSE(run_cache_keep_short(&cache_, first, first->base)) << "the budget is not known";
    EXPECT_EQ(first->tag, SPAN_LARGE);
    (void)run_cache_put(&cache_, first);
    EXPECT_EQ(run_cache_take_first(&cache_, length), first);
    EXPECT_EQ(first->tag, SPAN_LARGE);
    EXPECT_EQ(run_cache_guess(&cache_, first), first) << "the run that was taken last";
    EXPECT_EQ(run_cache_guess(&cache_, second), second);
    EXPECT_EQ(run_cache_take_first(&cache_, length), nullptr);
    EXPECT_TRUE(run_cache_keep_short(&cache_, first, first->base));
    EXPECT_EQ(first->tag, SPAN_KEPT);
    (void)run_cache_put(&cache_, second);
    EXPECT_EQ(run_cache_kept_pages(&cache_), 20u);
    EXPECT_EQ(take(&cache_, 10), second);
    EXPECT_TRUE(run_cache_keep_short(&cache_, second, second->base));
    EXPECT_EQ(run_cache_take_first(&cache_, length), second);
    EXPECT_EQ(run_cache_take_first(&cache_, length), first);
    EXPECT_EQ(run_cache_take_first(&cache_, length), nullptr);
    EXPECT_EQ(run_cache_kept_pages(&cache_), 0u);
    (void)run_cache_put(&cache_, first);
    (void)run_cache_put(&cache_, second);
    EXPECT_TRUE(run_cache_empty(&cache_));
    EXPECT_EQ(first->tag, SPAN_FREE);
    EXPECT_EQ(run_cache_take_first(&cache_, length), nullptr);
    EXPECT_EQ(run_cache_kept_pages(&cache_), 0u);
}

// Slabs and short runs have one budget; another thread may give them away.
TEST_F(RunCache, AllThatIsKeptIsBounded)
{
    (void)heap_layer::own_heap();
    size_t longest = 0;
    for (unsigned i = 0; i < SIZED_CLASSES; i++) {
        struct span *slab = slab_take(i);
        ASSERT_NE(slab, nullptr);
        store_relaxed(&slab->fresh_slot, uint64_t{slab->capacity} + 1);
        if (!run_cache_put_slab(&cache_, slab))
            slab_retire(slab);
    }
    EXPECT_GT(run_cache_kept_pages(&cache_), size_t{RUN_CACHE_PAGES} / 8);
    for (size_t pages = RUN_CACHE_SHORT_PAGES; pages > RUN_EXACT_PAGES; pages--)
        for (int i = 0; i < 3; i++) {
            (void)run_cache_put(&cache_, run(run_round(pages)));
            longest = std::max(longest, run_cache_kept_pages(&cache_));
            ASSERT_LE(run_cache_kept_pages(&cache_), size_t{RUN_CACHE_PAGES});
        }
    EXPECT_GT(longest, size_t{RUN_CACHE_PAGES} - RUN_CACHE_SHORT_PAGES);
    std::thread([this] { EXPECT_TRUE(run_cache_empty(&cache_)); }).join();
    EXPECT_EQ(run_cache_kept_pages(&cache_), 0u);
    (void)run_cache_put(&cache_, run(10));
    EXPECT_EQ(run_cache_kept_pages(&cache_), 10u) << "there is room again";
    EXPECT_TRUE(run_cache_empty(&cache_));
}

TEST_F(RunCache, UnderPressureNothingIsKept)
{
    struct span *span = run(10);
    (void)run_cache_put(&cache_, span);
    ASSERT_EQ(take(&cache_, 10), span);
    pages_press(true);
    EXPECT_TRUE(run_cache_put(&cache_, run(12)));
    EXPECT_FALSE(run_cache_keep_short(&cache_, span, span->base));
    pages_press(false);
    EXPECT_FALSE(run_cache_empty(&cache_));
    pages_give(span);
}

TEST_F(RunCache, LongerRunsAreNotKept)
{
    for (size_t pages : {RUN_CACHE_SHORT_PAGES + 1, 300, 1000}) {
        EXPECT_TRUE(run_cache_put(&cache_, run(pages)));
        EXPECT_EQ(take(&cache_, pages), nullptr);
    }
    EXPECT_FALSE(run_cache_empty(&cache_));
}

TEST_F(RunCache, ALowCapOnFreeMemoryHolds)
{
    const page_limits limits = heap_layer::limits();
    page_limits low = limits;
    low.dirty_cap_bytes = 256 << 10;
    pages_configure(&low);
    EXPECT_TRUE(run_cache_put(&cache_, run(RUN_CACHE_SHORT_PAGES)));
    EXPECT_FALSE(run_cache_empty(&cache_));
    pages_configure(&limits);
}

// The more threads there are, the less each of them keeps.
TEST_F(RunCache, AllThreadsTogetherAreBounded)
{
    constexpr ptrdiff_t kThreads = 100;
    std::vector<run_cache> caches(kThreads);
    run_caches_add(kThreads);
    size_t kept = 0;
    for (run_cache &cache : caches) {
        for (size_t pages = RUN_CACHE_SHORT_PAGES; pages > RUN_EXACT_PAGES; pages--)
            (void)run_cache_put(&cache, run(run_round(pages)));
        kept += run_cache_kept_pages(&cache);
    }
    EXPECT_LE(kept * PAGE_BYTES, heap_layer::limits().dirty_cap_bytes / 2);
    EXPECT_GE(kept * PAGE_BYTES, heap_layer::limits().dirty_cap_bytes / 4);
    run_caches_add(-kThreads);
    const size_t before = run_cache_kept_pages(&caches[0]);
    run_cache_count_room(&caches[0]);
    (void)run_cache_put(&caches[0], run(RUN_CACHE_SHORT_PAGES));
    EXPECT_EQ(run_cache_kept_pages(&caches[0]), before + RUN_CACHE_SHORT_PAGES)
        << "the shares of the others are free";
    for (run_cache &cache : caches)
        (void)run_cache_empty(&cache);
}

TEST_F(RunCache, ACycleOfLargeBlocksIsOneBlockHoweverItIsAskedFor)
{
    if (config_guarded_blocks)
        GTEST_SKIP() << "large blocks are mappings";
    for (size_t size : {40 * kKiB, 100 * kKiB, 256 * kKiB}) {
        for (int i = 0; i < 6; i++)
            free_fast(malloc_slow(size));
        void *block = malloc_slow(size);
        memset(block, 0x5a, size);
        free_fast(block);
        EXPECT_EQ(heap_layer::span_of(block)->tag, SPAN_KEPT) << size;
        EXPECT_EQ(heap_allocate_aligned(size, PAGE_BYTES), block);
        free_fast(block);
        auto *zeroed = static_cast<unsigned char *>(heap_allocate_zeroed(size));
        EXPECT_EQ(zeroed, block);
        for (size_t i = 0; i < size; i++)
            ASSERT_EQ(zeroed[i], 0) << i << " of " << size;
        free_fast(zeroed);
    }
}

TEST_F(RunCache, AThreadThatHasOnlyLargeBlocksKeepsThem)
{
    if (config_guarded_blocks)
        GTEST_SKIP() << "large blocks are mappings";
    std::thread([] {
        void *block = malloc_slow(100 * kKiB);
        free_fast(block);
        EXPECT_EQ(heap_layer::span_of(block)->tag, SPAN_KEPT);
        EXPECT_EQ(malloc_slow(100 * kKiB), block);
        free_fast(block);
    }).join();
}

TEST_F(RunCache, TheSecondAgingGivesARunBackUnlessItWasUsed)
{
    (void)run_cache_put(&cache_, run(10));
    run_cache_age(&cache_);
    struct span *span = take(&cache_, 10);
    ASSERT_NE(span, nullptr) << "a single ageing released the run";
    (void)run_cache_put(&cache_, span);
    run_cache_age(&cache_);
    run_cache_age(&cache_);
    EXPECT_EQ(take(&cache_, 10), nullptr);
}

// A place that was empty since the aging before has only runs that the thread needs now and then.
TEST_F(RunCache, AListGrowsOldUnlessItWasEmpty)
{
    struct span *first = run(10), *second = run(10);
    (void)run_cache_put(&cache_, first);
    (void)run_cache_put(&cache_, second);
    run_cache_age(&cache_);
    EXPECT_EQ(take(&cache_, 10), second);
    EXPECT_EQ(take(&cache_, 10), first);
    (void)run_cache_put(&cache_, first);
    (void)run_cache_put(&cache_, second);
    run_cache_age(&cache_);
    EXPECT_EQ(run_cache_kept_pages(&cache_), 20u) << "the place was empty";
    EXPECT_EQ(take(&cache_, 10), second);
    (void)run_cache_put(&cache_, second);
    run_cache_age(&cache_);
    EXPECT_EQ(run_cache_kept_pages(&cache_), 0u) << "the first run was not needed";
}

TEST_F(RunCache, NowAndThenItIsTimeToLookForWhatIsOld)
{
    int times = 0;
    for (int i = 0; i < 10 * RUN_CACHE_TURNS; i++) {
        struct span *span = i == 0 ? run(10) : take(&cache_, 10);
        times += run_cache_put(&cache_, span);
    }
    EXPECT_EQ(times, 10);
    for (int i = 0; i < 10 * RUN_CACHE_TURNS; i++) { // on the short path
        struct span *span = run_cache_take_first(&cache_, run_length(10));
        ASSERT_NE(span, nullptr);
        if (!run_cache_keep_short(&cache_, span, span->base))
            times += run_cache_put(&cache_, span);
    }
    EXPECT_EQ(times, 20);
}

// A run that is not kept is counted, too, so that the count never passes 0.
TEST_F(RunCache, ItIsTimeToLookAfterRunsThatWereNotKept)
{
    (void)run_cache_put(&cache_, run(10));
    ASSERT_GE(cache_.room_pages, 12);
    cache_.turns = 1;
    pages_press(true);
    struct span *given = run(12);
    EXPECT_FALSE(run_cache_keep_short(&cache_, given, given->base));
    EXPECT_TRUE(run_cache_put(&cache_, given));
    pages_press(false);
    int looks = 0;
    for (int i = 0; i < RUN_CACHE_TURNS; i++) {
        struct span *span = i == 0 ? run(10) : run_cache_take_first(&cache_, run_length(10));
        if (!run_cache_keep_short(&cache_, span, span->base))
            looks += run_cache_put(&cache_, span);
    }
    EXPECT_EQ(looks, 1);
}

TEST_F(RunCache, AFreedLargeBlockIsTheNextOneAndCountsAsFree)
{
    if (config_guarded_blocks)
        GTEST_SKIP() << "large blocks are mappings";
    void *block = malloc_slow(100 * kKiB);
    memset(block, 0x5a, 100 * kKiB);
    free_fast(block);
    EXPECT_EQ(heap_layer::stats().large_blocks, 0u);
    EXPECT_EQ(malloc_slow(100 * kKiB), block);
    free_fast(block);
    auto *zeroed = static_cast<unsigned char *>(heap_allocate_zeroed(100 * kKiB));
    for (size_t i = 0; i < 100 * kKiB; i++)
        ASSERT_EQ(zeroed[i], 0) << i;
    free_fast(zeroed);
}

TEST_F(RunCache, TrimReachesTheCacheOfAnIdleThread)
{
    if (config_guarded_blocks)
        GTEST_SKIP() << "large blocks are mappings";
    free_fast(malloc_slow(200 * kKiB));
    std::thread([] { EXPECT_TRUE(heaps_empty_run_caches()); }).join();
    EXPECT_FALSE(heaps_empty_run_caches());
}

size_t used_bytes()
{
    page_stats stats = {};
    pages_read_stats(&stats);
    return stats.committed_bytes - stats.free_bytes;
}

// Each owner replaces blocks of two lengths, while another thread ages and empties their caches.
TEST_F(RunCache, ListsLoseNoRunWhileOthersTakeThem)
{
    constexpr unsigned kOwners = 2, kHeld = 8, kRounds = 100000;
    const size_t before = used_bytes();
    std::vector<run_cache> caches(kOwners);
    std::atomic<unsigned> running{kOwners};
    std::vector<std::thread> owners;
    for (unsigned owner = 0; owner < kOwners; owner++)
        owners.emplace_back([owner, &caches, &running] {
            struct span *held[kHeld] = {};
            uint32_t drawn = owner + 1;
            for (unsigned round = 0; round < kRounds && !HasFailure(); round++) {
                drawn = drawn * 1664525 + 1013904223;
                struct span *&span = held[drawn >> 29];
                if (span) {
                    EXPECT_EQ(*reinterpret_cast<struct span ***>(span->base), &span);
                    (void)run_cache_put(&caches[owner], span);
                }
                const size_t pages = 10 + (drawn >> 20) % 2;
                span = take(&caches[owner], pages);
                if (span == nullptr)
                    span = run(pages);
                *reinterpret_cast<struct span ***>(span->base) = &span;
            }
            for (struct span *span : held)
                if (span)
                    pages_give(span);
            running--;
        });
    for (unsigned turn = 0; running != 0; turn++)
        for (run_cache &cache : caches) {
            run_cache_age(&cache);
            if (turn % 8 == 0)
                (void)run_cache_empty(&cache);
            std::this_thread::yield();
        }
    for (std::thread &owner : owners)
        owner.join();
    for (run_cache &cache : caches) {
        (void)run_cache_empty(&cache);
        EXPECT_EQ(run_cache_kept_pages(&cache), 0u);
    }
    EXPECT_EQ(used_bytes(), before);
}

// A run that is taken leaves the others of its list where other threads see them.
TEST_F(RunCache, AnotherThreadFindsAllRunsButTheOneInUse)
{
    constexpr size_t kRuns = 30, kPages = 10;
    for (int round = 0; round < 300 && !HasFailure(); round++) {
        struct run_cache cache = {};
        struct span *runs[kRuns];
        for (struct span *&span : runs)
            span = run(kPages);
        for (struct span *span : runs)
            (void)run_cache_put(&cache, span);
        std::atomic<bool> begun{false}, emptied{false};
        std::thread owner([&cache, &begun, &emptied] {
            do {
                struct span *span = take(&cache, kPages);
                (void)run_cache_put(&cache, span ? span : run(kPages));
                begun = true;
            } while (!emptied);
        });
        while (!begun)
            std::this_thread::yield();
        (void)run_cache_empty(&cache);
        emptied = true;
        owner.join();
        EXPECT_LE(run_cache_kept_pages(&cache), 2 * kPages);
        (void)run_cache_empty(&cache);
    }
}

// As in the child of a fork, while another thread was giving a list to the pages.
TEST_F(RunCache, ARecountFindsWhatIsStillKept)
{
    struct span *lost = run(12);
    (void)run_cache_put(&cache_, run(10));
    (void)run_cache_put(&cache_, run(10));
    (void)run_cache_put(&cache_, lost);
    store_relaxed(&cache_.places[run_length(12)], uintptr_t{0});
    EXPECT_EQ(run_cache_kept_pages(&cache_), 32u);
    run_cache_recount(&cache_);
    EXPECT_EQ(run_cache_kept_pages(&cache_), 20u);
    EXPECT_TRUE(run_cache_empty(&cache_));
    EXPECT_EQ(run_cache_kept_pages(&cache_), 0u);
    pages_give(lost);
}

TEST_F(RunCache, OwnersAndThievesNeverShareARun)
{
    constexpr int kThreads = 4, kRounds = 20000;
    std::vector<std::thread> owners;
    for (int i = 0; i < kThreads; i++)
        owners.emplace_back([i] {
            for (int round = 0; round < kRounds; round++) {
                auto *block = static_cast<volatile int *>(malloc_slow((40 + round % 3 * 4) * kKiB));
                *block = i;
                if (round % 16 == i)
                    (void)heaps_empty_run_caches();
                ASSERT_EQ(*block, i);
                free_fast(const_cast<int *>(block));
            }
        });
    for (std::thread &owner : owners)
        owner.join();
}

constexpr size_t kBlock = 3000; // a medium size

// Makes blocks of one class that fill two slabs.
std::vector<void *> two_slabs()
{
    std::vector<void *> blocks;
    for (unsigned i = 0; i < 2 * size_classes[class_of_size(kBlock)].capacity; i++)
        blocks.push_back(heap_layer::allocate(kBlock));
    return blocks;
}

// Frees the blocks, and empties the quarantine.
void free_all(const std::vector<void *> &blocks)
{
    for (void *block : blocks)
        free_fast(block);
    quarantine_flush(thread_heap);
}

bool is_kept(const struct span *slab)
{
    struct heap *heap = thread_heap;
    for (uintptr_t place : heap->runs.places)
        if ((place & ~uintptr_t{1}) == reinterpret_cast<uintptr_t>(slab))
            return true;
    return false;
}

TEST_F(RunCache, AnEmptiedSlabServesItsClassAgain)
{
    heap_trim(thread_heap);
    std::vector<void *> blocks = two_slabs();
    struct span *first = heap_layer::span_of(blocks.front());
    ASSERT_NE(first, heap_layer::span_of(blocks.back()));
    free_all(blocks);
    ASSERT_TRUE(is_kept(first));
    EXPECT_EQ(load_relaxed(&first->owner), 0u);
    heap_layer::verify();
    blocks = two_slabs();
    EXPECT_FALSE(is_kept(first));
    bool again = false;
    for (void *block : blocks) {
        again = again || heap_layer::span_of(block) == first;
        memset(block, 0x5a, kBlock);
    }
    EXPECT_TRUE(again);
    free_all(blocks);
    heap_layer::verify();
}

TEST_F(RunCache, TrimReachesTheSlabsOfAnIdleThread)
{
    std::vector<void *> blocks = two_slabs();
    struct span *first = heap_layer::span_of(blocks.front());
    free_all(blocks);
    ASSERT_TRUE(is_kept(first));
    std::thread([] { EXPECT_TRUE(heaps_empty_run_caches()); }).join();
    EXPECT_FALSE(is_kept(first));
    heap_layer::verify();
}

// The thread keeps the run of a large block.
class KeptRun : public RunCache
{
  protected:
    static constexpr size_t kBytes = 200 * kKiB;

    void SetUp() override
    {
        if (config_guarded_blocks)
            GTEST_SKIP() << "no runs are kept";
        RunCache::SetUp();
        keep();
        ASSERT_EQ(kept_->tag, SPAN_KEPT);
    }

    void keep()
    {
        void *block = malloc_slow(kBytes);
        kept_ = page_map_find(block);
        free_fast(block);
    }

    static size_t counted_bytes()
    {
        struct page_stats stats;
        pages_read_stats(&stats);
        return stats.counted_bytes;
    }

    struct span *kept_ = nullptr;
};

// Runs for other allocators can use kept runs only through this path.
TEST_F(KeptRun, AHardLimitTakesItForOtherAllocators)
{
    heap_release(0);
    keep();
    pages_limit_hard(counted_bytes() + 100 * kKiB);
    struct span *run = run_take(kBytes, PAGE_BYTES);
    pages_limit_hard(0);
    ASSERT_NE(run, nullptr);
    run_give(run);
}

TEST_F(KeptRun, ATakeAboveTheHardLimitLeavesItThere)
{
    const size_t limit = counted_bytes();
    pages_limit_hard(limit);
    EXPECT_EQ(run_take(limit + 1024 * kKiB, PAGE_BYTES), nullptr);
    pages_limit_hard(0);
    EXPECT_EQ(kept_->tag, SPAN_KEPT);
}

// No malloc empties the caches here: the page layer does so when it finds nothing.
TEST_F(KeptRun, ATakeThatWouldFailUsesIt)
{
    std::vector<struct span *> taken;
    do {
        taken.push_back(pages_take_free(large_pages(kBytes), PAGE_BYTES));
        ASSERT_NE(taken.back(), nullptr);
    } while (kept_->tag == SPAN_KEPT);
    for (struct span *span : taken)
        pages_give(span);
}

TEST(RunCacheDeathTest, ASecondFreeOfABlockInAKeptSlab)
{
    heap_layer::own_heap();
    std::vector<void *> blocks = two_slabs();
    free_all(blocks);
    ASSERT_TRUE(is_kept(heap_layer::span_of(blocks.front())));
    EXPECT_DEATH(free_fast(blocks.front()),
                 "cairn: double free of 0x[0-9a-f]+ \\([0-9]+-byte block\\)");
}

TEST(RunCacheDeathTest, ASecondFreeOfAKeptRun)
{
    void *block = heap_layer::own_heap() ? malloc_slow(100 * heap_layer::kKiB) : nullptr;
    free_fast(block);
    EXPECT_DEATH(free_fast(block), "cairn: double free of 0x[0-9a-f]+ \\(its memory is free\\)");
}

} // namespace run_cache_test
