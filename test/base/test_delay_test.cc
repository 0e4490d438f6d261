// Injected delays: they need a seed, and a build without them contains none.

#include <gtest/gtest.h>

#include <time.h>

extern "C" {
#include "base/test_delay.h"
}

namespace test_delay_test
{

#if CAIRN_TEST_DELAYS
double cpu_seconds()
{
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}
#endif

TEST(TestDelay, FollowsTheSeed)
{
    if (!config_test_delays)
        GTEST_SKIP() << "this build has no injected delays";
#if CAIRN_TEST_DELAYS
    // CPU time of this thread alone, since other threads may run
    const auto seconds = [](uint64_t seed) {
        test_delay_seed = seed;
        const double start = cpu_seconds();
        for (int i = 0; i < 20000; i++)
            test_delay();
        test_delay_seed = 0;
        return cpu_seconds() - start;
    };
    EXPECT_GT(seconds(7), 4 * seconds(0));
#endif
}

} // namespace test_delay_test
