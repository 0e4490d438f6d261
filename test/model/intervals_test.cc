// Random operations while the clock is under the test's control. Each look of the library at the
// clock may end a decay interval, so all work that is due by age happens at every place where the
// library looks: in the middle of a malloc, of a free, of a refill. The shadow model checks all
// blocks. CAIRN_MODEL_SEED=n runs seed n instead of the fresh one.
//
// The linker redirects the library's calls of os_now_ms and os_now_us to this file (--wrap).

#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include <atomic>
#include <chrono>

#include "model/threads.h"

extern "C" {
#include "heap/heap.h"
#include "heap/refill.h"

uint64_t __wrap_os_now_ms(void);
uint64_t __wrap_os_now_us(void);
}

namespace
{

using model::kKiB;
using model::kMiB;
using model::Lanes;
using model::Shadow;

constexpr uint64_t kIntervalMs = 1001; // with the usual decay_ms
std::atomic<uint64_t> g_now{1000000};
std::atomic<uint64_t> g_looks;
std::atomic<uint64_t> g_ends{64}; // one look in this number ends an interval

uint64_t look()
{
    const uint64_t number = g_looks.fetch_add(1, std::memory_order_relaxed);
    const uint64_t random = model::mix(number);
    const bool ends = random % g_ends.load(std::memory_order_relaxed) == 0;
    return g_now.fetch_add(ends ? kIntervalMs : random >> 32 & 1, std::memory_order_relaxed);
}

uint64_t fresh_seed()
{
    const char *wanted = getenv("CAIRN_MODEL_SEED");
    if (wanted)
        return strtoull(wanted, nullptr, 10);
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1000 + static_cast<uint64_t>(now.tv_nsec) / 1000000;
}

// Verifies all heaps.
// Threads: no other thread runs.
void verify_everything()
{
    heap_verify_all();
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        heap_verify(heap);
}

// A thread's heap works, grows, shrinks to a few blocks or none, goes through small bursts, and
// serves cycles of one size, in a random order.
void live(Shadow &shadow)
{
    const size_t few = shadow.random().below(20);
    switch (shadow.random().below(8)) {
    case 0:
    case 1:
        shadow.run(1 + shadow.random().below(100));
        break;
    case 2:
        shadow.grow_to(shadow.random().below(3000));
        break;
    case 3:
        shadow.shrink_to(few);
        break;
    case 4:
        for (size_t burst = 0; burst < 50; burst++) {
            shadow.shrink_to(few);
            shadow.grow_to(few + shadow.random().below(200));
        }
        shadow.shrink_to(few);
        break;
    default:
        shadow.cycle(1 + shadow.random().below(200));
    }
}

void run_alone(uint64_t seed, size_t most_blocks, size_t least, size_t most)
{
    printf("seed %llu\n", static_cast<unsigned long long>(seed));
    fflush(stdout); // so that the seed is printed if the heap aborts
    g_looks = seed << 20;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4);
    Shadow shadow(seed, most_blocks, 64 * kMiB);
    shadow.prefer(least, most);
    for (int round = 0; round < 3000 && std::chrono::steady_clock::now() < end; round++) {
        if (round % 32 == 0)
            g_ends = uint64_t{1} << shadow.random().below(16);
        live(shadow);
        if (config_debug && round % 16 == 0)
            heap_verify_all();
    }
    EXPECT_GT(g_looks, seed << 20) << "the library does not use the test's clock";
    shadow.check_all();
    shadow.release_all();
    heap_verify_all();
    EXPECT_EQ(cairn_mallinfo2().uordblks, 0u) << "seed " << seed;
    EXPECT_EQ(cairn_mallinfo2().hblkhd, 0u) << "seed " << seed;
}

TEST(Intervals, SmallBlocks) { run_alone(1, 600, 1, kKiB); }

TEST(Intervals, MediumBlocks) { run_alone(2, 3000, kKiB, 33 * kKiB); }

// Slabs become empty all the time.
TEST(Intervals, FewMediumBlocks) { run_alone(3, 30, kKiB, 33 * kKiB); }

TEST(Intervals, RunsOfPages) { run_alone(4, 400, 33 * kKiB, kMiB); }

TEST(Intervals, FreshSeed)
{
    const uint64_t seed = fresh_seed();
    run_alone(seed, 10 + seed % 100, kKiB, 40 * kKiB);
}

// Heaps of several threads, which free each other's blocks, end, and are adopted.
void run_together(uint64_t seed, uint64_t ends, size_t least, size_t most)
{
    g_looks = seed << 20;
    g_ends = ends;
    Lanes lanes(seed, 6, 200, 8 * kMiB, 4);
    lanes.prefer(least, most);
    lanes.start(200, 400);
    lanes.join();
    Shadow all(seed, 1 << 16, SIZE_MAX);
    lanes.collect(all);
    verify_everything();
    all.check_all();
    all.release_all();
    cairn_malloc_trim(0);
    verify_everything();
    EXPECT_EQ(cairn_mallinfo2().uordblks, 0u) << "seed " << seed;
    EXPECT_EQ(cairn_mallinfo2().hblkhd, 0u) << "seed " << seed;
}

TEST(IntervalsTogether, OftenWithMediumBlocks) { run_together(21, 2, kKiB, 33 * kKiB); }

TEST(IntervalsTogether, NowAndThenWithMediumBlocks) { run_together(22, 200, kKiB, 33 * kKiB); }

TEST(IntervalsTogether, OftenWithRunsOfPages) { run_together(23, 4, 33 * kKiB, 400 * kKiB); }

TEST(IntervalsTogether, FreshSeed) { run_together(fresh_seed(), 32, 1, 64 * kKiB); }

} // namespace

uint64_t __wrap_os_now_ms(void) { return look(); }

uint64_t __wrap_os_now_us(void) { return look() * 1000; }
