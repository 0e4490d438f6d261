// Plays a replay program on the malloc of this process, in the order that program.h requires.
//
// The player's own memory comes from mmap and is written once before the replay begins. So all
// growth of the process's memory is the allocator's. Only libc, when it starts a thread, requests
// some hundred bytes from the allocator under test.
//
// A trace does not contain the program's writes. The player writes the first bytes of a block and
// one byte of each of its pages, or fills its first page; after a resize, it writes the new bytes
// in this way.
//
// Threads, and the operations that may run together:
//
//   data              accessed by                        together with
//   slot of a block   the thread whose record names it   no other thread: rules 1 and 2
//   remaining[w]      threads that finish window w       each other, `finished`
//   finished          threads that finish a window       threads that wait for a window
//   progress[t]       thread t                           RECORD_WAIT of other threads
//   samples           the thread that raises `finished`  no other thread
#ifndef REPLAY_PLAYER_H
#define REPLAY_PLAYER_H

#include "program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum player_touch {
    TOUCH_PAGES,  // the first bytes, and a byte of every page
    TOUCH_FILL,   // TOUCH_PAGES and the whole first page; read before the free
    TOUCH_ZEROED, // TOUCH_PAGES, but only the first bytes of calloc'ed blocks
    TOUCH_FIRST,  // only the first bytes
    TOUCH_NOTHING,
};

enum { SCRATCH_BYTES = 1 << 12 };

// How the program's work is simulated: see work.h.
enum player_work { WORK_NONE, WORK_PARALLEL, WORK_IN_LINE };

struct player_options {
    const char *path;
    bool empty;           // no allocator: measures the cost of the player itself
    bool sites_by_malloc; // blocks of sites come from malloc; all other work for sites stays
    uint32_t site;        // plays only this policy, numbered from 1, others by malloc; 0: all
    enum player_touch touch;
    enum player_work work;
    uint32_t work_ns; // work between two records
    uint32_t samples; // approximate number of samples
};

struct player_sample {
    uint64_t window, time_ns, resident_bytes;
};

struct player_result {
    uint64_t wall_ns, cpu_ns, wait_ns; // CPU time of all threads, and its part that is waiting
    uint64_t start_resident_bytes, peak_resident_bytes, end_resident_bytes;
    uint64_t minor_faults;
};

struct player_progress {
    _Alignas(64) _Atomic uint64_t played; // atomic: its thread releases it after each record
};

struct player_thread {
    pthread_t thread;      // const after its start
    _Atomic uint32_t done; // atomic: 1 when the thread has played all; joined by an exchange
    uint32_t number;
};

struct site_state;

struct player {
    struct player_options options; // const after the start, like all fields up to `finished`
    struct program_header header;
    struct program_policy *policies;
    int file, status_file;
    void **slots;
    struct player_thread *threads;
    struct player_progress *progress;
    struct player_sample *samples;
    uint64_t sample_step;        // in windows; 0: no samples
    _Atomic uint32_t *remaining; // atomic: threads that have not finished the window
    struct site_state *sites;    // its own protocol: sites.c
    uint32_t work_steps;         // between two records
    uint64_t start_ns;
    char *scratch; // one page for each thread: all its blocks when options.empty

    _Alignas(64) _Atomic uint32_t finished; // atomic: all windows below it are finished
    _Atomic uint32_t waiting;               // atomic: threads that sleep until `finished` grows
    _Atomic uint64_t wait_ns;
    uint64_t samples_made; // written by the thread that raises `finished`
    _Atomic uint32_t started, joined;
};

// ---- player_file.c -----------------------------------------------------------------------------

// Ends the process with a sentence.
__attribute__((format(printf, 1, 2))) _Noreturn void player_fail(const char *format, ...);
// Ends the process with a sentence which says why the replay program is damaged.
_Noreturn void player_damaged(const struct player *player, const char *what);

// Returns: resident memory, all zero.
void *player_memory(uint64_t bytes);
void player_read(const struct player *player, void *to, uint64_t bytes, uint64_t place);
void player_open(struct player *player, const struct player_options *options);
void player_close(struct player *player);

// ---- player_order.c ----------------------------------------------------------------------------

// Called by a thread before its first record of the window.
void player_begin_window(struct player *player, uint32_t window);
// Called by a thread after its last record of the window.
void player_finish_window(struct player *player, uint32_t window);

// Waits until the thread has played `records` records.
void player_wait_for(struct player *player, uint32_t thread, uint64_t records);

uint64_t player_clock(int clock);
uint64_t player_resident_bytes(const struct player *player);

// ---- player_records.c --------------------------------------------------------------------------

// Plays all records of the thread.
void player_play_thread(struct player *player, uint32_t number);

// ---- player.c ----------------------------------------------------------------------------------

// Starts a thread that was never started. Called by the thread whose record starts it.
void player_start_thread(struct player *player, uint32_t number);

// Plays the program. The player keeps the samples until player_close().
void player_play(struct player *player, struct player_result *result);

#endif
