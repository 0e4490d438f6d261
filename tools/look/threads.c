// The registers of a target's threads: pointers that stand nowhere else, and how far each stack is
// in use. A thread of a process is stopped for them (PTRACE_SEIZE, PTRACE_INTERRUPT), some tens of
// microseconds, or held until the end; one that was stopped before stays so.
#include "look.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_MOST = 64, ROUNDS_MOST = 16, REST_US = 200 };

// Where the stack pointer stands among a machine's general registers, which their length tells.
static uint64_t stack_pointer_of(const uint64_t *words, size_t bytes)
{
    enum { X86_64_BYTES = 27 * 8, X86_64_RSP = 19, AARCH64_BYTES = 34 * 8, AARCH64_SP = 31 };
    return bytes == X86_64_BYTES    ? words[X86_64_RSP]
           : bytes == AARCH64_BYTES ? words[AARCH64_SP]
                                    : 0;
}

void add_registers(struct target *target, const void *registers, size_t bytes)
{
    uint64_t words[WORDS_MOST];
    size_t count = bytes / 8 < WORDS_MOST ? bytes / 8 : WORDS_MOST;
    memcpy(words, registers, count * 8);
    size_t all = target->register_words + count;
    target->registers = take_memory(target->registers, (all + 1) * sizeof *target->registers);
    memcpy(target->registers + target->register_words, words, count * 8);
    target->register_words = all;
    target->stack_pointers = take_memory(
        target->stack_pointers, (target->thread_count + 1) * sizeof *target->stack_pointers);
    target->stack_pointers[target->thread_count++] = stack_pointer_of(words, bytes);
}

void forget_threads(struct target *target)
{
    target->register_words = target->thread_count = target->threads_unread = 0;
}

// False when it has ended, or may not be traced.
static bool stop_thread(int thread)
{
    int status;
    if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0)
        return false;
    return ptrace(PTRACE_INTERRUPT, thread, NULL, NULL) == 0 &&
           waitpid(thread, &status, __WALL) == thread && WIFSTOPPED(status);
}

static void read_thread(struct target *target, int thread)
{
    uint64_t words[WORDS_MOST];
    struct iovec piece = {words, sizeof words};
    if (ptrace(PTRACE_GETREGSET, thread, (void *)(uintptr_t)NT_PRSTATUS, &piece) == 0)
        add_registers(target, words, piece.iov_len);
    else
        target->threads_unread++;
}

static bool is_held(const int *held, size_t count, int thread)
{
    for (size_t i = 0; i < count; i++)
        if (held[i] == thread)
            return true;
    return false;
}

static int *held_threads;
static size_t held_count, held_most;

static void see_thread(struct target *target, int thread, bool hold)
{
    if (!stop_thread(thread)) {
        target->threads_unread += errno == EPERM;
        return;
    }
    read_thread(target, thread);
    if (!hold) {
        (void)ptrace(PTRACE_DETACH, thread, NULL, NULL);
        return;
    }
    held_threads = with_room(held_threads, held_count, &held_most, sizeof *held_threads);
    held_threads[held_count++] = thread;
}

// Each thread; while some are not held yet they may start others, so it looks again until it finds
// no new one.
void read_threads(struct target *target, bool hold)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", target->pid);
    bool is_first = !hold && go_first();
    bool found_new = true;
    for (int round = 0; found_new && round < (hold ? ROUNDS_MOST : 1); round++) {
        DIR *folder = opendir(path);
        if (folder == NULL)
            break;
        found_new = false;
        for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            int thread = atoi(entry->d_name);
            if (thread <= 0 || is_held(held_threads, held_count, thread))
                continue;
            found_new = true;
            if (!hold && !is_first)
                (void)usleep(REST_US); // who has rested waits less for a processor
            see_thread(target, thread, hold);
        }
        (void)closedir(folder);
    }
    if (!hold)
        go_as_before();
}

void release_threads(const struct target *target)
{
    (void)target;
    for (size_t i = 0; i < held_count; i++)
        (void)ptrace(PTRACE_DETACH, held_threads[i], NULL, NULL);
    held_count = 0;
}
