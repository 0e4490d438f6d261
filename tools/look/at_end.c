// Runs a program, stops it at its end while its memory still exists (PTRACE_EVENT_EXIT), and writes
// its lost blocks to a file, in the form of `cairn-look leaks PID every`.
//
// All threads are traced, but stopped only at their ends. A thread that ends alone is in the system
// call exit. A thread that ends otherwise ends the process: it called exit(), which has run the
// registered functions, it received a signal, or another thread did so. Then each thread stops on
// its way out, and its registers and stack are roots as before. A program that replaces itself by
// exec stays the traced one; programs that it starts are not examined. SIGTERM and SIGHUP are
// passed on to the program, and SIGUSR1 kills it. The last line of the file says how it ended.
#define _GNU_SOURCE
#include "look.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_STARTED = 127, THREADS_MOST = 1 << 16, REST_US = 100 };
#define END_MOST_NS ((uint64_t)1000000000)

// Reports the lost blocks when all threads are on their way out. `thread` still has the memory.
static void report_lost(struct target *target, int thread, const char *path)
{
    static struct library library;
    static char name[16];
    struct look look = {.target = target, .library = &library};
    snprintf(name, sizeof name, "%d", thread);
    target->name = name;
    open_process(target, thread);
    find_library(target, &library);
    if (freopen(path, "we", stdout) == NULL)
        fail("cannot write %s: %s", path, strerror(errno));
    leaks(&look, LEAKS_AT_END, true);
    if (fflush(stdout) != 0)
        fail("cannot write %s: %s", path, strerror(errno));
}

// Starts the program with this signal mask. It waits until this process has seized it.
static int start(char **command, const sigset_t *mask)
{
    int ready[2];
    char byte;
    if (pipe2(ready, O_CLOEXEC) != 0)
        fail("cannot create a pipe: %s", strerror(errno));
    int pid = fork();
    if (pid < 0)
        fail("cannot start %s: %s", command[0], strerror(errno));
    if (pid == 0) {
        (void)sigprocmask(SIG_SETMASK, mask, NULL);
        (void)close(ready[1]);
        (void)!read(ready[0], &byte, 1);
        const char *preload = getenv("CAIRN_LOOK_PRELOAD"); // this program itself runs without it
        if (preload)
            (void)setenv("LD_PRELOAD", preload, 1);
        (void)unsetenv("CAIRN_LOOK_PRELOAD");
        (void)execvp(command[0], command);
        fprintf(stderr, "cannot start %s: %s\n", command[0], strerror(errno));
        _exit(NOT_STARTED);
    }
    if (ptrace(PTRACE_SEIZE, pid, NULL, (void *)(PTRACE_O_TRACEEXIT | PTRACE_O_TRACECLONE)) != 0)
        fail("cannot trace %s: %s", command[0], strerror(errno));
    (void)close(ready[0]);
    (void)close(ready[1]);
    return pid;
}

static pid_t program;

static void pass_on(int signal)
{
    int error = errno;
    (void)kill(program, signal == SIGUSR1 ? SIGKILL : signal);
    errno = error;
}

static sigset_t passed_signals(void)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGUSR1);
    return set;
}

// Passes signals on. Ignores those of the terminal: they reach the program too, which decides how
// to react.
static void handle_signals(void)
{
    struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGQUIT, SIG_IGN);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)sigaction(SIGHUP, &action, NULL);
    (void)sigaction(SIGUSR1, &action, NULL);
}

// Lets a stopped thread continue, with the signal that stopped it.
static void go_on(int thread, int status)
{
    int event = status >> 16, signal = WSTOPSIG(status);
    if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) // stopped by SIGSTOP: stays stopped
        (void)ptrace(PTRACE_LISTEN, thread, NULL, NULL);
    else
        (void)ptrace(PTRACE_CONT, thread, NULL, (void *)(uintptr_t)(event ? 0 : signal));
}

static size_t count_threads(int pid)
{
    char path[64];
    size_t count = 0;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *folder = opendir(path);
    for (const struct dirent *entry; folder && (entry = readdir(folder)) != NULL;)
        count += entry->d_name[0] != '.';
    if (folder)
        (void)closedir(folder);
    return count;
}

// Waits until all threads have stopped on their way out, reads their registers, and reports.
static void end_all(int pid, int thread, const char *report)
{
    static struct target target;
    static int stopped[THREADS_MOST];
    size_t count = 0;
    uint64_t deadline = now_ns() + END_MOST_NS;
    stopped[count++] = thread;
    while (count < count_threads(pid) && count < THREADS_MOST && now_ns() < deadline) {
        int status, other = waitpid(-1, &status, __WALL | WNOHANG);
        if (other <= 0)
            (void)usleep(REST_US);
        else if (WIFSTOPPED(status) && status >> 16 == PTRACE_EVENT_EXIT)
            stopped[count++] = other;
        else if (WIFSTOPPED(status))
            go_on(other, status);
    }
    for (size_t i = 0; i < count; i++)
        read_stopped_thread(&target, stopped[i]);
    report_lost(&target, thread, report);
    for (size_t i = 0; i < count; i++)
        (void)ptrace(PTRACE_CONT, stopped[i], NULL, NULL);
}

// Writes how the program ended. Returns: its status as a shell reports it.
static int write_end(const char *report, int status)
{
    int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    int code = signal ? 128 + signal : WEXITSTATUS(status);
    FILE *file = fopen(report, "ae");
    if (file == NULL || fprintf(file, "end\tstatus=%d\tsignal=%d\n", code, signal) < 0 ||
        fclose(file) != 0)
        fail("cannot write %s: %s", report, strerror(errno));
    return code;
}

int leaks_at_end(const char *report, char **command)
{
    int status;
    bool is_reported = false;
    sigset_t passed = passed_signals(), former;
    (void)sigprocmask(SIG_BLOCK, &passed, &former);
    program = start(command, &former);
    handle_signals();
    (void)sigprocmask(SIG_SETMASK, &former, NULL);
    for (;;) {
        int thread = waitpid(-1, &status, __WALL);
        if (thread < 0 && errno == EINTR)
            continue;
        if (thread < 0)
            fail("cannot start %s: %s", command[0], strerror(errno));
        if (thread == program && (WIFEXITED(status) || WIFSIGNALED(status)))
            return write_end(report, status);
        if (!WIFSTOPPED(status))
            continue;
        if (status >> 16 == PTRACE_EVENT_EXIT && !is_reported &&
            (!is_in_exit(thread) || count_threads(program) == 1)) {
            is_reported = true;
            end_all(program, thread, report);
        } else {
            go_on(thread, status);
        }
    }
}
