// Files mapped as memory: stored bytes are in the file, disk space is allotted before, limits are
// refused without a signal, and a child of fork reads zeros where it should.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

extern "C" {
#include "os/file.h"
#include "os/memory.h"
#include "os/process.h"
}

namespace shared_test
{

constexpr size_t part = 65536;

class Shared : public testing::Test
{
  protected:
    Shared() : path_(testing::TempDir() + "shared." + std::to_string(getpid()))
    {
        file_ = os_file_open(path_.c_str(), OS_FILE_CREATE);
    }
    ~Shared() override
    {
        os_file_close(file_);
        (void)unlink(path_.c_str());
    }
    std::string path_;
    int file_;
};

TEST_F(Shared, WhatIsStoredIsInTheFile)
{
    ASSERT_GE(file_, 0);
    ASSERT_EQ(os_file_allot(file_, part, part), 0);
    EXPECT_EQ(os_file_size(file_), static_cast<int64_t>(2 * part));
    ASSERT_EQ(os_file_allot(file_, 0, part), 0); // does not shorten the file
    EXPECT_EQ(os_file_size(file_), static_cast<int64_t>(2 * part));
    auto *memory = static_cast<char *>(os_file_share(file_, part, part));
    ASSERT_NE(memory, nullptr);
    memcpy(memory + 100, "stored", 7);
    char text[7];
    ASSERT_EQ(os_file_read(file_, text, sizeof text, part + 100), 0);
    EXPECT_STREQ(text, "stored");
    EXPECT_EQ(os_unmap(memory, part), 0);
    struct stat status;
    ASSERT_EQ(fstat(file_, &status), 0);
    EXPECT_GE(static_cast<size_t>(status.st_blocks) * 512, 2 * part); // no holes
}

// A file's layout does not depend on the size of the system's pages.
TEST_F(Shared, ARangeMayBeginWithinASystemPage)
{
    ASSERT_EQ(os_file_allot(file_, 0, 2 * part), 0);
    const size_t offset = part + 104, size = part - 104;
    auto *memory = static_cast<char *>(os_file_share(file_, offset, size));
    ASSERT_NE(memory, nullptr);
    memcpy(memory, "first", 6);
    memory[size - 1] = 'x';
    char text[6], last;
    ASSERT_EQ(os_file_read(file_, text, sizeof text, offset), 0);
    EXPECT_STREQ(text, "first");
    ASSERT_EQ(os_file_read(file_, &last, 1, 2 * part - 1), 0);
    EXPECT_EQ(last, 'x');
    os_file_unshare(memory, size);
    EXPECT_FALSE(os_is_readable(memory));
    EXPECT_FALSE(os_is_readable(memory + size - 8));
}

TEST_F(Shared, ALimitOfFilesIsRefusedWithoutASignal)
{
    struct rlimit old;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    struct rlimit small = old;
    small.rlim_cur = part;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    EXPECT_EQ(os_file_size_limit(), static_cast<int64_t>(part));
    EXPECT_EQ(os_file_allot(file_, 0, part), 0);
    EXPECT_EQ(os_file_allot(file_, part, part), -EFBIG);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
}

TEST_F(Shared, ErrorsAreNegativeNumbersAndErrnoStays)
{
    errno = 77;
    EXPECT_LT(os_file_allot(-1, 0, part), 0);
    EXPECT_EQ(os_file_share(-1, 0, part), nullptr);
    struct os_file_identity identity;
    EXPECT_LT(os_file_identify(-1, &identity), 0);
    EXPECT_EQ(errno, 77);
}

TEST_F(Shared, AFileIsKnownByItsIdentity)
{
    struct os_file_identity one, two, other;
    int again = os_file_open(path_.c_str(), OS_FILE_WRITE);
    int memory = os_file_in_memory("shared");
    ASSERT_GE(memory, 0);
    ASSERT_EQ(os_file_identify(file_, &one), 0);
    ASSERT_EQ(os_file_identify(again, &two), 0);
    ASSERT_EQ(os_file_identify(memory, &other), 0);
    EXPECT_TRUE(one.device == two.device && one.number == two.number);
    EXPECT_FALSE(one.device == other.device && one.number == other.number);
    again = os_file_move_up(again);
    EXPECT_GE(again, 10);
    ASSERT_EQ(os_file_identify(again, &two), 0);
    EXPECT_EQ(one.number, two.number);
    os_file_close(again);
    os_file_close(memory);
}

TEST(SharedMemory, AChildReadsZeros)
{
    size_t page = os_page_size();
    auto *word = static_cast<volatile int *>(os_map(page));
    ASSERT_NE(word, nullptr);
    if (os_wipe_in_children(const_cast<int *>(word), page) != 0)
        GTEST_SKIP() << "the kernel does not wipe";
    *word = 5;
    pid_t child = fork();
    if (child == 0)
        _exit(*word);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(*word, 5);
    if (WEXITSTATUS(status) == 5)
        GTEST_SKIP() << "an emulator reports success for MADV_WIPEONFORK without effect";
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(Clocks, GoForward)
{
    uint64_t ns = os_now_ns();
    uint64_t ticks = os_ticks();
    while (os_now_ns() == ns) {
    }
    while (os_ticks() == ticks) {
    }
    EXPECT_GT(os_now_ns(), ns);
    EXPECT_GT(os_ticks_in_us(1000), 0U);
    EXPECT_GT(os_date_s(), 1600000000U);
}

} // namespace shared_test
