// cairn-measure runs one command and writes its cost as one line of key=value words.
//
//   cairn-measure [--preload LIBRARIES] [--for MS] [--grace MS] RESULT_FD COMMAND [ARGUMENT…]
//
// This program exists because the peak RSS that wait4 reports starts at the peak of the process
// image that called exec: exec_mmap of Linux keeps the high-water mark of the old image. A Python
// tool that started the command itself would add its own 40 MiB to every figure. The peak of this
// program is smaller than that of any dynamically linked command.
//
// The figures cover the command and all descendants that it waited for. Times are sums, and the
// peak RSS is that of the largest single process, as in getrusage. A process that remains as a
// daemon is not counted.
//
// With --for, the command receives SIGTERM after that time, and SIGKILL if it has not ended after
// the grace time (5 s). Processes that it leaves behind become children of this program (a
// subreaper), are stopped in the same way, and are counted. SIGTERM to this program does this at
// once, and a second SIGTERM kills at once. The end of this program's parent counts as SIGTERM.
//
// Exit status: 0 when the command was run, however it ended; 1 when it could not be started; 2 for
// wrong arguments.
#define _GNU_SOURCE // pipe2, timeradd
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GRACE_MS = 5000, KILL_AGAIN_MS = 10 };
static const long longest_ms = LONG_MAX / 1000000;

struct arguments {
    const char *preload; // NULL: none
    long limit_ms;       // 0: none
    long grace_ms;       // from SIGTERM to SIGKILL
    int result_fd;
    char **command;
};

struct outcome {
    long long start_ns, end_ns;
    struct rusage usage;
    int status;   // of the command, as from wait4
    bool stopped; // this program sent it SIGTERM
    bool killed;  // this program sent it SIGKILL
};

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long long time_us(struct timeval time) { return time.tv_sec * 1000000LL + time.tv_usec; }

static bool parse_number(const char *text, long most, long *number)
{
    char *end;
    errno = 0;
    *number = strtol(text, &end, 10);
    return errno == 0 && end != text && !*end && *number >= 0 && *number <= most;
}

static bool parse_arguments(int argc, char **argv, struct arguments *arguments)
{
    int at = 1;
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        const char *name = argv[at], *value = argv[at + 1];
        long *number = strcmp(name, "--for") == 0     ? &arguments->limit_ms
                       : strcmp(name, "--grace") == 0 ? &arguments->grace_ms
                                                      : NULL;
        if (strcmp(name, "--preload") == 0)
            arguments->preload = value;
        else if (!number || !parse_number(value, longest_ms, number))
            return false;
    }
    long result_fd;
    if (at + 1 >= argc || !parse_number(argv[at], 1023, &result_fd))
        return false;
    arguments->result_fd = (int)result_fd;
    arguments->command = argv + at + 1;
    return true;
}

// Starts the command in the child. An error is sent to the parent through a pipe that a successful
// exec closes.
static _Noreturn void start(const struct arguments *arguments, int error_fd, const sigset_t *mask)
{
    sigprocmask(SIG_SETMASK, mask, NULL);
    prctl(PR_SET_PDEATHSIG, SIGKILL); // the command does not outlive its measurement
    char **command = arguments->command;
    if (!arguments->preload || setenv("LD_PRELOAD", arguments->preload, 1) == 0)
        execvp(command[0], command);
    int error = errno;
    ssize_t written = write(error_fd, &error, sizeof error);
    _exit(written == (ssize_t)sizeof error ? 127 : 126);
}

// Adds the cost of a process.
static void add_usage(struct rusage *sum, const struct rusage *part)
{
    timeradd(&sum->ru_utime, &part->ru_utime, &sum->ru_utime);
    timeradd(&sum->ru_stime, &part->ru_stime, &sum->ru_stime);
    if (sum->ru_maxrss < part->ru_maxrss)
        sum->ru_maxrss = part->ru_maxrss;
    sum->ru_minflt += part->ru_minflt;
    sum->ru_majflt += part->ru_majflt;
}

// Signals every child of this process except the command: the processes that it left behind.
// Returns: whether the kernel lists them.
static bool signal_left_behind(pid_t command, int number)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    int child;
    while (fscanf(file, "%d", &child) == 1) {
        if (child != command)
            kill(child, number);
    }
    fclose(file);
    return true;
}

// Reaps the ended children. Returns: whether a child remains.
static bool reap(pid_t command, bool all, struct outcome *outcome, bool *ended)
{
    struct rusage usage;
    int status;
    pid_t child;
    while ((child = wait4(all ? -1 : command, &status, WNOHANG, &usage)) > 0) {
        add_usage(&outcome->usage, &usage);
        if (child == command) {
            outcome->end_ns = now_ns();
            outcome->status = status;
            *ended = true;
        }
    }
    return child == 0;
}

