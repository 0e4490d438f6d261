// Reads the registers of a target's threads: they may contain the only pointer to a block, and show
// which part of each stack is in use. A thread of a process is stopped for some tens of
// microseconds (PTRACE_SEIZE, PTRACE_INTERRUPT), or held until it is released; a thread that was
// stopped before stays stopped. A signal that arrives while a thread is being stopped is delivered
// when the thread continues.
//
// Vector registers are read too: memmove() and sorting functions have pointers in them that are
// nowhere else for a moment.
#include "look.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS_MOST = 64, STATE_BYTES_MOST = 32 << 10, ROUNDS_MOST = 16, REST_US = 200 };
enum { X86_64_BYTES = 27 * 8, AARCH64_BYTES = 34 * 8 }; // length of a machine's general registers
enum { THREAD_GONE = -1, THREAD_LATE = -2 };
#define NO_DEADLINE UINT64_MAX
#define ALONE_NS    ((uint64_t)1000000000) // a single thread delays no other

uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// Returns: the stack pointer among the general registers, whose length identifies the machine.
static uint64_t stack_pointer_of(const uint64_t *words, size_t bytes)
{
    enum { X86_64_RSP = 19, AARCH64_SP = 31 };
    return bytes == X86_64_BYTES    ? words[X86_64_RSP]
           : bytes == AARCH64_BYTES ? words[AARCH64_SP]
                                    : 0;
}

bool is_in_exit(int thread)
{
    enum { X86_64_ORIG_RAX = 15, AARCH64_X8 = 8 };
    uint64_t words[WORDS_MOST];
    struct iovec piece = {words, sizeof words};
    if (ptrace(PTRACE_GETREGSET, thread, (void *)(uintptr_t)NT_PRSTATUS, &piece) != 0)
        return false;
    return words[piece.iov_len == X86_64_BYTES ? X86_64_ORIG_RAX : AARCH64_X8] == SYS_exit;
}

void add_words(struct target *target, const void *words, size_t bytes)
{
    size_t count = bytes / 8;
    while (target->register_words + count > target->registers_most) {
        target->registers_most = target->registers_most ? 2 * target->registers_most : 4096;
        target->registers =
            take_memory(target->registers, target->registers_most * sizeof *target->registers);
    }
    memcpy(target->registers + target->register_words, words, count * 8);
    target->register_words += count;
}

void add_registers(struct target *target, const void *registers, size_t bytes)
{
    uint64_t words[WORDS_MOST];
    bytes = bytes < sizeof words ? bytes / 8 * 8 : sizeof words;
    memcpy(words, registers, bytes);
    add_words(target, words, bytes);
    target->stack_pointers = with_room(target->stack_pointers, target->thread_count,
                                       &target->stacks_most, sizeof *target->stack_pointers);
    target->stack_pointers[target->thread_count++] = stack_pointer_of(words, bytes);
}

void forget_threads(struct target *target)
{
    target->register_words = target->thread_count = target->threads_unread = 0;
}

// Reads the vector registers and the rest of the thread's state: all of it on x86-64, FP/SIMD and
// SVE on aarch64.
static void read_vectors(struct target *target, int thread)
{
    static const int kinds[] = {NT_X86_XSTATE, NT_ARM_SVE, NT_PRFPREG};
    static uint64_t state[STATE_BYTES_MOST / 8];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct iovec piece = {state, sizeof state};
        if (ptrace(PTRACE_GETREGSET, thread, (void *)(uintptr_t)kinds[i], &piece) == 0) {
            add_words(target, state, piece.iov_len);
            return;
        }
    }
}

void read_stopped_thread(struct target *target, int thread)
{
    uint64_t words[WORDS_MOST];
    struct iovec piece = {words, sizeof words};
    if (ptrace(PTRACE_GETREGSET, thread, (void *)(uintptr_t)NT_PRSTATUS, &piece) == 0) {
        add_registers(target, words, piece.iov_len);
        read_vectors(target, thread);
    } else {
        target->threads_unread++;
    }
}

struct held_thread {
    int thread;
    int signal; // the signal that stopped it and must be delivered; 0: none
};
static struct held_thread *held_threads;
static size_t held_count, held_most;
static uint64_t released_ns; // time when the last held thread was released

static bool is_held(int thread)
{
    for (size_t i = 0; i < held_count; i++)
        if (held_threads[i].thread == thread)
            return true;
    return false;
}

// Returns: whether a thread has ended. A main thread that has ended remains until the others have
// ended.
static bool has_ended(const struct target *target, int thread)
{
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", target->pid, thread);
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(line, sizeof line, file) == NULL)
        line[0] = '\0';
    if (file)
        (void)fclose(file);
    const char *end = strrchr(line, ')');
    return end == NULL || end[1] != ' ' || end[2] == 'Z' || end[2] == 'X';
}

// Requests a thread to stop. Returns: false when it has ended or may not be traced.
static bool ask_to_stop(struct target *target, int thread)
{
    if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0) {
        target->threads_unread += errno == EPERM && !has_ended(target, thread);
        return false;
    }
    return ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) == 0;
}

