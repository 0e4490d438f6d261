/* Control by name: keys are settings (settings.h) and figures (counted numbers); actions are in
 * control.c. cairn/control.h and the control socket share these functions.
 * docs/reference/OPTIONS.md documents keys, actions, requests and answers. No state.
 *
 * Threads: any. */
#ifndef CAIRN_FRONT_CONTROL_H
#define CAIRN_FRONT_CONTROL_H

#include "base/compiler.h"
#include "cairn/stats.h"

/* Does what cairn_get does. The exported name would be looked up by the dynamic linker at the start
 * of a program, this one is not.
 *
 * Returns: 0 or a positive errno. */
int control_get(const char *key, char *value, size_t capacity);

/* Does what cairn_set does, without the exported name.
 *
 * Returns: 0 or a positive errno. */
int control_set(const char *key, const char *value);

/* Does what cairn_do does, without the exported name.
 *
 * Returns: 0 or a positive errno. */
int control_do(const char *action, const char *argument);

/* Returns the name of an action; NULL if `index` is the number of actions or more. */
const char *control_action(size_t index);

/* Returns the name of a positive errno, such as "EINVAL". */
const char *control_error_name(int error);

/* Returns a sentence about what a positive errno means here. */
const char *control_error_text(int error);

/* Answers a line in JSON: does what cairn_control does, without the exported name.
 *
 * Returns: the length of the answer; 0 if not even an error fits. */
size_t control_reply(const char *request, char *answer, size_t capacity);

/* Figures: everything that the heap counts, by name: the members of cairn_heap_stats, and the
 * figures of struct steering, which show whether memory is returned to the system. */

/* The figures beyond cairn_heap_stats. */
struct steering {
    uint64_t counted_bytes;
    uint64_t soft_limit_bytes, hard_limit_bytes;
    uint64_t cgroup_max_bytes, cgroup_high_bytes;
    uint64_t refusals;
    uint64_t pinned_bytes;
    uint64_t decays, decay_age_ms;
    uint64_t background, background_rounds;
    uint64_t pressure, pressure_spells;
};

/* All figures. Each is a number of 8 bytes. */
struct figures {
    cairn_heap_stats heap;
    struct steering steering;
};

enum { FIGURE_PREFIX = 6 }; /* bytes of "stats." */

/* Reads all figures. */
void figures_read(struct figures *figures);

/* Returns the key number `index`, "stats." and a name, and stores whether it belongs to struct
 * steering. Those of `heap` are first.
 *
 * Returns: NULL behind the last. */
const char *figures_key(size_t index, bool *of_steering);

/* Returns the value of the key number `index`. */
uint64_t figures_value(const struct figures *figures, size_t index);

#endif
