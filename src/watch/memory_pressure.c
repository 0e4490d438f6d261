/* Setting limits by the control group, and beginning and ending pressure: see memory_pressure.h. */
#include "watch/memory_pressure.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "heap/heap.h"
#include "os/process.h"

#include <errno.h>
#include <string.h>

static struct {
    char root[MEMORY_PRESSURE_ROOT_MAX]; /* const after the options */
    /* claimed to set limits, so that none follows the group after it ceased to follow it */
    uint32_t busy;
    bool soft_follows;        /* thread that has `busy` */
    bool hard_follows;        /* thread that has `busy` */
    size_t max_bytes;         /* atomic: when last read */
    size_t high_bytes;        /* atomic */
    uint64_t spells;          /* atomic: number of times that pressure began */
    uint64_t looked_ms;       /* looking thread: time of the last look; 0: never */
    uint64_t loud_ms;         /* looking thread: last time with pressure */
    uint64_t system_stall_us; /* looking thread: stall time of the system at the last look */
    uint64_t group_stall_us;  /* looking thread: stall time of the group at the last look */
    bool pressed;             /* looking thread: there is pressure */
    bool knows_group;         /* looking thread: the group was read once */
} state;

bool memory_pressure_root(const char *root, size_t length_bytes)
{
    if (length_bytes >= sizeof state.root)
        return false;
    memcpy(state.root, root, length_bytes);
    state.root[length_bytes] = '\0';
    return true;
}

/* Sets the limits that follow the group, to 0 if the group has none.
 *
 * Locking: `busy` claimed. */
static void memory_pressure_set_limits(const struct os_group *group)
{
    size_t least = group->high_bytes != 0 && group->max_bytes != 0
                       ? smaller_of(group->high_bytes, group->max_bytes)
                       : larger_of(group->high_bytes, group->max_bytes);
    if (state.soft_follows)
        pages_limit_soft(least - least / 10);
    if (state.hard_follows)
        pages_limit_hard(group->max_bytes - group->max_bytes / 20);
    if (load_relaxed(&state.max_bytes) == group->max_bytes &&
        load_relaxed(&state.high_bytes) == group->high_bytes)
        return;
    store_relaxed(&state.max_bytes, group->max_bytes);
    store_relaxed(&state.high_bytes, group->high_bytes);
    pages_heed_limits();
}

/* Sets one of the flags `soft_follows` and `hard_follows`, and the limits. */
static int memory_pressure_follow(bool *which, bool follows)
{
    struct os_group group;
    if (!os_claim(&state.busy, OS_CLAIM_MS))
        return -EBUSY;
    *which = follows;
    if (follows) {
        if (!os_read_group(state.root, &group)) { /* as in memory_pressure_look */
            group.max_bytes = load_relaxed(&state.max_bytes);
            group.high_bytes = load_relaxed(&state.high_bytes);
        }
        memory_pressure_set_limits(&group);
    }
    os_unclaim(&state.busy);
    return 0;
}

int memory_pressure_follow_soft(bool follows)
{
    return memory_pressure_follow(&state.soft_follows, follows);
}

int memory_pressure_follow_hard(bool follows)
{
    return memory_pressure_follow(&state.hard_follows, follows);
}

/* Updates a stall time. The stall time may start again from 0, in another group.
 *
 * Returns: the growth since the last look. */
static uint64_t memory_pressure_grown(uint64_t *last, uint64_t now)
{
    uint64_t by = now > *last ? now - *last : 0;
    *last = now;
    return by;
}

/* Begins, continues or ends pressure. */
static void memory_pressure_press(bool pressed)
{
    if (pressed && !state.pressed) {
        fetch_add_relaxed(&state.spells, (uint64_t)1);
        pages_press(true);
        (void)heap_release(0);
    } else if (pressed) {
        (void)heaps_empty_run_caches();
    } else if (state.pressed) {
        pages_press(false);
    }
    state.pressed = pressed;
}

/* Compares the stall times with the time since the last look. */
static void memory_pressure_look_at_pressure(const struct os_group *group, uint64_t now_ms)
{
    uint64_t system_us = memory_pressure_grown(&state.system_stall_us, group->system_stall_us);
    uint64_t group_us = memory_pressure_grown(&state.group_stall_us, group->group_stall_us);
    uint64_t elapsed_us = (now_ms - state.looked_ms) * 1000;
    bool first = state.looked_ms == 0;
    state.looked_ms = now_ms;
    if (first || elapsed_us == 0)
        return;
    uint64_t stall_us = larger_of(system_us, group_us);
    if (stall_us >= elapsed_us / (state.pressed ? 100 : 10)) {
        state.loud_ms = now_ms;
        memory_pressure_press(true);
    } else if (state.pressed) {
        memory_pressure_press(now_ms - state.loud_ms < MEMORY_PRESSURE_QUIET_MS);
    }
}

void memory_pressure_look(uint64_t now_ms)
{
    struct os_group group;
    bool is_read = os_read_group(state.root, &group);
    if (!is_read && state.knows_group)
        return; /* no free descriptor, or another root: what is known stays */
    state.knows_group = is_read;
    if (os_claim(&state.busy, 0)) { /* otherwise another thread is setting them */
        memory_pressure_set_limits(&group);
        os_unclaim(&state.busy);
    }
    memory_pressure_look_at_pressure(&group, now_ms);
}

/* In the child of a fork, the parent's thread may have begun pressure and not noted it yet. */
void memory_pressure_forget(void)
{
    pages_press(false);
    state.pressed = false;
    state.looked_ms = 0;
}

void memory_pressure_read(struct memory_pressure_figures *figures)
{
    *figures = (struct memory_pressure_figures){
        .max_bytes = load_relaxed(&state.max_bytes),
        .high_bytes = load_relaxed(&state.high_bytes),
        .pressure_spells = load_relaxed(&state.spells),
    };
}
