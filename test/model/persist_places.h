// A child process in which the resources of a heap may be limited: mounts, limits, full disks.
#pragma once

#include <gtest/gtest.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <string>

namespace places
{

// Runs `work` in a child.
// Returns: "" for success, the failure, or "skip: " and a reason.
inline std::string apart(const std::function<std::string()> &work)
{
    int ends[2];
    if (pipe(ends) != 0)
        return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
        const std::string said = work();
        const ssize_t put = write(ends[1], said.data(), said.size());
        _exit(put == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    close(ends[1]);
    std::string said;
    char bytes[256];
    for (ssize_t got; (got = read(ends[0], bytes, sizeof bytes)) > 0;)
        said.append(bytes, static_cast<size_t>(got));
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        said += " ended by signal " + std::to_string(WTERMSIG(status));
    return said;
}

#define EXPECT_APART(...)                                                                          \
    do {                                                                                           \
        const std::string said = apart(__VA_ARGS__);                                               \
        if (said.compare(0, 6, "skip: ") == 0)                                                     \
            GTEST_SKIP() << said.substr(6);                                                        \
        EXPECT_EQ(said, "");                                                                       \
    } while (false)

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return std::string("line ") + std::to_string(__LINE__) + ": " #condition + ", " +      \
                   strerror(errno);                                                                \
    } while (false)

// Mounts a tmpfs over the folder, in a mount namespace of the child.
// Returns: "" for success, or the reason of the failure.
inline std::string mount_small(const std::string &path, const char *size)
{
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return "skip: no mount namespace of its own";
    if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", path.c_str(), "tmpfs", 0, size) != 0)
        return "skip: nothing can be mounted";
    return "";
}

// A file that fills the disk except for about the given number of bytes.
class Filler
{
  public:
    explicit Filler(const std::string &path) : path_(path) {}
    void leave(size_t bytes)
    {
        unlink(path_.c_str());
        const int file = open(path_.c_str(), O_RDWR | O_CREAT, 0600);
        const std::string block(65536, 'f');
        off_t size = 0;
        for (ssize_t put; (put = pwrite(file, block.data(), block.size(), size)) > 0;)
            size += put;
        sync_file(file);
        if (bytes > 0 && ftruncate(file, std::max<off_t>(0, size - static_cast<off_t>(bytes))) != 0)
            abort();
        sync_file(file);
        close(file);
    }
    void go() { unlink(path_.c_str()); }

  private:
    static void sync_file(int file)
    {
        if (fsync(file) != 0) // the file system may find only now that it is full
            errno = 0;
    }
    std::string path_;
};

} // namespace places
