/* The rounds of the background thread, and its start and end: see background.h. */
#include "watch/background.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/text.h"
#include "heap/heap.h"
#include "os/file.h"
#include "os/process.h"
#include "watch/control_socket.h"
#include "watch/memory_pressure.h"

#include <errno.h>

enum { NONE, RUNNING, ENDING, OWED };
enum { MIN_MS = 10, MAX_MS = 250, REST_MS = 1000, LOOK_MS = 450 };
enum { STOP_WAITS_MS = 1000, IDLE_SHARE = 1000, UNWOKEN_MS = 100 };

bool background_is_owed;

static struct {
    uint32_t state;           /* atomic: see background.h */
    uint32_t thread;          /* atomic: the kernel's number of the thread */
    uint64_t rounds;          /* atomic: number of rounds */
    struct os_own_file event; /* starting thread: wakes the background thread */
    bool handlers;            /* starting thread: the handlers of fork are registered */
    uint64_t forked_ms;       /* in a child of fork: time of the fork */
    size_t from_bytes;        /* size of the heap from which on the thread that is owed starts */
} background = {.event = {.number = -1}};

/* The memory of the background thread about earlier rounds. Threads: background thread only. */
struct memory {
    uint64_t looked_ms; /* time of the last look at the memory pressure */
    uint64_t round_us;  /* time of the last round */
    uint64_t others_us; /* CPU time of the other threads by then */
    uint64_t quiet_ms;  /* time since which the other threads have not run */
    bool released;      /* all free memory was released since then */
};

bool background_runs(void) { return load_relaxed(&background.state) == RUNNING; }

uint64_t background_rounds(void) { return load_relaxed(&background.rounds); }

/* Notes whether other threads ran since the last round: for more than a thousandth of the time. */
static void background_note_activity(struct memory *memory, uint64_t now_ms)
{
    uint64_t now_us = os_now_us();
    uint64_t others_us = os_others_ran_us();
    uint64_t ran_us = others_us - smaller_of(others_us, memory->others_us);
    if (ran_us > (now_us - memory->round_us) / IDLE_SHARE) {
        memory->quiet_ms = now_ms;
        memory->released = false;
    }
    memory->others_us = others_us;
    memory->round_us = now_us;
}

/* Does the purging and sweeping of a round. */
static void background_tend(struct memory *memory, uint64_t decay_ms, uint64_t now_ms)
{
    heap_housekeep();
    if (!memory->released && now_ms - memory->quiet_ms >= decay_ms) {
        (void)heap_release(0);
        memory->released = true;
    }
}

/* Makes the thread end if it is the last of the process. Looks only if no other thread ran since
 * the last round.
 *
 * Returns: whether it is. */
static bool background_end_if_last(const struct memory *memory, uint64_t now_ms)
{
    uint32_t seen = RUNNING;
    if (memory->quiet_ms == now_ms || !os_is_last_thread())
        return false;
    (void)compare_swap_acq_rel(&background.state, &seen, (uint32_t)ENDING);
    return true;
}

/* Does one round.
 *
 * Returns: the time at which the next round is due. */
static uint64_t background_look(struct memory *memory)
{
    struct page_limits limits;
    uint64_t now_ms = os_now_ms();
    pages_read_limits(&limits);
    if (now_ms - memory->looked_ms >= LOOK_MS) {
        memory->looked_ms = now_ms;
        memory_pressure_look(now_ms);
    }
    background_note_activity(memory, now_ms);
    background_tend(memory, limits.decay_ms, now_ms);
    fetch_add_acq_rel(&background.rounds, (uint64_t)1); /* pairs with background_in_child */
    if (background_end_if_last(memory, now_ms))
        return now_ms;
    uint64_t wait = larger_of(smaller_of(limits.decay_ms / 4 + 1, MAX_MS), MIN_MS);
    return os_now_ms() + (memory->released ? (uint64_t)REST_MS : wait);
}

