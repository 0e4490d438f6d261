// The samples of the profiler: which blocks are reported to it, and that their frees are. Each case
// needs a process of its own (ctest runs each alone), since the profiler is the process's.

#include <errno.h>
#include <fenv.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "heap/heap_layer.h"

extern "C" {
#include "os/memory.h"
}

namespace profiling_test
{

using heap_layer::allocate;
using heap_layer::churn;
using heap_layer::in_thread;
using heap_layer::kKiB;
using heap_layer::own_heap;
using heap_layer::span_of;

struct Sample {
    size_t asked, size;
};
size_t g_samples;
std::map<size_t, size_t> g_by_size; // samples by requested size
std::map<void *, Sample> g_live;
size_t g_unknown; // frees of blocks that were no samples

bool allocated(void *block, size_t asked, size_t size)
{
    g_samples++;
    g_by_size[asked]++;
    EXPECT_TRUE(g_live.insert({block, {asked, size}}).second) << "the block is a sample already";
    return true;
}
void freed(void *block) { g_unknown += g_live.erase(block) == 0; }

void renamed(void *from, void *to)
{
    if (auto sample = g_live.extract(from)) {
        sample.key() = to;
        g_live.insert(std::move(sample));
    } else {
        g_unknown++;
    }
}

const struct heap_profiler g_profiler = {allocated, freed, renamed};

// Starts the profiler. The maps allocate by the malloc of the test program, not by the heap under
// test.
void start(uint64_t interval, uint64_t seed = 1)
{
    own_heap();
    heap_profile_start(&g_profiler, interval, seed);
    free_fast(heap_allocate_aligned(100, 64)); // the heap follows
    free_fast(allocate(2000));
    g_samples = 0;
    g_by_size.clear();
}

double chance(size_t size, double interval)
{
    return 1 - exp(-static_cast<double>(size) / interval);
}

// The number of samples among `count` blocks is binomial.
void expect_within_3_sigma(size_t seen, size_t count, double p, const char *what, size_t size)
{
    const double mean = static_cast<double>(count) * p;
    const double sigma = sqrt(mean * (1 - p)) + 1e-9;
    EXPECT_LE(fabs(static_cast<double>(seen) - mean), 3 * sigma + 1)
        << what << " of " << size << " bytes: " << seen << " samples, not " << mean;
}

size_t rounded(size_t size)
{
    void *block = allocate(size);
    const size_t bytes = heap_layer::block_bytes(block);
    free_fast(block);
    return bytes;
}

TEST(Profiling, IsOffByItself)
{
    EXPECT_FALSE(heap_is_hooked());
    for (int i = 0; i < 100000; i++)
        free_fast(allocate(100));
    EXPECT_EQ(g_samples, 0u);
    EXPECT_EQ(own_heap()->profiling, nullptr);
}

TEST(Profiling, EveryBlockAtAnIntervalOfOne)
{
    start(1);
    std::vector<void *> blocks;
    for (size_t size = config_zero_size_blocks; size <= 3u << 20; size = size * 5 / 4 + 1) {
        for (int i = 0; i < 3; i++)
            blocks.push_back(allocate(size));
        EXPECT_EQ(g_by_size[size], 3u) << size;
    }
    EXPECT_EQ(g_live.size(), blocks.size());
    for (void *block : blocks) {
        ASSERT_EQ(g_live.count(block), 1u);
        EXPECT_EQ(g_live[block].size, heap_layer::block_bytes(block));
        free_fast(block);
    }
    EXPECT_EQ(g_live.size(), 0u);
    EXPECT_EQ(g_unknown, 0u);
    heap_layer::verify();
}

// Each size in each way of use; the deviations of all together are also those of a normal
// distribution.
TEST(Profiling, SamplesAreUnbiasedFrom16BytesTo1MiB)
{
    constexpr double kInterval = 64 * 1024;
    double squares = 0;
    int experiments = 0;
    for (const uint64_t seed : {1, 2, 3, 4, 5, 6}) {
        start(static_cast<uint64_t>(kInterval), seed * 1000003);
        for (size_t size = 16; size <= 1024 * kKiB; size = size * 7 / 3) {
            const double p = chance(rounded(size), kInterval);
            const size_t count =
                static_cast<size_t>(smaller_of(static_cast<size_t>(100 / p), 200000)) + 100;
            for (const size_t live : {size_t{1}, size_t{30}, size_t{700}}) {
                if (live * size > 16u << 20)
                    continue;
                const size_t before = g_by_size[size];
                churn(count, live, size);
                const double mean = static_cast<double>(count) * p;
                const double seen = static_cast<double>(g_by_size[size] - before);
                const double variance = mean * (1 - p);
                if (variance < 3)
                    continue;
                const double deviation = (seen - mean) / sqrt(variance);
                EXPECT_LE(fabs(deviation), 4.5) << size << " " << live << " seed " << seed;
                squares += deviation * deviation;
                experiments++;
            }
        }
    }
    ASSERT_GT(experiments, 100);
    const double spread = squares / experiments; // 1, with a variance of 2 / experiments
    EXPECT_LE(fabs(spread - 1), 3 * sqrt(2.0 / experiments)) << experiments << " experiments";
    EXPECT_EQ(g_live.size(), 0u);
    heap_layer::verify();
}

// Sums over many seeds reveal a small bias.
TEST(Profiling, SumsOverManySeedsAreWithin3Sigma)
{
    constexpr double kInterval = 16 * 1024;
    for (const size_t size : {16, 40, 100, 333, 1024, 3000, 20000, 100000}) {
        const double p = chance(rounded(size), kInterval);
        size_t seen = 0, count = 0;
        for (uint64_t seed = 1; seed <= 200; seed++) {
            start(static_cast<uint64_t>(kInterval), seed * 77777);
            const size_t blocks = static_cast<size_t>(3 / p) + 50;
            churn(blocks, 1 + seed % 40, size);
            seen += g_by_size[size];
            count += blocks;
        }
        expect_within_3_sigma(seen, count, p, "blocks", size);
    }
}

// A site gets its own share of the samples, at any place in a rhythm.
TEST(Profiling, ARhythmHidesNothing)
{
    start(4096);
    std::map<size_t, size_t> counts;
    for (unsigned i = 0; i < 300000; i++) {
        const size_t size = 97 + i % 15; // one class
        counts[size]++;
        free_fast(allocate(size));
    }
    for (const auto &[size, count] : counts)
        expect_within_3_sigma(g_by_size[size], count, chance(rounded(size), 4096), "rhythm", size);
}

TEST(Profiling, BlocksThatStayAndRemoteFrees)
{
    start(4096);
    std::vector<void *> blocks;
    for (int i = 0; i < 100000; i++)
        blocks.push_back(allocate(48));
    const size_t live = g_live.size();
    EXPECT_EQ(live, g_samples);
    expect_within_3_sigma(live, 100000, chance(rounded(48), 4096), "live blocks", 48);
    in_thread([&] {
        for (void *block : blocks)
            free_fast(block);
    });
    EXPECT_EQ(g_live.size(), 0u);
    EXPECT_EQ(g_unknown, 0u);
    churn(100000, 500, 48); // collects them
    heap_layer::verify();
}

// Other threads free blocks of this one: the slots return by the mailbox.
TEST(Profiling, CollectedSlotsAreCounted)
{
    start(8192);
    constexpr size_t kRounds = 300, kBlocks = 400;
    for (size_t round = 0; round < kRounds; round++) {
        std::vector<void *> blocks;
        for (size_t i = 0; i < kBlocks; i++)
            blocks.push_back(allocate(64));
        if (round % 10 == 0)
            in_thread([&] {
                for (void *block : blocks)
                    free_fast(block);
            });
        else
            for (void *block : blocks)
                free_fast(block);
        if (round % 50 == 0)
            (void)heap_release(0);
    }
    expect_within_3_sigma(g_by_size[64], kRounds * kBlocks, chance(rounded(64), 8192), "blocks",
                          64);
    EXPECT_EQ(g_live.size(), 0u);
}

TEST(Profiling, AlignedZeroedAndResizedBlocks)
{
    start(1);
    char *block = static_cast<char *>(heap_allocate_aligned(100, 256));
    EXPECT_EQ(g_live.count(block), 1u);
    heap_free_sized(block, 100, 256);
    EXPECT_EQ(g_live.size(), 0u);
    block = static_cast<char *>(heap_allocate_zeroed(300));
    EXPECT_EQ(g_live.count(block), 1u);
    for (size_t size = 310; size < 5u << 20; size = size * 3 / 2) {
        block = static_cast<char *>(heap_resize(block, size));
        EXPECT_EQ(g_live.size(), 1u) << size;
        ASSERT_EQ(g_live.count(block), 1u) << size;
        EXPECT_GE(heap_usable_size(block), size);
        if (size > 40000 && span_of(block)->tag == SPAN_LARGE) {
            EXPECT_EQ(g_live[block].size, heap_layer::block_bytes(block)) << size;
        }
    }
    block = static_cast<char *>(heap_resize(block, 100));
    EXPECT_EQ(g_live.size(), 1u);
    free_fast(block);
    EXPECT_EQ(g_live.size(), 0u);
    EXPECT_EQ(g_unknown, 0u);
}

TEST(Profiling, ALargeSampleWhoseReallocFailsStaysOne)
{
    start(1);
    for (const size_t bytes : {200 * kKiB, 40 * 1024 * kKiB}) {
        void *block = allocate(bytes);
        const Sample sample = g_live.at(block);
        EXPECT_EQ(heap_resize(block, size_t{1} << 46), nullptr);
        ASSERT_EQ(g_live.count(block), 1u) << bytes;
        EXPECT_EQ(g_live[block].size, sample.size);
        EXPECT_EQ(g_live[block].asked, sample.asked);
        free_fast(block);
        EXPECT_EQ(g_live.size(), 0u);
    }
    EXPECT_EQ(g_samples, 2u) << "no new samples";
    EXPECT_EQ(g_unknown, 0u);
}

TEST(Profiling, ALargeSampleResizedInPlaceIsOneOfItsNewSize)
{
    start(1);
    void *block = allocate(800 * kKiB);
    if (!heap_resize_in_place(block, 200 * kKiB))
        GTEST_SKIP() << "no block of this build shrinks in place";
    ASSERT_EQ(g_live.count(block), 1u);
    EXPECT_EQ(g_live[block].asked, 200 * kKiB);
    EXPECT_EQ(g_live[block].size, heap_layer::block_bytes(block));
    free_fast(block);
    EXPECT_EQ(g_live.size(), 0u);
    EXPECT_EQ(g_unknown, 0u);
}

#ifdef __x86_64__ // other processors need not be able to trap
TEST(Profiling, AProgramThatTrapsOnInexactNumbersGoesOn)
{
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        feenableexcept(FE_INEXACT | FE_UNDERFLOW | FE_OVERFLOW | FE_DIVBYZERO | FE_INVALID);
        start(100);
        for (size_t i = 0; i < 3000; i++)
            free_fast(allocate(16 + i * 100));
        _exit(g_samples > 0 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}
#endif

TEST(Profiling, SamplesAreLiveBlocksToStatisticsAndChecks)
{
    const heap_stats before = heap_layer::stats();
    start(1);
    void *block = allocate(100);
    EXPECT_EQ(heap_layer::stats().live_blocks, before.live_blocks + 1);
    EXPECT_GE(heap_usable_size(block), 100u);
    EXPECT_DEATH(free_fast(static_cast<char *>(block) + 16), "free of interior pointer");
    EXPECT_DEATH(
        {
            free_fast(block);
            free_fast(block);
        },
        "double free of");
    EXPECT_DEATH(
        {
            in_thread([&] { free_fast(block); });
            in_thread([&] { free_fast(block); });
        },
        "double free of");
    EXPECT_DEATH(heap_free_sized(block, 300, 1), "sized free of");
    free_fast(block);
}

TEST(Profiling, TheFastPathComesBack)
{
    start(512 * kKiB);
    size_t slow = 0;
    for (int i = 0; i < 1000000; i++) {
        slow += thread_heap->small_class[100] == CLASS_COUNT;
        free_fast(allocate(100));
    }
    EXPECT_LT(slow, 100000u);
    EXPECT_GT(g_samples, 0u);
    heap_profile_stop();
    churn(1000, 1000, 100);
    churn(1000, 1, 100);
    EXPECT_NE(thread_heap->small_class[100], CLASS_COUNT);
    EXPECT_EQ(thread_heap->profiling->diverted, 0u);
    heap_layer::verify();
}

TEST(Profiling, StartedAgainItDrawsAnew)
{
    start(1);
    void *kept = allocate(100);
    heap_profile_stop();
    free_fast(allocate(100));
    const size_t samples = g_samples;
    churn(10000, 100, 100);
    EXPECT_EQ(g_samples, samples);
    start(4096, 5);
    churn(100000, 100, 100);
    expect_within_3_sigma(g_by_size[100], 100000, chance(rounded(100), 4096), "blocks", 100);
    EXPECT_EQ(g_live.count(kept), 1u);
    free_fast(kept);
    EXPECT_EQ(g_live.size(), 0u);
}

TEST(Profiling, ThreadsThatEndLeaveTheirSamples)
{
    start(1);
    void *block = nullptr;
    in_thread([&] {
        block = allocate(200);
        free_fast(allocate(200000)); // the first block of a thread may be a large one
    });
    EXPECT_EQ(g_live.count(block), 1u);
    EXPECT_EQ(g_by_size[200000], 1u);
    free_fast(block);
    EXPECT_EQ(g_live.size(), 0u);
}

// A guarded block may be a sample at the same time.
void *g_guarded;
void *offer(size_t, size_t)
{
    void *block = g_guarded;
    g_guarded = nullptr;
    return block;
}
void take_back(void *, struct span *) {}
bool check(const void *, const struct span *, const char *) { return true; }
void count_none(size_t *blocks, size_t *bytes) { *blocks = *bytes = 0; }

TEST(Profiling, GuardedBlocksAreCountedToo)
{
    static struct heap_guard guard = {1, offer, take_back, check, count_none};
    static struct span span = {};
    own_heap();
    heap_set_guard(&guard);
    start(1);
    char *page = static_cast<char *>(os_map(os_page_size()));
    ASSERT_EQ(page_map_cover(page, os_page_size()), 0);
    span.tag = SPAN_GUARDED;
    span.base = page;
    span.size_bytes = 100;
    page_map_set(page, 1, &span);
    g_guarded = page;
    EXPECT_EQ(allocate(100), page);
    EXPECT_EQ(g_live.count(page), 1u);
    free_fast(page);
    EXPECT_EQ(g_live.size(), 0u);
    start(4096);
    churn(50000, 50, 100);
    expect_within_3_sigma(g_by_size[100], 50000, chance(rounded(100), 4096), "blocks", 100);
}

} // namespace profiling_test
