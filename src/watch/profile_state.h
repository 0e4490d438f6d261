/* What the profiler and its dumps share: whether it is on, and whose turn it is.
 *
 * Any thread; in the child of a fork it stays as it was in the parent.
 */
#ifndef CAIRN_WATCH_PROFILE_STATE_H
#define CAIRN_WATCH_PROFILE_STATE_H

#include "watch/profile_table.h"

struct profile_state {
    struct profile_table *table; /* atomic: NULL before the first start */
    uint64_t interval_bytes;     /* atomic: 0: off */
    uint64_t growth_bytes;       /* atomic: 0: no dumps on growth */
    uint64_t growth_mark;        /* atomic: live bytes at which the next is due */
    uint32_t near_limit;         /* atomic: the dump near a limit was written */
    uint32_t busy;               /* atomic: the process in which one starts or dumps; 0: none */
};
extern hidden_data struct profile_state profile_state;

/* One at a time; false: another thread is at it. A fork's child takes no heed of its parent's. */
bool profile_claim(void);
void profile_unclaim(void);

#endif