/* The body of the thread. The thread opens the control socket once, and reports a failure once. */
static void background_run(void)
{
    struct memory memory = {.round_us = os_now_us(), .quiet_ms = os_now_ms()};
    uint32_t ending = ENDING;
    store_relaxed(&background.thread, os_thread_id());
    do {
        (void)control_open();
        while (load_acquire(&background.state) == RUNNING) { /* pairs with background_stop */
            control_retry();
            uint64_t due_ms = background_look(&memory);
            int event = os_file_own_number(&background.event);
            if (event < 0) /* the program closed the event, so nothing can wake this thread */
                due_ms = smaller_of(due_ms, os_now_ms() + UNWOKEN_MS);
            control_serve(due_ms, event);
            if (event >= 0)
                os_event_clear(event);
        }
        control_close();
        memory_pressure_forget();
        ending = ENDING;
        /* Acquire: pairs with background_start, which may have continued the thread. */
    } while (!compare_swap_acq_rel(&background.state, &ending, (uint32_t)NONE));
}

/* The fork handler of the child: the thread does not exist there. If it ran in the parent, the
 * child owes a new one. */
static void background_in_child(void)
{
    /* Acquire: what the thread wrote before its last round or its end is visible after these loads.
     * The loads pair with background_look and background_run. */
    (void)load_acquire(&background.rounds);
    uint32_t state = load_acquire(&background.state);
    bool owed = state == RUNNING || state == OWED;
    store_relaxed(&background.state, owed ? (uint32_t)OWED : (uint32_t)NONE);
    control_forget(owed);
    os_file_close_own(&background.event);
    background.forked_ms = os_now_ms();
    memory_pressure_forget();
    store_relaxed(&background_is_owed, owed);
}

/* Registers the fork handler, makes the event that wakes the thread, and starts the thread. */
static int background_make(void)
{
    int error = 0;
    if (!background.handlers)
        error = os_fork_register(NULL, NULL, background_in_child);
    background.handlers = error == 0;
    if (error == 0 && !os_file_is_own(&background.event))
        error = os_file_own(&background.event, os_event_make());
    return error != 0 ? error : os_thread_start(background_run, "cairn");
}

/* Makes the thread after the state was set to RUNNING; sets the state to NONE if that fails. */
static int background_begin(void)
{
    store_relaxed(&background_is_owed, false);
    background.from_bytes = 0;
    int error = background_make();
    if (error != 0)
        store_release(&background.state, (uint32_t)NONE);
    return error;
}

int background_start(void)
{
    uint32_t seen = load_relaxed(&background.state);
    heap_start();
    while (seen != RUNNING)
        /* Acquire: pairs with the swap in background_run. Release: pairs with its loop. */
        if (compare_swap_acq_rel(&background.state, &seen, (uint32_t)RUNNING))
            return seen == ENDING ? 0 : background_begin(); /* 0: the thread continues */
    return 0;
}

int background_owe(void)
{
    if (!os_may_start_within_malloc())
        return background_start();
    background.from_bytes = BACKGROUND_FROM_BYTES;
    store_relaxed(&background.state, (uint32_t)OWED);
    store_relaxed(&background_is_owed, true);
    return 0;
}

void background_stop(void)
{
    uint32_t seen = OWED;
    store_relaxed(&background_is_owed, false);
    if (compare_swap_acq_rel(&background.state, &seen, (uint32_t)NONE))
        return;
    seen = RUNNING;
    /* Release: pairs with the load and the swap in background_run. */
    if (!compare_swap_acq_rel(&background.state, &seen, (uint32_t)ENDING))
        return;
    if (os_file_is_own(&background.event))
        os_event_set(load_relaxed(&background.event.number));
    if (load_relaxed(&background.thread) == os_thread_id())
        return;
    for (unsigned waited = 0; waited < STOP_WAITS_MS && load_relaxed(&background.state) == ENDING;
         waited++)
        os_sleep_ms(1);
}

void background_restart(void)
{
    if (!os_may_start_within_malloc() || pages_counted_bytes() < background.from_bytes ||
        os_now_ms() - background.forked_ms < BACKGROUND_CHILD_WAITS_MS)
        return;
    uint32_t seen = OWED;
    bool owed = compare_swap_acq_rel(&background.state, &seen, (uint32_t)RUNNING);
    store_relaxed(&background_is_owed, false);
    int error = owed ? background_begin() : 0;
    if (error != 0)
        report("cannot start the background thread: %s", text_of_error(-error));
}
