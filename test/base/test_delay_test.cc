// Injected delays: there with a seed only, and nothing of them in a build without.

#include <gtest/gtest.h>

#include <chrono>

extern "C" {
#include "base/test_delay.h"
}

namespace
{

TEST(TestDelay, FollowsTheSeed)
{
    if (!config_test_delays)
        GTEST_SKIP() << "this build has none";
#if CAIRN_TEST_DELAYS
    const auto seconds = [](uint64_t seed) {
        test_delay_seed = seed;
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < 20000; i++)
            test_delay();
        test_delay_seed = 0;
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    EXPECT_GT(seconds(7), 4 * seconds(0));
#endif
}

} // namespace
