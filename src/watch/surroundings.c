/* Following the control group and the pressure on memory: see surroundings.h. */
#include "watch/surroundings.h"

#include "base/atomic.h"
#include "base/bits.h"
#include "heap/heap.h"
#include "os/os.h"

#include <errno.h>
#include <string.h>

enum { CLAIM_MS = 1000 };

static struct {
    char root[SURROUNDINGS_ROOT_MOST]; /* const after the options */
    uint32_t busy;                     /* atomic: process that sets limits; 0: none */
    bool soft_follows;                 /* who is busy */
    bool hard_follows;                 /* who is busy */
    size_t max_bytes;                  /* atomic: as last read */
    size_t high_bytes;                 /* atomic */
    uint64_t spells;                   /* atomic: of pressure */
    uint64_t looked_ms;                /* who looks: 0: never */
    uint64_t loud_ms;                  /* who looks: when there was pressure last */
    uint64_t system_stall_us;          /* who looks: at the last look */
    uint64_t group_stall_us;           /* who looks: likewise */
    bool pressed;                      /* who looks */
} state;

bool surroundings_root(const char *root, size_t length_bytes)
{
    if (length_bytes >= sizeof state.root)
        return false;
    memcpy(state.root, root, length_bytes);
    state.root[length_bytes] = '\0';
    return true;
}

/* So that nobody sets a limit for one that follows no more. A parent's claim is not its child's. */
static bool claim(void)
{
    uint32_t process = os_process_id();
    uint32_t seen = load_relaxed(&state.busy);
    return seen != process && compare_swap_acq_rel(&state.busy, &seen, process);
}

static void unclaim(void) { store_release(&state.busy, 0u); } /* pairs with claim */

/* Who is busy. Zero where the group has no limit. */
static void set_limits(const struct os_group *group)
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

static int follow(bool *which, bool follows)
{
    struct os_group group;
    for (unsigned waited = 0; !claim(); waited++) {
        if (waited == CLAIM_MS)
            return -EBUSY;
        os_sleep_ms(1);
    }
    *which = follows;
    if (follows) {
        os_read_group(state.root, &group);
        set_limits(&group);
    }
    unclaim();
    return 0;
}

int surroundings_follow_soft(bool follows) { return follow(&state.soft_follows, follows); }

int surroundings_follow_hard(bool follows) { return follow(&state.hard_follows, follows); }

/* The count starts anew in another group. */
static uint64_t grown(uint64_t *last, uint64_t now)
{
    uint64_t by = now > *last ? now - *last : 0;
    *last = now;
    return by;
}

static void press(bool pressed)
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

static void look_at_pressure(const struct os_group *group, uint64_t now_ms)
{
    uint64_t system_us = grown(&state.system_stall_us, group->system_stall_us);
    uint64_t group_us = grown(&state.group_stall_us, group->group_stall_us);
    uint64_t elapsed_us = (now_ms - state.looked_ms) * 1000;
    bool first = state.looked_ms == 0;
    state.looked_ms = now_ms;
    if (first || elapsed_us == 0)
        return;
    uint64_t stall_us = larger_of(system_us, group_us);
    if (stall_us >= elapsed_us / (state.pressed ? 100 : 10)) {
        state.loud_ms = now_ms;
        press(true);
    } else if (state.pressed) {
        press(now_ms - state.loud_ms < SURROUNDINGS_QUIET_MS);
    }
}

void surroundings_look(uint64_t now_ms)
{
    struct os_group group;
    os_read_group(state.root, &group);
    if (claim()) { /* else another thread sets them just now */
        set_limits(&group);
        unclaim();
    }
    look_at_pressure(&group, now_ms);
}

void surroundings_forget(void)
{
    press(false);
    state.looked_ms = 0;
}

void surroundings_read(struct surroundings_figures *figures)
{
    *figures = (struct surroundings_figures){
        .max_bytes = load_relaxed(&state.max_bytes),
        .high_bytes = load_relaxed(&state.high_bytes),
        .pressure_spells = load_relaxed(&state.spells),
    };
}
