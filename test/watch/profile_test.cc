// The profiler in a process. Each case needs a process of its own (ctest runs each alone), since
// the profiler is the process's.

#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <cmath>
#include <thread>

#include "watch/profile_kit.h"

extern "C" {
#include "os/process.h"
}

namespace profile_test
{

// The profiler in a process: its switch, stacks of samples, threads, forks and signals. Each case
// needs a process of its own (ctest runs each alone), since the profiler is the process's.

using namespace profile_kit;

no_inline void *allocate_here(size_t size)
{
    void *block = allocate(size);
    __asm__ volatile("" : : "r"(block) : "memory"); // no tail call
    return block;
}

TEST(Profile, IsOffByItself)
{
    EXPECT_FALSE(figures().is_on);
    EXPECT_EQ(figures().interval_bytes, 0u);
    EXPECT_EQ(profile_start(0, 0), -EINVAL);
    for (int i = 0; i < 10000; i++)
        free_fast(allocate(1000));
    EXPECT_EQ(figures().samples, 0u);
    EXPECT_EQ(profile_state.table, nullptr) << "there was no memory for the table";
}

TEST(Profile, SamplesComeAndGo)
{
    start_afresh(1);
    EXPECT_TRUE(figures().is_on);
    void *small = allocate_here(100);
    void *large = allocate_here(100000);
    EXPECT_EQ(figures().live_samples, 2u);
    const size_t large_bytes = size_t{page_map_find(large)->pages} << PAGE_SHIFT;
    EXPECT_GE(large_bytes, 100000u);
    EXPECT_EQ(figures().live_bytes, page_map_find(small)->size_bytes + large_bytes);
    free_fast(small);
    EXPECT_EQ(figures().live_samples, 1u);
    free_fast(large);
    EXPECT_EQ(figures().live_samples, 0u);
    EXPECT_EQ(figures().live_bytes, 0u);
    EXPECT_EQ(figures().samples, 2u);
}

TEST(Profile, StopKeepsWhatThereIsAndFollowsFrees)
{
    start_afresh(1);
    void *kept = allocate_here(100), *later = allocate_here(100);
    profile_stop();
    EXPECT_FALSE(figures().is_on);
    free_fast(allocate_here(100));
    EXPECT_EQ(figures().samples, 2u);
    free_fast(kept);
    EXPECT_EQ(figures().live_samples, 1u);
    profile_reset();
    EXPECT_EQ(figures().live_samples, 0u);
    free_fast(later);
    EXPECT_EQ(figures().live_bytes, 0u);
}

TEST(Profile, StacksTellSitesApart)
{
    if (sizeof(void *) == 8 && figures().sites == 0 && CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "the emulator's stacks cannot be walked everywhere";
    start_afresh(1);
    const uint64_t before = figures().sites;
    std::vector<void *> blocks;
    for (int i = 0; i < 10; i++)
        blocks.push_back(allocate_here(48));
    EXPECT_EQ(figures().sites, before + 1) << "one stack is one site";
    blocks.push_back(allocate_here(48));
    EXPECT_EQ(figures().sites, before + 2);
    for (void *block : blocks)
        free_fast(block);
}

TEST(Profile, EstimatesAreWithin3Sigma)
{
    start_afresh(16384, 12345);
    std::vector<void *> blocks;
    double variance = 0, bytes = 0;
    for (size_t i = 0; i < 60000; i++) {
        blocks.push_back(allocate(16 + i * 37 % 700));
        const auto size = static_cast<double>(page_map_find(blocks.back())->size_bytes);
        const double chance = -expm1(-size / 16384);
        bytes += size;
        variance += size * size * (1 - chance) / chance;
    }
    const cairn_profile_stats all = figures();
    EXPECT_LE(fabs(static_cast<double>(all.live_bytes) - bytes), 3 * sqrt(variance));
    EXPECT_EQ(all.live_bytes, all.allocated_bytes);
    EXPECT_EQ(all.lost_blocks, 0u);
    for (void *block : blocks)
        free_fast(block);
    EXPECT_EQ(figures().live_bytes, 0u);
}

TEST(Profile, ThreadsAllocateAndFreeForOneAnother)
{
    start_afresh(2000);
    constexpr int kThreads = 4, kBlocks = 5000;
    std::vector<std::vector<void *>> blocks(kThreads);
    std::vector<std::thread> threads;
    for (int number = 0; number < kThreads; number++)
        threads.emplace_back([&blocks, number] {
            for (size_t i = 0; i < kBlocks; i++)
                blocks[static_cast<size_t>(number)].push_back(allocate(16 + i % 500));
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_GT(figures().live_samples, 0u);
    threads.clear();
    for (int number = 0; number < kThreads; number++)
        threads.emplace_back([&blocks, number] {
            for (size_t i = 0; i < kBlocks; i++)
                free_fast(blocks[(static_cast<size_t>(number) + i) % kThreads][i]);
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(figures().live_samples, 0u);
    EXPECT_EQ(figures().live_bytes, 0u);
}

TEST(Profile, SwitchedWhileThreadsRun)
{
    start_afresh(500);
    bool stop = false;
    std::vector<std::thread> threads;
    for (int number = 0; number < 3; number++)
        threads.emplace_back([&stop] {
            std::vector<void *> ring(100);
            for (size_t i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
                void *&place = ring[i * 31 % 100];
                if (place)
                    free_fast(place);
                place = allocate(16 + i % 900);
            }
            for (void *block : ring)
                if (block)
                    free_fast(block);
        });
    for (int round = 0; round < 100; round++) {
        if (round % 3 == 0)
            profile_stop();
        else if (round % 3 == 1)
            EXPECT_EQ(profile_start(200 + static_cast<uint64_t>(round) * 50, 0), 0);
        else
            profile_reset();
        os_sleep_ms(1);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(figures().live_samples, 0u);
    EXPECT_EQ(figures().live_bytes, 0u);
}

TEST(Profile, TheChildOfAForkGoesOn)
{
    start_afresh(1);
    void *inherited = allocate_here(100);
    void *other = nullptr; // a block of a thread that the child does not have
    std::thread([&] { other = allocate_here(300); }).join();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const bool has = figures().live_samples == 2 && figures().samples == 0;
        void *own = allocate_here(200);
        const bool took = figures().live_samples == 3 && figures().samples == 1;
        free_fast(inherited);
        free_fast(other);
        free_fast(own);
        _exit(has && took && figures().live_samples == 0 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(figures().live_samples, 2u) << "frees in the child change nothing here";
    EXPECT_EQ(figures().samples, 2u);
    free_fast(inherited);
    free_fast(other);
}

// Dumps from a signal handler, at any point of malloc and free.
void dump_in_handler(int)
{
    const int error = profile_dump("/dev/null", "signal");
    if (error != 0 && error != -EBUSY && error != -EINVAL) // a device has no length
        _exit(3);
}

TEST(Profile, SignalsThatInterruptMallocMayDump)
{
    start_afresh(100);
    struct sigaction action = {};
    action.sa_handler = dump_in_handler;
    ASSERT_EQ(sigaction(SIGALRM, &action, nullptr), 0);
    const struct itimerval often = {{0, 1000}, {0, 1000}};
    ASSERT_EQ(setitimer(ITIMER_REAL, &often, nullptr), 0);
    std::vector<void *> ring(50);
    for (size_t i = 0; i < 30000; i++) {
        void *&place = ring[i % 50];
        if (place)
            free_fast(place);
        place = allocate(16 + i % 900);
    }
    const struct itimerval never = {};
    ASSERT_EQ(setitimer(ITIMER_REAL, &never, nullptr), 0);
    for (void *block : ring)
        free_fast(block);
    EXPECT_EQ(figures().live_samples, 0u);
}

// The claim to start the profiler or to write a dump. Each case needs a process of its own, since
// the profiler is the process's.

using namespace profile_kit;

TEST(ProfileState, OneAtATime)
{
    ASSERT_TRUE(os_claim(&profile_state.busy, 0));
    EXPECT_FALSE(os_claim(&profile_state.busy, 0));
    EXPECT_EQ(profile_start(1, 0), -EBUSY);
    os_unclaim(&profile_state.busy);
    EXPECT_EQ(profile_start(1, 0), 0);
}

// A child has only the thread of fork(): a claim of another thread would never be released.
TEST(ProfileState, AChildTakesNoHeedOfItsParents)
{
    ASSERT_TRUE(os_claim(&profile_state.busy, 0));
    const pid_t child = fork();
    if (child == 0)
        _exit(os_claim(&profile_state.busy, 0) && !os_claim(&profile_state.busy, 0) ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    os_unclaim(&profile_state.busy);
    EXPECT_TRUE(os_claim(&profile_state.busy, 0));
    os_unclaim(&profile_state.busy);
}

} // namespace profile_test
