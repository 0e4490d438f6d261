// A pool on a system that refuses memory: each system call fails in turn, alone and with all later
// ones. Each attempt is a child whose page layer is unused so far.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "region/pool_holder.h"

extern "C" {
#include "os/fault.h"
#include "page/page.h"
}

namespace pool_oom_test
{

using pool_test::fault;
using pool_test::stats;

// The life of one pool, which continues after a failure.
// Returns: true when nothing failed.
bool life()
{
    cairn_pool_options options = {};
    options.shared = true;
    errno = 0;
    cairn_pool *pool = cairn_pool_new(100000, 16, &options);
    if (pool == nullptr) {
        EXPECT_EQ(errno, ENOMEM);
        return false;
    }
    bool failed = false;
    cairn_pool_magazine *magazine = cairn_pool_attach(pool);
    failed |= magazine == nullptr;
    std::vector<void *> objects;
    for (int i = 0; i < 200; i++) {
        errno = 0;
        void *object = magazine && i % 2 ? cairn_pool_magazine_get(magazine) : cairn_pool_get(pool);
        if (object) {
            *static_cast<char *>(object) = 1;
            objects.push_back(object);
        } else {
            EXPECT_EQ(errno, ENOMEM);
            failed = true;
        }
    }
    for (void *object : objects)
        cairn_pool_put(pool, object);
    EXPECT_EQ(fault(pool), "");
    cairn_pool_detach(magazine);
    EXPECT_EQ(stats(pool).live_objects, 0u);
    cairn_pool_delete(pool);
    return !failed;
}

enum { NOTHING_FAILED = 0, SOMETHING_FAILED = 1, BROKEN = 2 };

[[noreturn]] void attempt(size_t skip, size_t count)
{
    os_fault_plan(skip, count, ENOMEM);
    const bool failed = !life();
    os_fault_plan(0, 0, 0);
    const bool again = life();
    pages_verify();
    _exit(!again || testing::Test::HasFailure() ? BROKEN
          : failed                              ? SOMETHING_FAILED
                                                : NOTHING_FAILED);
}

TEST(PoolOom, AnySystemCallMayFail)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds only";
    int struck = 0;
    for (size_t count : {size_t{1}, size_t{2}, SIZE_MAX / 2}) {
        for (size_t skip = 0; skip < 40; skip++) {
            const pid_t child = fork();
            ASSERT_GE(child, 0);
            if (child == 0)
                attempt(skip, count);
            int status;
            ASSERT_EQ(waitpid(child, &status, 0), child);
            ASSERT_TRUE(WIFEXITED(status)) << "call " << skip << ", " << count << " failures";
            ASSERT_NE(WEXITSTATUS(status), BROKEN) << "call " << skip << ", " << count;
            struck += WEXITSTATUS(status) == SOMETHING_FAILED;
        }
    }
    EXPECT_GT(struck, 10);
}

} // namespace pool_oom_test
