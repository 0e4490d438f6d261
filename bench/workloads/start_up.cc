// Start-up: the cost that a preloaded allocator adds to a program that does nothing. The program
// cairn-nothing is started with and without the LD_PRELOAD of this process, in turn.
#include <algorithm>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"
#include "workload.h"

extern char **environ;

namespace bench
{
namespace
{

constexpr size_t kEnvironmentMost = 1000;

// The path of cairn-nothing, in the folder of this program.
const char *nothing_path()
{
    static char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0) {
        fail("/proc/self/exe cannot be read");
    }
    path[length] = '\0';
    char *name = strrchr(path, '/') + 1;
    if (static_cast<size_t>(path + sizeof path - name) < sizeof "cairn-nothing") {
        fail("the path of this program is too long");
    }
    strcpy(name, "cairn-nothing");
    return path;
}

char *const *environment_without_preload()
{
    static char *without[kEnvironmentMost];
    size_t count = 0;
    for (char **entry = environ; *entry != nullptr && count < kEnvironmentMost - 1; entry++) {
        if (strncmp(*entry, "LD_PRELOAD=", strlen("LD_PRELOAD=")) != 0) {
            without[count++] = *entry;
        }
    }
    return without;
}

void start_and_wait(char *const *arguments, char *const *environment)
{
    pid_t child;
    const int error = posix_spawn(&child, arguments[0], nullptr, nullptr, arguments, environment);
    int status = 0;
    if (error != 0) {
        errno = error;
        perror(arguments[0]);
        fail("the program that does nothing cannot be started");
    }
    if (waitpid(child, &status, 0) != child || status != 0) {
        fail("the program that does nothing failed");
    }
}

double start_ns(char *const *environment)
{
    char *arguments[] = {const_cast<char *>(nothing_path()), nullptr};
    return time_ns([&] { start_and_wait(arguments, environment); });
}

// The program reports its resident memory itself, because the peak in wait4 includes that of its
// starter.
double resident_kib(char *const *environment)
{
    int ends[2];
    if (pipe(ends) != 0) {
        fail("no pipe");
    }
    char fd[16];
    snprintf(fd, sizeof fd, "%d", ends[1]);
    char *arguments[] = {const_cast<char *>(nothing_path()), fd, nullptr};
    start_and_wait(arguments, environment);
    char text[32] = "";
    const ssize_t length = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    close(ends[1]);
    if (length <= 0) {
        fail("the program that does nothing told nothing");
    }
    return strtod(text, nullptr);
}

double median(double *values, size_t count)
{
    std::sort(values, values + count);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

void start_up(Run &run)
{
    constexpr size_t kStartsMost = 500, kReadings = 9;
    const size_t starts = std::min(run.scaled(150, 3), kStartsMost);
    char *const *plain = environment_without_preload();
    static double with_ns[kStartsMost], without_ns[kStartsMost];
    for (size_t i = 0; i < starts; i++) {
        with_ns[i] = start_ns(environ);
        without_ns[i] = start_ns(plain);
    }
    double with_kib[kReadings], without_kib[kReadings];
    for (size_t i = 0; i < kReadings; i++) {
        with_kib[i] = resident_kib(environ);
        without_kib[i] = resident_kib(plain);
    }
    const double ms = median(with_ns, starts) / 1e6;
    const double kib = median(with_kib, kReadings);
    run.figure("start_ms", ms, "ms");
    run.figure("start_kib", kib, "KiB");
    run.figure("start_over_libc_ms", ms - median(without_ns, starts) / 1e6, "ms");
    run.figure("start_over_libc_kib", kib - median(without_kib, kReadings), "KiB");
}

const Workload kRows[] = {
    {"start-up", "memory", "start of a program that does nothing", "start_ms", "start_kib", 64,
     start_up},
};

} // namespace

const WorkloadTable kStartUp = {kRows, sizeof kRows / sizeof kRows[0]};

} // namespace bench
