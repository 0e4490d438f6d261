// Every system call made to fail in turn, and bursts of them, over every workload. Each attempt is
// a child that starts with an untouched heap, so that its start is swept as well.
//
// Debug builds only: the faults are injected in os/.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "oom/holder.h"

extern "C" {
#include "heap/heap.h"
#include "heap/thread_heap.h"
#include "os/os.h"
}

namespace
{

using oom::Holder;
using oom::Workload;

constexpr int kNothingFailed = 77;

void verify_heap(struct heap *heap, void *) { heap_verify(heap); }

void verify_everything()
{
    heap_verify_all();
    heaps_each(verify_heap, nullptr);
}

// In a child: the workload under the plan, then once more without, on what the first left behind.
[[noreturn]] void attempt(const Workload &workload, size_t skip, size_t count, int error)
{
    alarm(60);
    Holder holder;
    os_fault_plan(skip, count, error);
    workload.run(holder);
    const bool struck = os_fault_plan(0, 0, 0) > skip;
    holder.check_all();
    verify_everything();

    Holder afterwards;
    workload.run(afterwards);
    if (afterwards.failures() != 0)
        afterwards.fail("failures when nothing fails any more", afterwards.failures());
    holder.check_all();
    holder.drop_all();
    afterwards.drop_all();
    verify_everything();
    cairn_malloc_trim(0);
    verify_everything();
    struct heap_stats stats;
    heap_read_stats(&stats);
    if (stats.live_bytes != 0)
        holder.fail("bytes in use after all was freed", stats.live_bytes);
    if (stats.pages.free_bytes + stats.slab_bytes != stats.pages.committed_bytes)
        holder.fail("free of the committed bytes", stats.pages.free_bytes);
    _exit(struck ? 0 : kNothingFailed);
}

// False when the run made no call that the plan could fail.
bool attempt_in_child(const Workload &workload, size_t skip, size_t count, int error)
{
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0)
        attempt(workload, skip, count, error);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    const bool struck = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    const bool done = WIFEXITED(status) && WEXITSTATUS(status) == kNothingFailed;
    EXPECT_TRUE(struck || done) << workload.name << ": status " << status << " with calls " << skip
                                << " to " << skip + count - 1 << " failing with " << error;
    return struck;
}

class Sweep : public testing::TestWithParam<Workload>
{
  protected:
    void SetUp() override
    {
        if (!config_debug)
            GTEST_SKIP() << "faults are injected in debug builds only";
    }

    // Moves the failing calls through the run, `step` at a time, until none is reached.
    void sweep(size_t count, size_t step, int error)
    {
        size_t skip = 0;
        while (attempt_in_child(GetParam(), skip, count, error) && !HasFailure())
            skip += step;
        EXPECT_GE(skip, step) << "no call could fail: the injection does not work";
    }
};

TEST_P(Sweep, EachCallFails) { sweep(1, 1, ENOMEM); }

TEST_P(Sweep, CallsAreNotPermitted) { sweep(2, 3, EPERM); }

TEST_P(Sweep, BurstsOfFailures) { sweep(7, 4, EAGAIN); }

TEST_P(Sweep, AllCallsFailFromSomeOn) { sweep(SIZE_MAX / 2, 5, ENOMEM); }

INSTANTIATE_TEST_SUITE_P(Workloads, Sweep, testing::ValuesIn(oom::kWorkloads),
                         [](const auto &each) { return each.param.name; });

} // namespace