// Waits until a thread has stopped after ask_to_stop(). SIGCHLD, which the kernel sends, is blocked
// so that it can be waited for with a limit.
// Returns: the signal that stopped it, 0 for none, THREAD_GONE or THREAD_LATE.
static int wait_stopped(int thread, uint64_t deadline)
{
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &children, NULL);
    for (;;) {
        int status = 0;
        int seen = waitpid(thread, &status, __WALL | (deadline == NO_DEADLINE ? 0 : WNOHANG));
        if (seen < 0 && errno == EINTR)
            continue;
        if (seen < 0 || (seen == thread && !WIFSTOPPED(status)))
            return THREAD_GONE;
        if (seen == thread)
            return status >> 16 ? 0 : WSTOPSIG(status);
        uint64_t now = now_ns();
        if (now >= deadline)
            return THREAD_LATE;
        struct timespec rest = {.tv_nsec = (long)(deadline - now)};
        if (sigtimedwait(&children, NULL, &rest) < 0 && errno == EAGAIN)
            return THREAD_LATE;
    }
}

static void let_go(const struct held_thread *held)
{
    (void)ptrace(PTRACE_DETACH, held->thread, NULL, (void *)(uintptr_t)held->signal);
}

void release_threads(void)
{
    for (size_t i = 0; i < held_count; i++)
        let_go(&held_threads[i]);
    if (held_count > 0)
        released_ns = now_ns();
    held_count = 0;
}

uint64_t released_at(void) { return released_ns; }

// Releases the threads from `from` on, each as soon as it stops, without waiting for another one.
static void release_late(size_t from, size_t count)
{
    while (count > from) {
        size_t left = from;
        for (size_t i = from; i < count; i++) {
            struct held_thread held = held_threads[i];
            held.signal = wait_stopped(held.thread, 0);
            if (held.signal == THREAD_LATE)
                held_threads[left++] = held;
            else if (held.signal != THREAD_GONE)
                let_go(&held);
        }
        count = left;
        if (count > from)
            (void)usleep(REST_US);
    }
}

// Waits for the threads from `from` on to stop, and drops those that have ended. Returns: false
// when one is late; then all are released.
static bool wait_all(size_t from, uint64_t deadline)
{
    size_t stopped = from;
    for (size_t i = from; i < held_count; i++) {
        int thread = held_threads[i].thread, signal = wait_stopped(thread, deadline);
        if (signal == THREAD_LATE) {
            size_t count = held_count;
            held_count = stopped;
            release_threads();
            release_late(i, count);
            return false;
        }
        if (signal != THREAD_GONE)
            held_threads[stopped++] = (struct held_thread){thread, signal};
    }
    held_count = stopped;
    return true;
}

typedef void thread_seen(struct target *target, int thread, void *context);

static void each_thread(struct target *target, thread_seen *seen, void *context)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", target->pid);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        int thread = atoi(entry->d_name);
        if (thread > 0)
            seen(target, thread, context);
    }
    (void)closedir(folder);
}

struct stopping {
    uint64_t deadline;
    bool found_new, is_late;
};

static void stop_to_hold(struct target *target, int thread, void *context)
{
    struct stopping *stopping = context;
    stopping->is_late = stopping->is_late || now_ns() >= stopping->deadline;
    if (stopping->is_late || is_held(thread) || !ask_to_stop(target, thread))
        return;
    stopping->found_new = true;
    held_threads = with_room(held_threads, held_count, &held_most, sizeof *held_threads);
    held_threads[held_count++] = (struct held_thread){thread, 0};
}

static uint64_t end_of(uint64_t since, uint64_t most_ns)
{
    return most_ns < NO_DEADLINE - since ? since + most_ns : NO_DEADLINE;
}

static bool read_held(struct target *target, uint64_t deadline)
{
    for (size_t i = 0; i < held_count; i++) {
        if (now_ns() >= deadline)
            return false;
        read_stopped_thread(target, held_threads[i].thread);
    }
    return true;
}

bool hold_threads(struct target *target, uint64_t most_ns, uint64_t *since)
{
    struct stopping stopping = {.found_new = true};
    *since = now_ns();
    for (int round = 0; stopping.found_new && round < ROUNDS_MOST; round++) {
        size_t from = held_count;
        stopping = (struct stopping){.deadline = end_of(*since, most_ns)};
        target->threads_unread = 0;
        each_thread(target, stop_to_hold, &stopping);
        bool process_is_single_threaded = held_count == 1 && most_ns != NO_DEADLINE;
        if (!wait_all(from, process_is_single_threaded ? now_ns() + ALONE_NS : stopping.deadline) ||
            stopping.is_late)
            return false;
        if (process_is_single_threaded && from == 0)
            *since = now_ns();
    }
    return read_held(target, end_of(*since, most_ns));
}

static void stop_to_read(struct target *target, int thread, void *context)
{
    const bool *is_first = context;
    if (!*is_first)
        (void)usleep(REST_US); // after a rest this program waits less for a processor
    if (!ask_to_stop(target, thread))
        return;
    struct held_thread held = {thread, wait_stopped(thread, NO_DEADLINE)};
    if (held.signal == THREAD_GONE)
        return;
    read_stopped_thread(target, thread);
    let_go(&held);
}

void read_threads(struct target *target, bool hold)
{
    if (hold) {
        uint64_t since;
        (void)hold_threads(target, NO_DEADLINE, &since);
        return;
    }
    bool is_first = go_first();
    each_thread(target, stop_to_read, &is_first);
    go_as_before();
}
