// The hard limit refuses: the workloads run under limits from nearly nothing to plenty, and once
// more without the limit. The counted bytes never exceed it.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "oom/holder.h"

extern "C" {
#include "page/page.h"
}

namespace hard_limit_test
{

using oom::Holder;
using oom::kKiB;
using oom::kMiB;
using oom::Workload;

size_t counted_bytes()
{
    page_stats stats;
    pages_read_stats(&stats);
    return stats.counted_bytes;
}

struct Outcome {
    size_t failures;
    size_t over; // counted bytes beyond the limit at the end
};

Outcome run_limited(const Workload &workload, size_t room_bytes)
{
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        alarm(200);
        Holder holder;
        const size_t limit = counted_bytes() + room_bytes;
        pages_limit_hard(limit);
        workload.run(holder);
        holder.check_all();
        const size_t counted = counted_bytes();
        const Outcome outcome = {holder.failures(), counted > limit ? counted - limit : 0};
        pages_limit_hard(0);
        Holder afterwards;
        workload.run(afterwards);
        if (afterwards.failures() != 0)
            afterwards.fail("failures without a limit", afterwards.failures());
        holder.check_all();
        holder.drop_all();
        afterwards.drop_all();
        _exit(write(ends[1], &outcome, sizeof outcome) == sizeof outcome ? 0 : 2);
    }
    close(ends[1]);
    Outcome outcome = {0, 0};
    EXPECT_EQ(read(ends[0], &outcome, sizeof outcome), static_cast<ssize_t>(sizeof outcome));
    close(ends[0]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << workload.name << ": status " << status << " with " << room_bytes << " bytes of room";
    return outcome;
}

class HardLimit : public testing::TestWithParam<Workload>
{
};

TEST_P(HardLimit, IsNeverPassed)
{
    EXPECT_GT(run_limited(GetParam(), 16 * kKiB).failures, 0u) << "the limit has no effect";
    for (size_t room = 64 * kKiB; room < 200 * kMiB && !HasFailure(); room = room * 5 / 3)
        EXPECT_EQ(run_limited(GetParam(), room).over, 0u) << room;
    EXPECT_EQ(run_limited(GetParam(), size_t{4096} * kMiB).failures, 0u);
}

INSTANTIATE_TEST_SUITE_P(Workloads, HardLimit, testing::ValuesIn(oom::kWorkloads),
                         [](const auto &each) { return each.param.name; });

} // namespace hard_limit_test
