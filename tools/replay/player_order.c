// The waiting between the player's threads. program.h defines the order that they keep.
#define _GNU_SOURCE // syscall
#include "player.h"

#include <base/atomic.h>

#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SPINS = 64, YIELDS = 64, SLEEP_NS = 50000 };

uint64_t player_clock(int clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t player_resident_bytes(const struct player *player)
{
    char text[128];
    ssize_t length = pread(player->status_file, text, sizeof text - 1, 0);
    if (length <= 0)
        return 0;
    const char *at = text;
    while (at < text + length && *at != ' ')
        at++;
    uint64_t pages = 0;
    for (at++; at < text + length && *at >= '0' && *at <= '9'; at++)
        pages = pages * 10 + (uint64_t)(*at - '0');
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void add_wait(struct player *player, uint64_t start_ns)
{
    uint64_t spent_ns = player_clock(CLOCK_THREAD_CPUTIME_ID) - start_ns;
    atomic_fetch_add_explicit(&player->wait_ns, spent_ns, memory_order_relaxed);
}

void player_begin_window(struct player *player, uint32_t window)
{
    if (window < 2)
        return;
    uint32_t least = window - 1; // number of finished windows: all up to number window - 2
    // Pairs with the exchange in player_finish_window.
    uint32_t finished = atomic_load(&player->finished);
    if (finished >= least)
        return;
    uint64_t start_ns = player_clock(CLOCK_THREAD_CPUTIME_ID);
    // `waiting` is raised before `finished` is read again. The thread that raises `finished` reads
    // `waiting` afterwards. All accesses are sequentially consistent, so one of the two sees the
    // other.
    atomic_fetch_add(&player->waiting, 1);
    while ((finished = atomic_load(&player->finished)) < least)
        futex(&player->finished, FUTEX_WAIT, finished);
    atomic_fetch_sub(&player->waiting, 1);
    add_wait(player, start_ns);
}

static void take_sample(struct player *player, uint32_t window)
{
    if (!player->sample_step || window % player->sample_step)
        return;
    player->samples[player->samples_made++] =
        (struct player_sample){.window = window,
                               .time_ns = player_clock(CLOCK_MONOTONIC) - player->start_ns,
                               .resident_bytes = player_resident_bytes(player)};
}

// The thread that brings a window to zero, or finds it at zero, raises `finished` over it. Both
// sides are sequentially consistent: if the last thread of window n + 1 does not see `finished` at
// n + 1 yet, then the thread that raises it to n + 1 sees window n + 1 at zero. The sample is taken
// before the raise, so no other thread takes one at that time.
void player_finish_window(struct player *player, uint32_t window)
{
    uint32_t before = atomic_fetch_sub(&player->remaining[window], 1);
    if (before == 0)
        player_damaged(player, "it has too many threads in a window");
    if (before > 1)
        return;
    uint32_t finished = atomic_load(&player->finished);
    while (finished < player->header.windows && atomic_load(&player->remaining[finished]) == 0) {
        // The marker in place of the zero makes this thread the only one that raises from here.
        uint32_t zero = 0;
        if (!atomic_compare_exchange_strong(&player->remaining[finished], &zero, UINT32_MAX))
            return; // another thread raises it, and then examines the next window
        take_sample(player, finished);
        atomic_store(&player->finished, ++finished);
        if (atomic_load(&player->waiting))
            futex(&player->finished, FUTEX_WAKE, INT32_MAX);
    }
}

void player_wait_for(struct player *player, uint32_t thread, uint64_t records)
{
    _Atomic uint64_t *played = &player->progress[thread].played;
    // Pairs with the release in player_records.c after each record.
    if (atomic_load_explicit(played, memory_order_acquire) >= records)
        return;
    uint64_t start_ns = player_clock(CLOCK_THREAD_CPUTIME_ID);
    for (unsigned round = 0; atomic_load_explicit(played, memory_order_acquire) < records; round++)
        if (round < SPINS)
            pause_processor();
        else if (round < SPINS + YIELDS)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = SLEEP_NS}, NULL);
    add_wait(player, start_ns);
}
