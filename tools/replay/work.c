// Measures how long a step of work takes.
#include "work.h"

#include "player.h"

#include <time.h>

enum { TRIAL_STEPS = 50000, TRIALS = 5 };

uint32_t work_steps(uint64_t work_ns)
{
    uint64_t least_ns = UINT64_MAX, value = 1;
    for (int trial = 0; work_ns && trial < TRIALS; trial++) {
        uint64_t start_ns = player_clock(CLOCK_THREAD_CPUTIME_ID);
        value = work(value, TRIAL_STEPS);
        uint64_t spent_ns = player_clock(CLOCK_THREAD_CPUTIME_ID) - start_ns;
        if (spent_ns && spent_ns < least_ns)
            least_ns = spent_ns;
    }
    uint64_t steps = (work_ns * TRIAL_STEPS + least_ns / 2) / least_ns;
    return steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX;
}
