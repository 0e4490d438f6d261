// Files: complete reads and writes, growth, holes, locks, names; and the calls that the watcher
// sees and stops.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

extern "C" {
#include "base/compiler.h"
#include "os/fault.h"
#include "os/file.h"
#include "os/memory.h"
}

namespace file_test
{

class File : public testing::Test
{
  protected:
    void SetUp() override
    {
        std::string name = testing::TempDir() + "cairn_file_XXXXXX";
        directory_ = mkdtemp(name.data());
        path_ = directory_ + "/file";
        file_ = os_file_open(path_.c_str(), OS_FILE_NEW);
        ASSERT_GE(file_, 0);
    }
    void TearDown() override
    {
        os_file_watch(nullptr);
        os_file_close(file_);
        std::filesystem::remove_all(directory_);
    }

    std::string directory_, path_;
    int file_ = -1;
};

TEST_F(File, IsReadAsItWasWritten)
{
    EXPECT_EQ(os_file_write(file_, "hello", 5, 10), 0);
    EXPECT_EQ(os_file_size(file_), 15);
    char text[6] = "";
    EXPECT_EQ(os_file_read(file_, text, 5, 10), 0);
    EXPECT_STREQ(text, "hello");
    EXPECT_EQ(os_file_read(file_, text, 5, 11), -ENODATA);
    EXPECT_EQ(os_file_sync(file_), 0);
    os_file_start_writing(file_, 0, 15);
}

TEST_F(File, OpensAsAsked)
{
    EXPECT_EQ(os_file_open(path_.c_str(), OS_FILE_NEW), -EEXIST);
    EXPECT_EQ(os_file_open(path_.c_str(), OS_FILE_NEW_SECRET), -EEXIST);
    EXPECT_EQ(os_file_open((path_ + "2").c_str(), OS_FILE_WRITE), -ENOENT);
    const int reader = os_file_open(path_.c_str(), OS_FILE_READ);
    EXPECT_EQ(os_file_write(reader, "x", 1, 0), -EBADF);
    EXPECT_EQ(fcntl(reader, F_GETFD), FD_CLOEXEC);
    os_file_close(reader);
    const int created = os_file_open((path_ + "2").c_str(), OS_FILE_CREATE);
    EXPECT_GE(created, 0);
    char path[4096];
    EXPECT_GT(os_file_path(created, path, sizeof path), 0);
    EXPECT_EQ(std::string(path), std::filesystem::canonical(path_ + "2").string());
    EXPECT_EQ(os_file_path(created, path, 5), -ENAMETOOLONG);
    const int length = os_path_absolute((path_ + "2").c_str(), path, sizeof path);
    EXPECT_EQ(std::string(path), path_ + "2");
    EXPECT_EQ(os_path_absolute((path_ + "2").c_str(), path, static_cast<size_t>(length) + 2),
              length);
    EXPECT_EQ(os_path_absolute((path_ + "2").c_str(), path, static_cast<size_t>(length) + 1),
              -ENAMETOOLONG);
    EXPECT_GT(os_path_absolute("some/file", path, sizeof path), 0);
    EXPECT_EQ(std::string(path), (std::filesystem::current_path() / "some/file").string());
    EXPECT_EQ(os_path_absolute("some/file", path, 3), -ENAMETOOLONG);
    ASSERT_EQ(symlink("2", (path_ + "3").c_str()), 0);
    EXPECT_EQ(os_path_absolute((path_ + "3").c_str(), path, sizeof path), -ELOOP);
    unlink((path_ + "3").c_str());
    os_file_close(created);
    os_file_close(-1);
}

TEST_F(File, GrowsAndShrinksAndHasHoles)
{
    EXPECT_EQ(os_file_extend(file_, 1 << 20), 0);
    EXPECT_EQ(os_file_size(file_), 1 << 20);
    struct stat before, after;
    ASSERT_EQ(fstat(file_, &before), 0);
    EXPECT_GE(before.st_blocks, 2048);
    const int punched = os_file_punch(file_, 4096, 512 << 10);
    EXPECT_TRUE(punched == 0 || punched == -EOPNOTSUPP);
    ASSERT_EQ(fstat(file_, &after), 0);
    if (punched == 0) {
        EXPECT_LT(after.st_blocks, before.st_blocks);
    }
    EXPECT_EQ(os_file_size(file_), 1 << 20);
    EXPECT_EQ(os_file_truncate(file_, 100), 0);
    EXPECT_EQ(os_file_size(file_), 100);
}

TEST_F(File, BeyondTheLimitOfSizesIsAnErrorAndNoSignal)
{
    const pid_t child = fork();
    if (child == 0) {
        const rlimit limit = {65536, 65536};
        setrlimit(RLIMIT_FSIZE, &limit);
        const bool right =
            os_file_truncate(file_, 65537) == -EFBIG && os_file_extend(file_, 65537) == -EFBIG &&
            os_file_truncate(file_, 65536) == 0 && os_file_write(file_, "x", 1, 65535) == 0 &&
            os_file_write(file_, "xx", 2, 65535) == -EFBIG;
        _exit(right ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// The limit was set after the file was made: the kernel would send a signal also for writes within
// the file.
TEST_F(File, AWriteWithinAFileThatIsBeyondTheLimit)
{
    ASSERT_EQ(os_file_truncate(file_, 200000), 0);
    const pid_t child = fork();
    if (child == 0) {
        const rlimit limit = {65536, 65536};
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(os_file_write(file_, "x", 1, 100000) == -EFBIG ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(File, KnowsWhetherANameLeadsToIt)
{
    EXPECT_FALSE(os_file_is_nameless(file_));
    const std::string other = path_ + "2";
    const int second = os_file_open(other.c_str(), OS_FILE_NEW);
    EXPECT_EQ(rename(other.c_str(), path_.c_str()), 0);
    EXPECT_TRUE(os_file_is_nameless(file_));
    EXPECT_FALSE(os_file_is_nameless(second));
    EXPECT_EQ(os_file_remove(path_.c_str()), 0);
    EXPECT_TRUE(os_file_is_nameless(second));
    os_file_close(second);
}

TEST_F(File, LocksExcludeOtherOpens)
{
    const int other = os_file_open(path_.c_str(), OS_FILE_WRITE);
    EXPECT_EQ(os_file_lock(file_, true), 0);
    EXPECT_EQ(os_file_lock(other, true), -EBUSY);
    EXPECT_EQ(os_file_lock(other, false), -EBUSY);
    EXPECT_EQ(os_file_lock(file_, false), 0);
    EXPECT_EQ(os_file_lock(other, false), 0);
    EXPECT_EQ(os_file_lock(other, true), -EBUSY);
    os_file_close(file_);
    file_ = -1;
    EXPECT_EQ(os_file_lock(other, true), 0);
    os_file_close(other);
}

TEST_F(File, RenamesNeverOverAnother)
{
    const std::string other = path_ + "2";
    EXPECT_EQ(os_file_rename(path_.c_str(), other.c_str()), 0);
    const int again = os_file_open(path_.c_str(), OS_FILE_NEW);
    EXPECT_EQ(os_file_rename(path_.c_str(), other.c_str()), -EEXIST);
    os_file_close(again);
    EXPECT_EQ(os_directory_sync(path_.c_str()), 0);
    // Under an emulator the working directory is /proc, which cannot be synchronised.
    EXPECT_EQ(os_directory_sync("no slash"), CAIRN_TEST_EMULATED ? -EINVAL : 0);
    EXPECT_EQ(os_directory_sync("/no/such/directory"), -ENOENT);
    EXPECT_EQ(os_file_remove(path_.c_str()), 0);
    EXPECT_EQ(os_file_remove(path_.c_str()), -ENOENT);
}

TEST_F(File, MapsPrivately)
{
    const size_t page = os_page_size();
    ASSERT_EQ(os_file_truncate(file_, 2 * page), 0);
    ASSERT_EQ(os_file_write(file_, "file", 5, page), 0);
    char *memory = static_cast<char *>(os_reserve(4 * page));
    ASSERT_EQ(os_file_map(file_, page, memory + page, page, OS_WRITE), 0);
    EXPECT_STREQ(memory + page, "file");
    memory[page] = 'F';
    char text[5];
    ASSERT_EQ(os_file_read(file_, text, 5, page), 0);
    EXPECT_STREQ(text, "file");
    EXPECT_FALSE(os_reserve_at(memory, page)) << "taken";
    os_unmap(memory, 4 * page);
    EXPECT_TRUE(os_reserve_at(memory, page));
    os_unmap(memory, page);
}

TEST_F(File, SettlingLosesNothing)
{
    ASSERT_EQ(os_file_write(file_, "settled", 8, 0), 0);
    char text[8] = "";
    for (const uint64_t size : {0u, 4u, 65536u}) {
        EXPECT_EQ(os_file_settle(file_, size), 0);
        ASSERT_EQ(os_file_read(file_, text, 8, 0), 0);
        EXPECT_STREQ(text, "settled");
    }
    EXPECT_EQ(os_file_settle(-1, 0), -EBADF);
}

TEST_F(File, ReservingKeepsContentAndSize)
{
    ASSERT_EQ(os_file_write(file_, "1234567", 7, 100), 0);
    ASSERT_EQ(os_file_truncate(file_, 1 << 20), 0);
    EXPECT_EQ(os_file_reserve(file_, 0, 1 << 19), 0);
    EXPECT_EQ(os_file_reserve(file_, 0, 1 << 19), 0);
    EXPECT_EQ(os_file_size(file_), 1 << 20);
    char text[8] = "";
    EXPECT_EQ(os_file_read(file_, text, 7, 100), 0);
    EXPECT_STREQ(text, "1234567");
    EXPECT_LT(os_file_reserve(-1, 0, 1), 0);
}

// The watcher.
std::vector<std::string> g_calls;
int g_interruptions;

int watch(os_file_call call, int, uint64_t offset, const void *, size_t *size)
{
    static const char *const names[] = {"write", "truncate", "extend", "reserve", "punch", "sync"};
    g_calls.push_back(std::string(names[call]) + " " + std::to_string(offset) + " " +
                      std::to_string(*size));
    if (g_interruptions > 0) {
        g_interruptions--;
        return -EINTR;
    }
    if (call == OS_CALL_WRITE && *size > 3)
        *size = 3;
    return call == OS_CALL_EXTEND ? -ENOSPC : 0;
}

TEST_F(File, ShortAndInterruptedWritesGoOn)
{
    if (!config_debug)
        GTEST_SKIP() << "calls are watched in debug builds";
    g_calls.clear();
    g_interruptions = 2;
    os_file_watch(watch);
    EXPECT_EQ(os_file_write(file_, "1234567", 7, 100), 0);
    const std::vector<std::string> expected = {"write 100 7", "write 100 7", "write 100 7",
                                               "write 103 4", "write 106 1"};
    EXPECT_EQ(g_calls, expected);
    char text[8] = "";
    EXPECT_EQ(os_file_read(file_, text, 7, 100), 0);
    EXPECT_STREQ(text, "1234567");
    g_interruptions = 1;
    EXPECT_EQ(os_file_sync(file_), 0);
    EXPECT_EQ(os_file_extend(file_, 5000), -ENOSPC);
    EXPECT_EQ(os_file_truncate(file_, 0), 0);
}

TEST_F(File, EveryCallCanBeMadeToFail)
{
    if (!config_debug)
        GTEST_SKIP() << "faults are injected in debug builds";
    const auto fails = [&](auto call) {
        os_fault_plan(0, 1, EIO);
        const int result = call();
        os_fault_plan(0, 0, 0);
        return result == -EIO;
    };
    char byte;
    EXPECT_TRUE(fails([&] { return os_file_open(path_.c_str(), OS_FILE_READ); }));
    EXPECT_TRUE(fails([&] { return os_file_read(file_, &byte, 1, 0); }));
    EXPECT_TRUE(fails([&] { return os_file_write(file_, "x", 1, 0); }));
    EXPECT_TRUE(fails([&] { return os_file_truncate(file_, 1); }));
    EXPECT_TRUE(fails([&] { return os_file_extend(file_, 1); }));
    EXPECT_TRUE(fails([&] { return os_file_reserve(file_, 0, 1); }));
    EXPECT_TRUE(fails([&] { return os_file_punch(file_, 0, 1); }));
    EXPECT_TRUE(fails([&] { return os_file_sync(file_); }));
    EXPECT_TRUE(fails([&] { return os_file_lock(file_, true); }));
    EXPECT_TRUE(fails([&] { return os_file_rename("a", "b"); }));
    EXPECT_TRUE(fails([&] { return static_cast<int>(os_file_size(file_)); }));
    EXPECT_EQ(os_file_size(file_), 0);
}

} // namespace file_test
