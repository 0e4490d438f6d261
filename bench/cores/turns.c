/* Which thread of the program runs: one at a time, the one whose clock is lowest, until its clock
 * is `quantum` cycles ahead of the next one. So the threads interleave finely, however few
 * processors the machine has. A thread gives its turn away for a system call that may block.
 *
 * qemu sometimes waits until all threads have left translated code: when the first thread is made,
 * and before a fork. The threads that wait for their turn then continue without it for one block of
 * code each, which is not counted. */
#define _GNU_SOURCE
#include "simulator.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    ALONE_QUANTA = 1000, /* of a thread that runs alone */
    STUCK_MS = 2000,     /* without any turn: qemu needs the threads */
    FORK_STEP_US = 200,  /* between two blocks of a thread during a fork */
    ASLEEP_TRIES = 2000,
};

struct thread *turns_holder, *turns_threads[THREADS_MAX];
unsigned turns_count;
pthread_mutex_t turns_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;
static unsigned next_core, loads[CORES_MAX];
static unsigned passes; /* times that all threads ran without their turn */
static bool forks;      /* a thread is within fork */
/* The last thread that gave its turn away to sleep on a futex. It must be in the kernel, or have
 * returned, before another thread runs: else it might find the word changed, and return much later
 * than the simulated time says. */
static struct thread *falls_asleep;

static struct thread *turns_lowest(const struct thread *except)
{
    struct thread *best = NULL;
    for (unsigned i = 0; i < turns_count; i++) {
        struct thread *thread = turns_threads[i];
        if (thread && thread->wants && thread != except && (!best || thread->clock < best->clock))
            best = thread;
    }
    return best;
}

static void turns_grant(struct thread *thread)
{
    turns_holder = thread;
    if (thread == NULL)
        return;
    thread->shared = false;
    const struct thread *second = turns_lowest(thread);
    thread->limit = second ? second->clock + quantum : thread->clock + ALONE_QUANTA * quantum;
    totals.turns++;
    pthread_cond_signal(&thread->wake);
}

static void turns_wake_all(void)
{
    for (unsigned i = 0; i < turns_count; i++)
        if (turns_threads[i])
            pthread_cond_signal(&turns_threads[i]->wake);
}

static void turns_let_fall_asleep(void)
{
    const struct thread *thread = falls_asleep;
    falls_asleep = NULL;
    for (int i = 0; thread && thread->sleeps_on != 0 && i < ASLEEP_TRIES; i++) {
        char name[64], text[8] = "";
        snprintf(name, sizeof name, "/proc/self/task/%d/syscall", thread->number);
        int file = open(name, O_RDONLY);
        if (file < 0)
            return;
        ssize_t length = read(file, text, 4);
        close(file);
        if (length == 4 && memcmp(text, "202 ", 4) == 0) /* futex */
            return;
        pthread_mutex_unlock(&turns_lock);
        usleep(i < 10 ? 5 : 100);
        pthread_mutex_lock(&turns_lock);
    }
}

/* Waits for a signal to the thread, at most this time. Returns: whether the time is over. */
static bool turns_sleep(pthread_cond_t *condition, long us)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    long ns = until.tv_nsec + us % 1000000 * 1000;
    until.tv_sec += us / 1000000 + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    return pthread_cond_timedwait(condition, &turns_lock, &until) == ETIMEDOUT;
}

/* Lets all threads run without their turn, because nothing happens. */
static void turns_pass(void)
{
    totals.escapes++;
    passes++;
    totals.turns++;
    if (getenv("CORES_DEBUG"))
        fprintf(stderr, "no progress: last call %" PRId64 ", counting %d, threads %u\n",
                turns_holder ? turns_holder->in_call : 0, counting, turns_count);
    if (turns_holder)
        turns_holder->wants = false; /* turns_take lets it run again */
    turns_holder = NULL;
    turns_wake_all();
}

static void turns_wait(struct thread *thread)
{
    unsigned own_pass = passes;
    while (turns_holder != thread && own_pass == passes && !ended) {
        uint64_t before = totals.turns;
        bool forked = forks;
        bool late = turns_sleep(&thread->wake, forked ? FORK_STEP_US : STUCK_MS * 1000L);
        if (late && forked && forks && turns_holder != thread)
            return;
        if (late && !forked && turns_holder != thread && before == totals.turns &&
            own_pass == passes)
            turns_pass();
    }
    if (falls_asleep)
        turns_let_fall_asleep();
}

