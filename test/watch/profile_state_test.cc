// Whose turn it is to start the profiler or to write a dump. One process a case: the profiler is
// the process's.

#include "watch/profile_kit.h"

#include <sys/wait.h>

namespace
{

using namespace profile_kit;

TEST(ProfileState, OneAtATime)
{
    ASSERT_TRUE(profile_claim());
    EXPECT_FALSE(profile_claim());
    EXPECT_EQ(profile_start(1, 0), -EBUSY);
    profile_unclaim();
    EXPECT_EQ(profile_start(1, 0), 0);
}

// A child has the thread of fork() only: nobody would give the turn back.
TEST(ProfileState, AChildTakesNoHeedOfItsParents)
{
    ASSERT_TRUE(profile_claim());
    const pid_t child = fork();
    if (child == 0)
        _exit(profile_claim() && !profile_claim() ? 0 : 1);
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    profile_unclaim();
    EXPECT_TRUE(profile_claim());
    profile_unclaim();
}

} // namespace
