/* Delays that tests inject between the steps of concurrent protocols, so that other threads run
 * in between. The delays follow from a seed and the number of calls of the thread. A build without
 * CAIRN_TEST_DELAYS contains no code of this. */
#ifndef CAIRN_BASE_TEST_DELAY_H
#define CAIRN_BASE_TEST_DELAY_H

#include "base/compiler.h"

#ifndef CAIRN_TEST_DELAYS
#define CAIRN_TEST_DELAYS 0
#endif

enum { config_test_delays = CAIRN_TEST_DELAYS };

extern uint64_t test_delay_seed; /* atomic, written by the test: 0 for no delays */

/* Delays this call or not, by the seed. */
void test_delay_some(void);

/* Delays in builds for such tests. */
inline_always void test_delay(void)
{
    if (config_test_delays)
        test_delay_some();
}

#endif
