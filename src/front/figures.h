/* All that the heap counts, by name: the members of cairn_heap_stats, and what tells whether memory
 * is given back. docs/CONTROL.md says what each means. No state; any thread. */
#ifndef CAIRN_FRONT_FIGURES_H
#define CAIRN_FRONT_FIGURES_H

#include "cairn/stats.h"

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

struct figures {
    cairn_heap_stats heap;
    struct steering steering;
};

enum { FIGURE_PREFIX = 6 }; /* bytes of "stats." */

void figures_read(struct figures *figures);

/* The `index`-th key, "stats." and a name; NULL behind the last. Those of `heap` come first. */
const char *figures_key(size_t index, bool *of_steering);
uint64_t figures_value(const struct figures *figures, size_t index);

#endif
