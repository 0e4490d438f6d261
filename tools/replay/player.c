// Starts and joins the player's threads, and measures the replay. player.h describes the protocol.
#include "player.h"

#include "sites.h"
#include "work.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { STACK_BYTES = 256 << 10, DONE = 1, JOINED = 2 };

static struct player *playing; // const while threads run

// Joins the threads that have played all. So no more threads are alive than in the trace, except
// those that are about to end.
static void join_done(struct player *player)
{
    uint32_t started = atomic_load(&player->started);
    if (started - atomic_load(&player->joined) < 2)
        return;
    for (uint32_t number = 1; number < player->header.threads; number++) {
        // Pairs with the release in run_thread.
        uint32_t done = DONE;
        if (atomic_compare_exchange_strong(&player->threads[number].done, &done, JOINED)) {
            pthread_join(player->threads[number].thread, NULL);
            atomic_fetch_add(&player->joined, 1);
        }
    }
}

static void *run_thread(void *argument)
{
    struct player_thread *thread = argument;
    player_play_thread(playing, thread->number);
    atomic_store_explicit(&thread->done, DONE, memory_order_release);
    return NULL;
}

void player_start_thread(struct player *player, uint32_t number)
{
    struct player_thread *thread = &player->threads[number];
    if (thread->number)
        player_damaged(player, "it starts a thread twice");
    join_done(player);
    thread->number = number;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int error = pthread_create(&thread->thread, &attributes, run_thread, thread);
    pthread_attr_destroy(&attributes);
    if (error)
        player_fail("cannot start a thread: %s", strerror(error));
    atomic_fetch_add(&player->started, 1);
}

static void join_all(struct player *player)
{
    for (uint32_t number = 1; number < player->header.threads; number++) {
        struct player_thread *thread = &player->threads[number];
        while (atomic_load(&thread->done) != JOINED) {
            uint32_t done = DONE;
            if (atomic_compare_exchange_strong(&thread->done, &done, JOINED))
                pthread_join(thread->thread, NULL);
            else
                nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        }
    }
}

// Returns: the number in the line of /proc/self/status that begins with `name`, times 1024.
static uint64_t status_bytes(const char *name)
{
    char text[4096];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? -1 : read(file, text, sizeof text - 1);
    if (file >= 0)
        close(file);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *line = strstr(text, name);
    return line ? strtoull(line + strlen(name), NULL, 10) * 1024 : 0;
}

// Resets the peak of the process, if the kernel permits it.
static void reset_peak(void)
{
    int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return;
    if (write(file, "5", 1) != 1)
        errno = 0; // the peak then includes the start of the process
    close(file);
}

static uint64_t minor_faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_minflt;
}

void player_play(struct player *player, struct player_result *result)
{
    playing = player;
    if (player->options.work != WORK_NONE)
        player->work_steps = work_steps(player->options.work_ns);
    reset_peak();
    *result = (struct player_result){.start_resident_bytes = player_resident_bytes(player)};
    uint64_t faults = minor_faults();
    uint64_t cpu_ns = player_clock(CLOCK_PROCESS_CPUTIME_ID);
    player->start_ns = player_clock(CLOCK_MONOTONIC);
    if (player->header.threads)
        player_play_thread(player, 0);
    join_all(player);
    result->wall_ns = player_clock(CLOCK_MONOTONIC) - player->start_ns;
    result->cpu_ns = player_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    result->wait_ns = atomic_load(&player->wait_ns);
    result->minor_faults = minor_faults() - faults;
    result->end_resident_bytes = player_resident_bytes(player);
    result->peak_resident_bytes = status_bytes("VmHWM:");
    if (atomic_load(&player->finished) != player->header.windows)
        player_damaged(player, "the player stopped before its last record");
}
