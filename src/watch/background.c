/* The background thread: see background.h. */
#include "watch/background.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "base/check.h"
#include "heap/heap.h"
#include "os/os.h"
#include "watch/control_socket.h"
#include "watch/surroundings.h"

#include <errno.h>

enum { NONE, RUNNING, ENDING, OWED };
enum { LEAST_MS = 10, MOST_MS = 250, REST_MS = 1000, LOOK_MS = 450, SWEEP_SHARE = 100 };
enum { STOP_WAITS_MS = 1000, IDLE_SHARE = 1000, UNWOKEN_MS = 100 };

bool background_is_owed;

static struct {
    uint32_t state;           /* atomic: see the header */
    uint32_t thread;          /* atomic: the kernel's number of it */
    uint64_t rounds;          /* atomic: how often it looked */
    struct os_own_file event; /* who starts: wakes it */
    bool handlers;            /* who starts: those of fork are there */
    uint64_t forked_ms;       /* in a child: when it was made */
} background = {.event = {.number = -1}};

/* What the thread knows of the last rounds. */
struct memory {
    uint64_t looked_ms;      /* at the surroundings */
    uint64_t round_us;       /* when the last round was */
    uint64_t others_us;      /* what the others had run by then */
    uint64_t quiet_ms;       /* since when they do not run */
    bool released;           /* all that is free went back since then */
    uint64_t interval_ms;    /* the decay interval of the last round */
    uint64_t earlier_ms;     /* the one before it */
    uint64_t sweep_again_us; /* not before: sweeping has had its share */
};

bool background_runs(void) { return load_relaxed(&background.state) == RUNNING; }

uint64_t background_rounds(void) { return load_relaxed(&background.rounds); }

static void note_activity(struct memory *memory, uint64_t now_ms)
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

static void tend(struct memory *memory, uint64_t decay_ms, uint64_t now_ms)
{
    uint64_t start_us = os_now_us();
    bool ended = memory->interval_ms != pages_interval_ms();
    bool sweeps = ended && start_us >= memory->sweep_again_us && !memory->released;
    if (ended) {
        memory->earlier_ms = memory->interval_ms;
        memory->interval_ms = pages_interval_ms();
    }
    (void)heap_tend(sweeps, memory->earlier_ms);
    if (!memory->released && now_ms - memory->quiet_ms >= decay_ms) {
        (void)heap_release(0);
        memory->released = true;
    }
    uint64_t end_us = os_now_us();
    if (sweeps)
        memory->sweep_again_us = end_us + SWEEP_SHARE * (end_us - start_us);
}

/* Returns when the next one is due. */
static uint64_t look(struct memory *memory)
{
    struct page_limits limits;
    uint64_t now_ms = os_now_ms();
    pages_read_limits(&limits);
    if (now_ms - memory->looked_ms >= LOOK_MS) {
        memory->looked_ms = now_ms;
        surroundings_look(now_ms);
    }
    note_activity(memory, now_ms);
    tend(memory, limits.decay_ms, now_ms);
    fetch_add_acq_rel(&background.rounds, (uint64_t)1); /* pairs with in_child */
    uint64_t wait = larger_of(smaller_of(limits.decay_ms / 4 + 1, MOST_MS), LEAST_MS);
    return os_now_ms() + (memory->released ? (uint64_t)REST_MS : wait);
}

static void run(void)
{
    struct memory memory = {0};
    uint32_t ending = ENDING;
    store_relaxed(&background.thread, os_thread_id());
    do {
        (void)control_open(); /* where one is wanted; said once, for it comes here once */
        while (load_acquire(&background.state) == RUNNING) { /* pairs with background_stop */
            uint64_t due_ms = look(&memory);
            int event = os_file_own_number(&background.event);
            if (event < 0) /* the program has closed it: nobody can wake this thread */
                due_ms = smaller_of(due_ms, os_now_ms() + UNWOKEN_MS);
            control_serve(due_ms, event);
            if (event >= 0)
                os_event_clear(event);
        }
        control_close();
        surroundings_forget();
        ending = ENDING;
    } while (!compare_swap_acq_rel(&background.state, &ending, (uint32_t)NONE));
}

static void in_child(void)
{
    /* Acquire: what the thread wrote before its last round, or its end, comes before. */
    (void)load_acquire(&background.rounds);
    uint32_t state = load_acquire(&background.state);
    bool owed = state == RUNNING || state == OWED;
    store_relaxed(&background.state, owed ? (uint32_t)OWED : (uint32_t)NONE);
    control_forget(owed);
    os_file_close_own(&background.event);
    background.forked_ms = os_now_ms();
    surroundings_forget();
    store_relaxed(&background_is_owed, owed);
}

static int make(void)
{
    int error = 0;
    if (!background.handlers)
        error = os_fork_register(NULL, NULL, in_child);
    background.handlers = error == 0;
    if (error == 0 && !os_file_is_own(&background.event))
        error = os_file_own(&background.event, os_event_make());
    return error != 0 ? error : os_thread_start(run, "cairn");
}

/* It is said to run. */
static int begin(void)
{
    store_relaxed(&background_is_owed, false);
    int error = make();
    if (error != 0)
        store_release(&background.state, (uint32_t)NONE);
    return error;
}

int background_start(void)
{
    uint32_t seen = load_relaxed(&background.state);
    heap_start();
    while (seen != RUNNING)
        if (compare_swap_acq_rel(&background.state, &seen, (uint32_t)RUNNING))
            return seen == ENDING ? 0 : begin(); /* 0: it goes on */
    return 0;
}

void background_stop(void)
{
    uint32_t seen = OWED;
    store_relaxed(&background_is_owed, false);
    if (compare_swap_acq_rel(&background.state, &seen, (uint32_t)NONE))
        return;
    seen = RUNNING;
    if (!compare_swap_acq_rel(&background.state, &seen, (uint32_t)ENDING)) /* pairs with run */
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
    if (!os_may_start_within_malloc() ||
        os_now_ms() - background.forked_ms < BACKGROUND_CHILD_WAITS_MS)
        return;
    uint32_t seen = OWED;
    bool owed = compare_swap_acq_rel(&background.state, &seen, (uint32_t)RUNNING);
    store_relaxed(&background_is_owed, false);
    int error = owed ? begin() : 0;
    if (error != 0)
        report("no background thread: error %d", -error);
}
