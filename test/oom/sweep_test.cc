// Every system call fails in turn, alone and in bursts, in every workload. Each attempt is a child
// with an unused heap, so that the start of the heap is covered as well.
//
// A debug build is needed: the failures are injected in os/.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "oom/holder.h"

extern "C" {
#include "heap/heap.h"
#include "heap/refill.h"
#include "os/fault.h"
}

namespace sweep_test
{

using oom::Holder;
using oom::Workload;

constexpr int kNothingFailed = 77;
constexpr size_t kToTheEnd = SIZE_MAX / 2;

struct Plan {
    size_t skip;
    size_t count;
    size_t every;
    int error;
};

void verify_everything()
{
    heap_verify_all();
    for (struct heap *heap = load_acquire(&all_heaps); heap; heap = heap->next)
        heap_verify(heap);
}

// Runs in the child: the workload under the plan, then once more without failures, on the heap that
// the first run left.
[[noreturn]] void attempt(const Workload &workload, const Plan &plan)
{
    const size_t skip = plan.skip;
    alarm(200);
    Holder holder;
    os_fault_plan_every(skip, plan.count, plan.every, plan.error);
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

// Runs an attempt in a child.
// Returns: false when the run made no call that the plan could fail.
bool attempt_in_child(const Workload &workload, const Plan &plan)
{
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0)
        attempt(workload, plan);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    const bool struck = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    const bool done = WIFEXITED(status) && WEXITSTATUS(status) == kNothingFailed;
    EXPECT_TRUE(struck || done) << workload.name << ": status " << status << " with calls "
                                << plan.skip << " to " << plan.skip + plan.count - 1
                                << ", each one in " << plan.every << ", failing with "
                                << plan.error;
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

    // Moves the failing calls through the run, `step` calls at a time, until the run ends before
    // them.
    void sweep(size_t count, size_t step, int error)
    {
        size_t skip = 0;
        while (attempt_in_child(GetParam(), {skip, count, 1, error}) && !HasFailure())
            skip += step;
        EXPECT_GE(skip, step) << "no call could fail: the injection does not work";
    }
};

TEST_P(Sweep, EachCallFails) { sweep(1, 1, ENOMEM); }

TEST_P(Sweep, CallsAreNotPermitted) { sweep(2, 3, EPERM); }

TEST_P(Sweep, BurstsOfFailures) { sweep(7, 4, EAGAIN); }

TEST_P(Sweep, CallsAreInterrupted) { sweep(1, 7, EINTR); }

// For any error of the kernel the caller gets ENOMEM.
TEST_P(Sweep, AnyErrorIsTheSame)
{
    for (int error : {EACCES, EBUSY, EFAULT, EINVAL, ENFILE, ENOSYS, EOVERFLOW})
        for (size_t skip : {0, 3, 11})
            attempt_in_child(GetParam(), {skip, 5, 1, error});
}

// Calls fail and succeed in turn, from the first to the last.
TEST_P(Sweep, FailureComesAndGoes)
{
    for (size_t every : {2, 3, 5})
        for (size_t skip = 0; skip < every; skip++)
            for (int error : {ENOMEM, EAGAIN})
                attempt_in_child(GetParam(), {skip, kToTheEnd, every, error});
}

TEST_P(Sweep, AllCallsFailFromSomeOn) { sweep(kToTheEnd, 5, ENOMEM); }

INSTANTIATE_TEST_SUITE_P(Workloads, Sweep, testing::ValuesIn(oom::kWorkloads),
                         [](const auto &each) { return each.param.name; });

} // namespace sweep_test