// Waits for a signal of the set, which is blocked, for at most `most_ns`; LLONG_MAX: no limit.
static int wait_for_signal(const sigset_t *set, long long most_ns)
{
    struct timespec most = {most_ns / 1000000000, most_ns % 1000000000};
    return most_ns == LLONG_MAX ? sigwaitinfo(set, NULL) : sigtimedwait(set, NULL, &most);
}

// Waits for the command and, with a limit, for the processes that it leaves behind. SIGTERM is sent
// at the limit, at this program's own SIGTERM, or when the command has ended and left processes.
// SIGKILL follows after the grace time or at another SIGTERM, repeatedly, since the children of
// killed processes become children of this program.
static void await(pid_t command, const struct arguments *arguments, const sigset_t *watched,
                  struct outcome *outcome)
{
    bool all = arguments->limit_ms > 0, ended = false;
    long long due_ns = all ? now_ns() + arguments->limit_ms * 1000000LL : LLONG_MAX;
    int sent = 0;
    while (reap(command, all, outcome, &ended)) {
        bool due = now_ns() >= due_ns || (ended && !sent);
        if (!due) {
            long long most_ns = due_ns == LLONG_MAX ? LLONG_MAX : due_ns - now_ns();
            due = wait_for_signal(watched, most_ns < 0 ? 0 : most_ns) == SIGTERM;
        }
        if (!due)
            continue;
        sent = sent ? SIGKILL : SIGTERM;
        if (!ended) {
            outcome->stopped = true;
            outcome->killed = sent == SIGKILL;
            kill(command, sent);
        }
        if (all && !signal_left_behind(command, sent) && ended)
            return;
        due_ns = now_ns() + (sent == SIGTERM ? arguments->grace_ms : KILL_AGAIN_MS) * 1000000LL;
    }
}

static int report(int fd, const struct outcome *outcome)
{
    int status = outcome->status;
    const struct rusage *usage = &outcome->usage;
    int written =
        dprintf(fd,
                "wall_ns=%lld user_us=%lld system_us=%lld peak_rss_kib=%ld minor_faults=%ld "
                "major_faults=%ld exit_code=%d signal=%d stopped=%d killed=%d\n",
                outcome->end_ns - outcome->start_ns, time_us(usage->ru_utime),
                time_us(usage->ru_stime), usage->ru_maxrss, usage->ru_minflt, usage->ru_majflt,
                WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                WIFSIGNALED(status) ? WTERMSIG(status) : 0, outcome->stopped, outcome->killed);
    return written > 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.grace_ms = GRACE_MS};
    if (!parse_arguments(argc, argv, &arguments)) {
        fprintf(stderr, "usage: cairn-measure [--preload LIBRARIES] [--for MS] [--grace MS] "
                        "RESULT_FD COMMAND…\n");
        return 2;
    }
    int error_pipe[2];
    if (pipe2(error_pipe, O_CLOEXEC) != 0 || fcntl(arguments.result_fd, F_SETFD, FD_CLOEXEC) != 0 ||
        (arguments.limit_ms && prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)) {
        fprintf(stderr, "cairn-measure: cannot prepare the run: %s\n", strerror(errno));
        return 1;
    }
    // The signals are blocked before the fork, so that none is lost. The command gets the original
    // mask.
    sigset_t watched, blocked, before;
    sigemptyset(&watched);
    sigaddset(&watched, SIGCHLD);
    sigaddset(&watched, SIGTERM);
    blocked = watched;
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGQUIT);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    prctl(PR_SET_PDEATHSIG, SIGTERM); // a tool that is killed leaves no command behind
    signal(SIGCHLD, SIG_DFL); // if ignored, the children would have no status

    struct outcome outcome = {.start_ns = now_ns()};
    pid_t child = fork();
    if (child == 0)
        start(&arguments, error_pipe[1], &before);
    // The terminal's interrupt reaches the command too, which decides how to react; its cost is
    // still reported.
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    close(error_pipe[1]);
    if (child < 0) {
        fprintf(stderr, "cairn-measure: cannot start %s: %s\n", arguments.command[0],
                strerror(errno));
        return 1;
    }
    await(child, &arguments, &watched, &outcome);

    int error;
    if (read(error_pipe[0], &error, sizeof error) == (ssize_t)sizeof error) {
        fprintf(stderr, "cannot start %s: %s\n", arguments.command[0], strerror(error));
        return 1;
    }
    return report(arguments.result_fd, &outcome);
}
