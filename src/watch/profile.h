/* The sampling heap profiler: which sites hold how much, and have allocated how much.
 *
 * Off until it is started; then heap/profiling.h chooses samples, whose stacks and weights go to
 * the tables of profile_table.h. A dump (profile_dump.c) is written by whoever asks for it, by the
 * malloc after which the live bytes have grown by so much or a limit is near, or at the end of the
 * process; at most one at a time. Any thread; in the child of a fork it goes on with the parent's
 * samples.
 */
#ifndef CAIRN_WATCH_PROFILE_H
#define CAIRN_WATCH_PROFILE_H

#include "watch/profile_table.h"

struct profile_state {
    struct profile_table *table; /* atomic: NULL before the first start */
    uint64_t interval_bytes;     /* atomic: 0: off */
    uint64_t growth_bytes;       /* atomic: 0: no dumps on growth */
    uint64_t growth_mark;        /* atomic: live bytes at which the next is due */
    uint32_t near_limit;         /* atomic: the dump near a limit was written */
    uint32_t busy;               /* atomic: process and thread that starts or dumps; 0: none */
};
extern hidden_data struct profile_state profile_state;

/* One at a time; false: another thread is at it. A fork's child takes no heed of its parent's. */
bool profile_claim(void);
void profile_unclaim(void);

#endif
