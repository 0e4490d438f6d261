/* The profiler's state: see profile_state.h. */
#include "watch/profile_state.h"

#include "base/atomic.h"
#include "os/os.h"

struct profile_state profile_state;

bool profile_claim(void)
{
    uint32_t process = os_process_id();
    uint32_t seen = load_relaxed(&profile_state.busy);
    return seen != process && compare_swap_acq_rel(&profile_state.busy, &seen, process);
}

void profile_unclaim(void) { store_release(&profile_state.busy, 0u); } /* pairs with claim */
