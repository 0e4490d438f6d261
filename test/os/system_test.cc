// Clock, entropy, environment, files, the cgroup's limit, and the calls that base/ relies on.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <set>
#include <string>
#include <thread>

extern "C" {
#include "base/host.h"
#include "os/os.h"
}

namespace
{

class TemporaryFile
{
  public:
    explicit TemporaryFile(const std::string &text)
    {
        const int file = mkstemp(path_);
        EXPECT_GE(file, 0);
        EXPECT_EQ(write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
        close(file);
    }
    ~TemporaryFile() { unlink(path_); }
    const char *path() const { return path_; }

  private:
    char path_[64] = "/tmp/cairn-system-test-XXXXXX";
};

TEST(System, TheClockRuns)
{
    const uint64_t start_us = os_now_us();
    const uint64_t before = os_now_ms();
    os_sleep_ms(50);
    const uint64_t slept = os_now_ms() - before;
    const uint64_t most = (os_now_us() - start_us) / 1000;
    EXPECT_GE(slept, 40u); // the coarse clock's step is some milliseconds
    EXPECT_LE(slept, most + 10);
}

TEST(System, EntropyVaries)
{
    std::set<uint64_t> values;
    for (int i = 0; i < 100; i++)
        values.insert(os_entropy());
    EXPECT_EQ(values.size(), 100u);
}

TEST(System, EnvironmentByWholeName)
{
    setenv("CAIRN_TEST_NAME", "value:1,other:2", 1);
    setenv("CAIRN_TEST_EMPTY", "", 1);
    EXPECT_STREQ(os_environment("CAIRN_TEST_NAME"), "value:1,other:2");
    EXPECT_STREQ(os_environment("CAIRN_TEST_EMPTY"), "");
    EXPECT_EQ(os_environment("CAIRN_TEST_NAM"), nullptr);
    EXPECT_EQ(os_environment("CAIRN_TEST_NAME_"), nullptr);
    unsetenv("CAIRN_TEST_NAME");
    EXPECT_EQ(os_environment("CAIRN_TEST_NAME"), nullptr);
}

TEST(System, ThisProcessIsNotSecure) { EXPECT_FALSE(os_is_secure()); }

TEST(System, ReadsFiles)
{
    const TemporaryFile file("0123456789");
    char text[64];
    EXPECT_EQ(os_read_file(file.path(), text, sizeof text), 10);
    EXPECT_STREQ(text, "0123456789");
    EXPECT_EQ(os_read_file(file.path(), text, 5), 4) << "the rest does not fit";
    EXPECT_STREQ(text, "0123");
    EXPECT_EQ(os_read_file(file.path(), text, 1), 0);
    EXPECT_STREQ(text, "");
    errno = 12345;
    EXPECT_EQ(os_read_file("/nonexistent/file", text, sizeof text), -ENOENT);
    EXPECT_EQ(os_read_file("/proc", text, sizeof text), -EISDIR);
    EXPECT_EQ(errno, 12345);
}

TEST(System, ReadingFilesLeavesNoDescriptorOpen)
{
    const int before = dup(0);
    close(before);
    char text[16];
    for (int i = 0; i < 10; i++)
        os_read_file("/proc/self/status", text, sizeof text);
    const int after = dup(0);
    close(after);
    EXPECT_EQ(before, after);
}

TEST(System, ErrorsGoToStderrWhole)
{
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const int saved = dup(STDERR_FILENO);
    dup2(ends[1], STDERR_FILENO);
    const std::string line(3000, 'x');
    host_write_error(line.data(), line.size());
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    std::string got(4000, '\0');
    got.resize(static_cast<size_t>(read(ends[0], got.data(), got.size())));
    close(ends[0]);
    EXPECT_EQ(got, line);
}

TEST(System, ErrorsToNowhereAreDropped)
{
    const int saved = dup(STDERR_FILENO);
    close(STDERR_FILENO);
    errno = 12345;
    host_write_error("x", 1);
    EXPECT_EQ(errno, 12345);
    dup2(saved, STDERR_FILENO);
    close(saved);
}

std::string content_of(const std::string &path)
{
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(SystemDeathTest, AFileForReports)
{
    const std::string path = testing::TempDir() + "report-" + std::to_string(getpid());
    const auto report_to = [](const std::string &name) {
        return os_report_to(name.data(), name.size());
    };
    EXPECT_EXIT(
        {
            bool taken = report_to(path) && !report_to("relative") && !report_to("/no/such/file");
            taken = taken && !report_to("/" + std::string(300, 'x')) && !report_to("");
            close(STDOUT_FILENO); // a program that closes all it has
            for (const char *line : {"one\n", "two\n"})
                host_write_error(line, 4);
            _exit(taken ? 0 : 1);
        },
        testing::ExitedWithCode(0), "^$");
    EXPECT_EQ(content_of(path), "one\ntwo\n");
    struct stat facts;
    ASSERT_EQ(stat(path.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u) << "reports name addresses";
    unlink(path.c_str());
    EXPECT_EXIT( // its folder has gone
        {
            const std::string folder = path + ".d";
            mkdir(folder.c_str(), 0700);
            const bool taken = report_to(folder + "/file");
            unlink((folder + "/file").c_str());
            rmdir(folder.c_str());
            host_write_error("here\n", 5);
            _exit(taken ? 0 : 1);
        },
        testing::ExitedWithCode(0), "^here\n$");
}

TEST(System, WaitReturnsAtOnceWhenTheWordChanged)
{
    uint32_t word = 1;
    host_wait(&word, 2);
}

TEST(System, WakeEndsAWait)
{
    uint32_t word = 0;
    std::atomic<bool> woken{false};
    std::thread waiter([&] {
        while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) == 0)
            host_wait(&word, 0);
        woken = true;
    });
    os_sleep_ms(20);
    EXPECT_FALSE(woken);
    __atomic_store_n(&word, 1, __ATOMIC_RELEASE);
    host_wake(&word, UINT32_MAX);
    waiter.join();
    EXPECT_TRUE(woken);
}

} // namespace
