// Plays a replay program on the malloc of this process, in the order that program.h says.
//
// What it needs for itself comes from mmap, and is written once before the replay begins: so what
// the process's memory grows by is the allocator's. Only libc, as it starts a thread, asks the
// allocator under test for some hundred bytes.
//
// Writes of the program are not in a trace. The player writes the first bytes of a block and one
// byte of each of its pages, or fills its first page; after a resize, of those that are new.
//
// Threads, and which of their operations may run together:
//
//   what                          by whom                              with
//   slot of an object             the thread whose record names it     nobody: rules 1 and 2
//   remaining[w]                  threads that finish window w         each other, finished
//   finished                      as above                             waiting for a window
//   progress[t]                   thread t                             RECORD_WAIT of others
//   samples                       who advances `finished` to there     nobody
#ifndef REPLAY_PLAYER_H
#define REPLAY_PLAYER_H

#include "program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum player_touch {
    TOUCH_PAGES,  // the first bytes and every page
    TOUCH_FILL,   // likewise, and all of the first page; read before its end
    TOUCH_ZEROED, // as TOUCH_PAGES, but of a block of calloc the first bytes only
    TOUCH_FIRST,  // the first bytes
    TOUCH_NOTHING,
};

enum { SCRATCH_BYTES = 1 << 12 };

// See work.h.
enum player_work { WORK_NONE, WORK_BESIDE, WORK_IN_LINE };

struct player_options {
    const char *path;
    bool empty;           // no allocator at all: what the player itself costs
    bool sites_by_malloc; // sites of policies: all that the player does for them, blocks by malloc
    enum player_touch touch;
    enum player_work work;
    uint32_t work_ns; // between two records
    uint32_t samples; // about so many, of the time line
};

struct player_sample {
    uint64_t window, time_ns, resident_bytes;
};

struct player_result {
    uint64_t wall_ns, cpu_ns, wait_ns; // CPU time of all threads, and that spent in waiting
    uint64_t start_resident_bytes, peak_resident_bytes, end_resident_bytes;
    uint64_t minor_faults;
};

struct player_progress {
    _Alignas(64) _Atomic uint64_t played; // atomic: released by its thread after each record
};

struct player_thread {
    pthread_t thread;      // const from its start
    _Atomic uint32_t done; // atomic: 1 when the thread has played all; it is joined by exchange
    uint32_t number;
};

struct site_state;

struct player {
    struct player_options options; // const after the start, like all up to `finished`
    struct program_header header;
    struct program_policy *policies;
    int file, status_file;
    void **slots;
    struct player_thread *threads;
    struct player_progress *progress;
    struct player_sample *samples;
    uint64_t sample_step;        // windows; 0: no samples
    _Atomic uint32_t *remaining; // atomic: threads that have not finished the window
    struct site_state *sites;    // its own protocol: sites.h
    uint32_t work_steps;         // between two records
    uint64_t start_ns;
    char *scratch; // of each thread a page: the block of its objects when options.empty

    _Alignas(64) _Atomic uint32_t finished; // atomic: all windows below are
    _Atomic uint32_t waiting;               // atomic: threads asleep until `finished` grows
    _Atomic uint64_t wait_ns;
    uint64_t samples_made; // who advances `finished`
    _Atomic uint32_t started, joined;
};

// ---- player_file.c -----------------------------------------------------------------------------

// Ends the process with a sentence. `player_damaged`: the program's file is not what it should be.
__attribute__((format(printf, 1, 2))) _Noreturn void player_fail(const char *format, ...);
_Noreturn void player_damaged(const struct player *player, const char *what);

// Memory that is there already, all zero.
void *player_memory(uint64_t bytes);
void player_read(const struct player *player, void *to, uint64_t bytes, uint64_t place);
void player_open(struct player *player, const struct player_options *options);
void player_close(struct player *player);

// ---- player_order.c ----------------------------------------------------------------------------

// Called by a thread before its first record of the window and after its last one.
void player_begin_window(struct player *player, uint32_t window);
void player_finish_window(struct player *player, uint32_t window);

// Waits until the thread has played so many records.
void player_wait_for(struct player *player, uint32_t thread, uint64_t records);

uint64_t player_clock(int clock);
uint64_t player_resident_bytes(const struct player *player);

// ---- player_records.c --------------------------------------------------------------------------

// Plays all records of the thread.
void player_play_thread(struct player *player, uint32_t number);

// ---- player.c ----------------------------------------------------------------------------------

// Starts the thread, which has never been started, by the calling one.
void player_start_thread(struct player *player, uint32_t number);

// Plays the program; the player keeps the samples until its close.
void player_play(struct player *player, struct player_result *result);

#endif
