// Every system call fails in turn during the long model tests: random calls of all entry points on
// one thread, and lanes of threads that free each other's blocks. Each attempt is a child. A run
// must not lose or change a block, fail with anything but NULL and ENOMEM, fail after the failures
// have ended, or miss memory at the end.
//
// By default a sample of the calls fails, another one in each run, for some seconds; the seed is
// printed, and CAIRN_SWEEP_SEED=n repeats it. CAIRN_SWEEP=full lets each call fail in turn, alone
// and with all later ones, which takes minutes.
//
// A debug build is needed: the failures are injected in os/.

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "model/threads.h"

extern "C" {
#include "heap/heap.h"
#include "heap/refill.h"
#include "os/fault.h"
}

namespace long_sweep_test
{

using model::kMiB;
using model::Lanes;
using model::Random;
using model::Shadow;

constexpr int kNothingFailed = 77;
constexpr size_t kToTheEnd = SIZE_MAX / 2;

struct Plan {
    size_t skip;
    size_t count;
    int error;
    size_t every = 1;
};

void verify_everything()
{
    heap_verify_all();
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        heap_verify(heap);
}

// After all blocks were freed, the heap is empty, and every committed page can be released.
void require_all_free(const Shadow &shadow)
{
    cairn_malloc_trim(0);
    verify_everything();
    struct heap_stats stats;
    heap_read_stats(&stats);
    if (stats.live_bytes != 0)
        shadow.fail("bytes in use after all was freed", nullptr, stats.live_bytes);
    // While the system refused mappings, metadata took free pages of the arenas for good.
    const size_t rest = stats.pages.committed_bytes - stats.pages.free_bytes - stats.slab_bytes;
    if (rest > stats.pages.meta_bytes)
        shadow.fail("committed bytes that nobody has", nullptr, rest);
}

// Random calls of one thread.
// Returns: the number of calls of os/ that the run made under the plan.
size_t run_sequence(const Plan &plan)
{
    Shadow shadow(21, 400, 96 * kMiB);
    shadow.allow_failures(true);
    os_fault_plan_every(plan.skip, plan.count, plan.every, plan.error);
    shadow.run(4000);
    const size_t seen = os_fault_plan(0, 0, 0);
    shadow.allow_failures(false);
    shadow.check_all();
    verify_everything();
    shadow.run(500);
    shadow.check_all();
    shadow.release_all();
    require_all_free(shadow);
    return seen;
}

// Random calls of one thread with memory that is purged at once, which makes the most calls.
// Returns: the number of calls of os/ that the run made under the plan.
size_t run_sequence_without_cache(const Plan &plan)
{
    const struct page_limits limits = {.decay_ms = 0,
                                       .dirty_cap_bytes = kMiB,
                                       .soft_limit_bytes = 16 * kMiB,
                                       .hard_limit_bytes = 0,
                                       .huge_pages = HUGE_PAGES_OFF};
    heap_start();
    pages_configure(&limits);
    return run_sequence(plan);
}

size_t run_lanes(const Plan &plan)
{
    constexpr uint64_t kSeed = 22;
    size_t seen = 0;
    Shadow all(kSeed, 1 << 14, SIZE_MAX);
    for (bool failing : {true, false}) {
        Lanes lanes(kSeed, 4, 150, 12 * kMiB);
        lanes.allow_failures(failing);
        if (failing)
            os_fault_plan_every(plan.skip, plan.count, plan.every, plan.error);
        lanes.start(4, 150);
        lanes.join();
        seen += os_fault_plan(0, 0, 0);
        verify_everything();
        lanes.collect(all);
        all.check_all();
    }
    all.release_all();
    require_all_free(all);
    return seen;
}

struct LongTest {
    const char *name;
    size_t (*run)(const Plan &plan);
};

class LongSweep : public testing::TestWithParam<LongTest>
{
  protected:
    void SetUp() override
    {
        if (!config_debug)
            GTEST_SKIP() << "faults are injected in debug builds only";
    }

    // The number of calls in a run; when nothing fails, kNothingFailed is a valid result.
    static size_t count_calls()
    {
        int ends[2];
        EXPECT_EQ(pipe(ends), 0);
        fflush(nullptr);
        const pid_t child = fork();
        if (child == 0) {
            const size_t seen = GetParam().run({0, 0, ENOMEM});
            _exit(write(ends[1], &seen, sizeof seen) == sizeof seen ? 0 : 1);
        }
        size_t seen = 0;
        close(ends[1]);
        EXPECT_EQ(read(ends[0], &seen, sizeof seen), static_cast<ssize_t>(sizeof seen));
        close(ends[0]);
        int status = 0;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
        return seen;
    }

    static void attempt(const Plan &plan)
    {
        fflush(nullptr);
        const pid_t child = fork();
        if (child == 0) {
            alarm(120);
            _exit(GetParam().run(plan) > plan.skip ? 0 : kNothingFailed);
        }
        int status = 0;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) &&
                    (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kNothingFailed))
            << "status " << status << ", " << plan.count << " calls failing with " << plan.error
            << " from call " << plan.skip << " on";
        struck_ += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }

    static bool is_full()
    {
        const char *wanted = getenv("CAIRN_SWEEP");
        return wanted && std::string(wanted) == "full";
    }

    static uint64_t seed()
    {
        const char *wanted = getenv("CAIRN_SWEEP_SEED");
        return wanted ? strtoull(wanted, nullptr, 10) : static_cast<uint64_t>(time(nullptr));
    }

    static size_t struck_;
};

size_t LongSweep::struck_;

TEST_P(LongSweep, CallsFailInTurn)
{
    struck_ = 0;
    const size_t calls = count_calls();
    ASSERT_GT(calls, 20u);
    const uint64_t first_seed = seed();
    printf("%zu calls, seed %llu\n", calls, static_cast<unsigned long long>(first_seed));
    fflush(stdout);
    Random random(first_seed);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4);
    for (size_t i = 0; !HasFailure() && is_full() && i < calls; i++) {
        attempt({i, 1, ENOMEM});
        attempt({i, kToTheEnd, i % 2 ? EPERM : EAGAIN});
    }
    // Ten attempts at least, however slow: lanes make other calls each time, so a plan may have no
    // effect.
    for (int i = 0;
         !HasFailure() && !is_full() && (i < 10 || std::chrono::steady_clock::now() < end); i++) {
        const size_t counts[] = {1, 1 + random.below(16), kToTheEnd};
        const int errors[] = {ENOMEM, EPERM, EAGAIN, EINTR};
        attempt({random.below(calls), counts[random.below(3)], errors[random.below(4)],
                 1 + random.below(3)});
    }
    EXPECT_GT(struck_, 0u) << "no call failed: the injection does not work";
    printf("%zu attempts with a failing call\n", struck_);
}

INSTANTIATE_TEST_SUITE_P(Tests, LongSweep,
                         testing::Values(LongTest{"Sequence", run_sequence},
                                         LongTest{"WithoutCache", run_sequence_without_cache},
                                         LongTest{"Lanes", run_lanes}),
                         [](const auto &each) { return each.param.name; });

} // namespace long_sweep_test
