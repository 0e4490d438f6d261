/* Injected delays: see test_delay.h. */
#include "base/test_delay.h"

#include "base/atomic.h"

#if CAIRN_TEST_DELAYS

enum { SHORT_MAX = 64, LONG_BYTES_MAX = 1 << 14 }; /* longest delays, in calls of pause_processor */

uint64_t test_delay_seed;

static __thread uint64_t state;

void test_delay_some(void)
{
    uint64_t seed = load_relaxed(&test_delay_seed);
    if (seed == 0)
        return;
    /* SplitMix64: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014. */
    state += 0x9e3779b97f4a7c15;
    uint64_t value = state ^ seed ^ thread_identity();
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
    value = (value ^ value >> 27) * 0x94d049bb133111eb;
    value ^= value >> 31;
    if (value % 4 != 0)
        return;
    uint64_t most = value / 4 % 64 == 0 ? LONG_BYTES_MAX : SHORT_MAX;
    for (uint64_t turns = (value >> 16) % most; turns > 0; turns--)
        pause_processor();
}

#endif
