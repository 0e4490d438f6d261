// Descriptors that remain Cairn's own, or are recognised when they do not.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

extern "C" {
#include "os/file.h"
#include "os/memory.h"
}

namespace own_file_test
{

os_own_file make()
{
    os_init();
    os_own_file own = {-1, {}};
    EXPECT_EQ(os_file_own(&own, os_event_make()), 0);
    return own;
}

bool is_open(int number) { return fcntl(number, F_GETFD) >= 0; }

TEST(OwnFile, IsAwayFromTheProgramsNumbers)
{
    os_own_file own = make();
    const int number = own.number;
    EXPECT_GE(number, 10);
    EXPECT_TRUE(os_file_is_own(&own));
    EXPECT_EQ(os_file_own_number(&own), number);
    os_file_close_own(&own);
    EXPECT_EQ(own.number, -1);
    EXPECT_FALSE(is_open(number));
    EXPECT_FALSE(os_file_is_own(&own));
    os_file_close_own(&own);
}

TEST(OwnFile, IsKnownToBeClosed)
{
    os_own_file own = make();
    ASSERT_EQ(close(own.number), 0);
    EXPECT_FALSE(os_file_is_own(&own));
    EXPECT_EQ(os_file_own_number(&own), -1);
    EXPECT_EQ(own.number, -1);
}

TEST(OwnFile, AnotherFileAtItsNumberIsLeftAlone)
{
    os_own_file own = make();
    const int number = own.number;
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(dup2(ends[0], number), number);
    EXPECT_FALSE(os_file_is_own(&own));
    os_file_close_own(&own);
    EXPECT_EQ(own.number, -1);
    EXPECT_TRUE(is_open(number));
    close(number);
    close(ends[0]);
    close(ends[1]);
}

TEST(OwnFile, NoneWhereTheSystemHasNone)
{
    os_own_file own = {-1, {}};
    EXPECT_EQ(os_file_own(&own, -EMFILE), -EMFILE);
    EXPECT_EQ(own.number, -1);
}

} // namespace own_file_test
