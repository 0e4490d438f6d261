/* See state.h. */
#include "page/state.h"

#include "base/atomic.h"

struct page_state pages_state = {
    .lock = {.rank = 1},
    .limits = PAGE_LIMITS_DEFAULT,
};

void defer(struct span *span)
{
    span->next = load_relaxed(&pages_state.deferred);
    while (!compare_swap_acq_rel(&pages_state.deferred, &span->next,
                                 span)) /* release: pairs with deferred_settle */
        pause_processor();
}
