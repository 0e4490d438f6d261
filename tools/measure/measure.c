// cairn-measure: runs one command and writes what it cost as one line of key=value words.
//
//   cairn-measure [--preload LIBRARY] RESULT_FD COMMAND [ARGUMENT…]
//
// It exists because the peak RSS that wait4 reports begins with the peak of the process image
// that called exec (Linux, exec_mmap: the old image's high-water mark is carried over). A Python
// tool that starts the command itself would put its own 40 MiB under every figure; this program's
// own peak is smaller than that of any dynamically linked command.
//
// The figures cover the command and all descendants that it waited for: times are sums, the peak
// RSS is that of the largest single process (getrusage's rule). A process that is left behind as
// a daemon is not counted.
//
// Exit status: 0 when the command was run, however it ended; 1 when it could not be started, 2 for
// wrong arguments.
#define _GNU_SOURCE // pipe2
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long long time_us(struct timeval time)
{
    return time.tv_sec * 1000000LL + time.tv_usec;
}

// In the child. An error goes to the parent through a pipe that a successful exec closes.
static _Noreturn void start(char **command, const char *preload, int error_fd)
{
    if (!preload || setenv("LD_PRELOAD", preload, 1) == 0)
        execvp(command[0], command);
    int error = errno;
    ssize_t written = write(error_fd, &error, sizeof error);
    _exit(written == (ssize_t)sizeof error ? 127 : 126);
}

static int report(int fd, int status, long long wall_ns, const struct rusage *usage)
{
    int written = dprintf(fd,
                          "wall_ns=%lld user_us=%lld system_us=%lld peak_rss_kib=%ld "
                          "minor_faults=%ld major_faults=%ld exit_code=%d signal=%d\n",
                          wall_ns, time_us(usage->ru_utime), time_us(usage->ru_stime),
                          usage->ru_maxrss, usage->ru_minflt, usage->ru_majflt,
                          WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                          WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    return written > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    const char *preload = NULL;
    int at = 1;
    if (argc > 2 && strcmp(argv[1], "--preload") == 0) {
        preload = argv[2];
        at = 3;
    }
    char *end = NULL;
    long result_fd = at < argc ? strtol(argv[at], &end, 10) : -1;
    if (result_fd < 0 || result_fd > 1023 || *end || at + 1 >= argc) {
        fprintf(stderr, "usage: cairn-measure [--preload LIBRARY] RESULT_FD COMMAND…\n");
        return 2;
    }
    char **command = argv + at + 1;
    int error_pipe[2];
    if (pipe2(error_pipe, O_CLOEXEC) != 0 || fcntl((int)result_fd, F_SETFD, FD_CLOEXEC) != 0) {
        perror("cairn-measure");
        return 1;
    }

    long long start_ns = now_ns();
    pid_t child = fork();
    if (child == 0)
        start(command, preload, error_pipe[1]);
    // The terminal's interrupt reaches the command too; it decides, and its cost is still told.
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    close(error_pipe[1]);

    int status;
    struct rusage usage;
    if (child < 0 || wait4(child, &status, 0, &usage) != child) {
        perror("cairn-measure");
        return 1;
    }
    long long wall_ns = now_ns() - start_ns;

    int error;
    if (read(error_pipe[0], &error, sizeof error) == (ssize_t)sizeof error) {
        fprintf(stderr, "%s: %s\n", command[0], strerror(error));
        return 1;
    }
    return report((int)result_fd, status, wall_ns, &usage);
}