/* The thread runs again. Meanwhile the time of the others has passed. */
static void turns_want(struct thread *thread)
{
    if (thread->wants)
        return;
    thread->wants = true;
    uint64_t now = turns_holder ? turns_holder->clock : end_clock;
    if (thread->clock < now)
        thread->clock = now;
}

void turns_take(struct thread *thread)
{
    pthread_mutex_lock(&turns_lock);
    turns_want(thread);
    if (turns_holder == NULL)
        turns_grant(turns_lowest(NULL));
    else if (turns_holder != thread && turns_holder->limit > thread->clock + quantum)
        turns_holder->limit = thread->clock + quantum;
    turns_wait(thread);
    pthread_mutex_unlock(&turns_lock);
}

static void turns_note_clock(const struct thread *thread)
{
    if (thread->clock > end_clock)
        end_clock = thread->clock;
}

void turns_release(struct thread *thread)
{
    pthread_mutex_lock(&turns_lock);
    turns_note_clock(thread);
    thread->wants = false;
    thread->released = true;
    thread->number = gettid();
    if (thread->sleeps_on != 0)
        falls_asleep = thread;
    if (turns_holder == thread || turns_holder == NULL)
        turns_grant(turns_lowest(NULL));
    pthread_mutex_unlock(&turns_lock);
}

void turns_next(struct thread *thread)
{
    pthread_mutex_lock(&turns_lock);
    turns_note_clock(thread);
    struct thread *best = turns_lowest(NULL);
    if (best && turns_holder == thread) {
        turns_grant(best);
        if (best != thread)
            turns_wait(thread);
    }
    pthread_mutex_unlock(&turns_lock);
}

void turns_place(struct thread *thread, unsigned core)
{
    if (thread->placed)
        loads[thread->core]--;
    thread->core = core % cores;
    thread->placed = true;
    loads[thread->core]++;
}

/* The next of the cores with the fewest threads. */
static unsigned turns_free_core(void)
{
    unsigned best = next_core % cores;
    for (unsigned i = 0; i < cores; i++) {
        unsigned core = (next_core + i) % cores;
        if (loads[core] < loads[best])
            best = core;
    }
    next_core = best + 1;
    return best;
}

void turns_add(unsigned index, uint64_t cleared_at_end)
{
    pthread_mutex_lock(&turns_lock);
    struct thread *thread = turns_threads[index];
    if (thread == NULL) {
        thread = turns_threads[index] = calloc(1, sizeof *thread);
        pthread_cond_init(&thread->wake, NULL);
        if (index >= turns_count)
            turns_count = index + 1;
    }
    thread->wants = true; /* it comes soon */
    thread->released = thread->placed = false;
    thread->owner = OTHER;
    thread->sleeps_on = 0;
    thread->cleared_at_end = cleared_at_end;
    thread->clock = turns_holder ? turns_holder->clock : end_clock;
    if (index != 0) { /* the main thread counts for no core */
        turns_place(thread, turns_free_core());
        totals.threads += counting;
    }
    pthread_mutex_unlock(&turns_lock);
}

void turns_end(struct thread *thread)
{
    if (thread->placed)
        loads[thread->core]--;
    thread->placed = false;
    for (unsigned i = 0; thread->cleared_at_end != 0 && i < turns_count; i++) {
        struct thread *joining = turns_threads[i];
        if (joining && joining->sleeps_on == thread->cleared_at_end) {
            joining->wants = true;
            if (joining->clock < thread->clock)
                joining->clock = thread->clock;
        }
    }
}

void turns_fork(bool begins)
{
    pthread_mutex_lock(&turns_lock);
    forks = begins;
    turns_wake_all();
    pthread_mutex_unlock(&turns_lock);
}

void turns_end_all(void)
{
    pthread_mutex_lock(&turns_lock);
    ended = true;
    turns_wake_all();
    pthread_mutex_unlock(&turns_lock);
}

unsigned turns_sleepers(uint64_t futex)
{
    unsigned count = 0;
    for (unsigned i = 0; i < turns_count; i++)
        count += turns_threads[i] && turns_threads[i]->sleeps_on == futex;
    return count;
}

void turns_awake(struct thread *thread)
{
    pthread_mutex_lock(&turns_lock);
    thread->sleeps_on = 0;
    turns_want(thread);
    pthread_cond_broadcast(&woken);
    pthread_mutex_unlock(&turns_lock);
}

void turns_await_woken(const struct thread *waker, int64_t count)
{
    pthread_mutex_lock(&turns_lock);
    bool late = false;
    while (!late && turns_sleepers(waker->arguments[0]) + count > waker->sleepers)
        late = turns_sleep(&woken, 1000000);
    pthread_mutex_unlock(&turns_lock);
}
