// The kernel itself refuses: the workloads run under limits of address space from nearly nothing to
// plenty, and once more without the limit.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <vector>

#include <cairn/heap.h>
#include <cairn/pages.h>
#include <cairn/tlsf.h>

#include "oom/holder.h"
#include "os/resident.h"

namespace limit_test
{

using oom::Holder;
using oom::kKiB;
using oom::kMiB;
using oom::Workload;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnsAddressSpace = true; // the runtime of a sanitizer needs some for itself
#elif defined(__has_feature)
constexpr bool kOwnsAddressSpace =
    __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kOwnsAddressSpace = false;
#endif

size_t address_space_bytes()
{
    FILE *file = fopen("/proc/self/statm", "re");
    size_t pages = 0;
    if (file == nullptr || fscanf(file, "%zu", &pages) != 1)
        abort();
    fclose(file);
    return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

void set_limit(int resource, size_t bytes)
{
    rlimit limit;
    if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0)
        abort();
    limit.rlim_cur = std::min<rlim_t>(bytes, limit.rlim_max);
    if (setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0)
        abort();
}

// Runs the workload in a child under the limit.
// Returns: the number of failures that it met.
size_t run_limited(const Workload &workload, size_t room_bytes)
{
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        alarm(200);
        Holder holder;
        const size_t now = address_space_bytes();
        set_limit(RLIMIT_AS, now + room_bytes);
        workload.run(holder);
        holder.check_all();
        const size_t failures = holder.failures();
        set_limit(RLIMIT_AS, RLIM_INFINITY);
        Holder afterwards;
        workload.run(afterwards);
        if (afterwards.failures() != 0)
            afterwards.fail("failures without a limit", afterwards.failures());
        holder.check_all();
        holder.drop_all();
        afterwards.drop_all();
        if (write(ends[1], &failures, sizeof failures) != sizeof failures)
            _exit(2);
        _exit(0);
    }
    close(ends[1]);
    size_t failures = 0;
    const ssize_t got = read(ends[0], &failures, sizeof failures);
    close(ends[0]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << workload.name << ": status " << status << " with " << room_bytes << " bytes of room";
    EXPECT_EQ(got, static_cast<ssize_t>(sizeof failures));
    return failures;
}

class Limit : public testing::TestWithParam<Workload>
{
};

TEST_P(Limit, AddressSpaceIsScarce)
{
    if (kOwnsAddressSpace)
        GTEST_SKIP() << "the limit would also affect the sanitizer's runtime";
    EXPECT_GT(run_limited(GetParam(), 64 * kKiB), 0u) << "the limit has no effect";
    for (size_t room = 512 * kKiB; room < 200 * kMiB && !HasFailure(); room = room * 4 / 3)
        run_limited(GetParam(), room);
    EXPECT_EQ(run_limited(GetParam(), size_t{4096} * kMiB), 0u);
}

// All workloads but Threads: the limit also covers the stack of a thread.
INSTANTIATE_TEST_SUITE_P(Workloads, Limit,
                         testing::ValuesIn(oom::kWorkloads,
                                           oom::kWorkloads + std::size(oom::kWorkloads) - 1),
                         [](const auto &each) { return each.param.name; });

// Frees 180 MiB of short blocks, then makes one long one under a limit that has no room for both.
// Returns: the exit status of the child that does so; 0 if it got the long block.
int make_long_one(int resource, void *(*make)())
{
    const pid_t child = fork();
    if (child == 0) {
        std::vector<void *> blocks;
        for (int i = 0; i < 2880; i++) {
            blocks.push_back(cairn_malloc(64 * kKiB));
            if (blocks.back() == nullptr)
                _exit(2);
            memset(blocks.back(), 1, 64 * kKiB);
        }
        for (void *block : blocks)
            cairn_free(block);
        const size_t now = resource == RLIMIT_AS ? address_space_bytes() : status_bytes("VmData:");
        set_limit(resource, now + 16 * kMiB);
        auto *block = static_cast<char *>(make());
        if (block)
            block[40 * kMiB - 1] = 1;
        _exit(block ? 0 : 3);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
}

// The freed blocks make room for it, whichever allocator asks.
TEST(LimitRoom, FreedBlocksGiveWay)
{
    if (kOwnsAddressSpace || config_guarded_blocks || CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "needs the memory of a sanitizer, keeps no pages, or has no such limit";
    const auto map = [] { return cairn_pages_map(100 * kMiB, 4096, 0); };
    EXPECT_EQ(make_long_one(RLIMIT_DATA, [] { return cairn_malloc(100 * kMiB); }), 0);
    EXPECT_EQ(make_long_one(RLIMIT_DATA, map), 0);
    EXPECT_EQ(make_long_one(RLIMIT_AS, [] { return cairn_pages_map(40 * kMiB, 4096, 0); }), 0)
        << "from an arena, which has addresses";
    EXPECT_EQ(make_long_one(RLIMIT_DATA, []() -> void * { return cairn_tlsf_new(100 * kMiB); }), 0);
}

TEST(LimitRoom, FreedBlocksGiveWayToOneThatGrows)
{
    if (kOwnsAddressSpace || config_guarded_blocks || CAIRN_TEST_EMULATED)
        GTEST_SKIP() << "needs the memory of a sanitizer, keeps no pages, or has no such limit";
    static void *grown;
    grown = cairn_malloc(250 * kMiB);
    EXPECT_EQ(make_long_one(RLIMIT_DATA, [] { return cairn_realloc(grown, 300 * kMiB); }), 0);
    cairn_free(grown);
    grown = cairn_pages_map(250 * kMiB, 4096, 0);
    EXPECT_EQ(
        make_long_one(RLIMIT_DATA,
                      [] { return cairn_pages_remap(grown, 250 * kMiB, 300 * kMiB, 4096, 0); }),
        0);
    EXPECT_EQ(cairn_pages_unmap(grown, 250 * kMiB), 0);
}

} // namespace limit_test
