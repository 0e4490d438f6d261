/* Fork, and the start that makes it safe: see page.h and base/lock.h.
 *
 * What is deferred while the lock is frozen is other threads' and lost to the child; what was
 * before is not, nor what they are purging.
 */
#include "base/atomic.h"
#include "os/os.h"
#include "page/free_spans.h"
#include "page/page.h"
#include "page/state.h"
#include "page/steal.h"

static void (*on_fork)(void); /* const after the heap's start */

void pages_on_fork(void (*in_child)(void)) { on_fork = in_child; }

void pages_freeze(void)
{
    lock_freeze(&pages_state.lock);
    store_relaxed(&pages_state.freezes, pages_state.freezes + 1);
    if (!lock_is_frozen_whole(&pages_state.lock))
        return; /* in a signal handler, in the middle of something */
    struct span *unmap = deferred_settle();
    for (struct span *next; unmap; unmap = next) {
        next = unmap->next;
        defer(unmap);
    }
}

void pages_thaw(void) { lock_thaw(&pages_state.lock); }

void pages_thaw_in_child(void)
{
    if (lock_is_frozen_whole(&pages_state.lock)) {
        store_relaxed(&pages_state.deferred, (struct span *)NULL);
        spans_end_others_purges();
        meta_forget_chunks();
    }
    lock_thaw(&pages_state.lock);
}

static void after_fork_in_child(void)
{
    pages_thaw_in_child();
    if (on_fork)
        on_fork();
}

void pages_start(void)
{
    static bool started; /* atomic */
    if (likely(load_relaxed(&started)) || exchange_acq_rel(&started, true))
        return;
    os_init();
    meta_start(fenced_steal);
    (void)os_fork_register(pages_freeze, pages_thaw, after_fork_in_child);
}
