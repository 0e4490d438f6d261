// The public functions of the profiler: errors as numbers, errno kept. Each case needs a process of
// its own (ctest runs each alone), since the profiler is the process's.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cairn/heap.h>
#include <cairn/profile.h>
#include <errno.h>

#include <string>

namespace profile_api_test
{

cairn_profile_stats stats()
{
    cairn_profile_stats all;
    cairn_profile_read_stats(&all);
    return all;
}

TEST(ProfileApi, OnOffAndForgotten)
{
    errno = 77;
    EXPECT_FALSE(stats().is_on);
    EXPECT_EQ(cairn_profile_start(0), EINVAL);
    EXPECT_EQ(cairn_profile_dump("/tmp/never"), ENODATA);
    ASSERT_EQ(cairn_profile_start(1), 0);
    EXPECT_TRUE(stats().is_on);
    EXPECT_EQ(stats().interval_bytes, 1u);
    cairn_free(cairn_aligned_alloc(64, 100)); // the heap of this thread follows
    cairn_profile_reset();
    void *block = cairn_malloc(5000);
    EXPECT_EQ(stats().live_samples, 1u);
    EXPECT_GE(stats().live_bytes, 5000u);
    cairn_profile_stop();
    EXPECT_FALSE(stats().is_on);
    cairn_free(block);
    EXPECT_EQ(stats().live_bytes, 0u);
    EXPECT_EQ(stats().samples, 1u);
    const std::string path = testing::TempDir() + "profile_api." + std::to_string(getpid());
    EXPECT_EQ(cairn_profile_dump(path.c_str()), 0);
    EXPECT_EQ(unlink(path.c_str()), 0);
    EXPECT_EQ(cairn_profile_dump("/nowhere/at/all"), ENOENT);
    EXPECT_EQ(errno, 77);
}

} // namespace profile_api_test
