/* The counts, and the admission of takes: see limits.h. */
#include "page/limits.h"

#include "base/bits.h"
#include "os/memory.h"
#include "os/process.h"
#include "page/free_spans.h"
#include "page/kept_mappings.h"
#include "page/purge.h"
#include "page/state.h"

enum { WAIT_MS = 100 }; /* longest wait for other threads that purge */

/* A limit in pages; SIZE_MAX / 2 if there is none. */
static size_t limits_in_pages(const size_t *limit_bytes)
{
    size_t bytes = load_relaxed(limit_bytes);
    return likely(bytes == 0) ? SIZE_MAX / 2 : larger_of(bytes >> PAGE_SHIFT, 1);
}

/* The counted pages without free dirty ones and those kept outside the arenas. */
static size_t limits_used_pages(void)
{
    size_t used = shards_used_pages() + load_relaxed(&pages_state.huge_pages) +
                  load_relaxed(&pages_state.fork_run_pages);
    return used - smaller_of(load_relaxed(&pages_state.swept_pages), used);
}

size_t limits_counted_pages(void)
{
    return limits_used_pages() + load_relaxed(&pages_state.dirty_pages) +
           load_relaxed(&pages_state.purging_dirty) + pages_kept_outside();
}

size_t pages_counted_bytes(void) { return limits_counted_pages() << PAGE_SHIFT; }

bool limits_admit_huge_pages(size_t pages)
{
    enum { PAGE_OF_2_MIB = 4096 }; /* with pages of 4 KiB a huge page has 2 MiB */
    if (load_relaxed(&pages_state.limits.huge_pages) != HUGE_PAGES_AUTO ||
        load_relaxed(&pages_state.pressed) || os_page_size() != PAGE_OF_2_MIB)
        return false;
    size_t limit = smaller_of(limits_in_pages(&pages_state.limits.soft_limit_bytes),
                              limits_in_pages(&pages_state.limits.hard_limit_bytes));
    return limits_counted_pages() + pages <= limit / 4 * 3;
}

static bool limits_exceed(const size_t *limit_bytes, size_t more)
{
    return unlikely(load_relaxed(limit_bytes) != 0) &&
           limits_counted_pages() + more > limits_in_pages(limit_bytes);
}

bool limits_admit_hard(size_t pages)
{
    return !limits_exceed(&pages_state.limits.hard_limit_bytes, pages);
}

static bool (*give_kept)(void); /* const after the start */

void pages_on_refusal(bool (*give)(void)) { give_kept = give; }

bool limits_give_kept(void) { return give_kept && give_kept(); }

static void limits_purge_all(void)
{
    purge_pages(SIZE_MAX);
    (void)purge_outside(SIZE_MAX);
}

/* The used pages at one moment: without the lock, a span between free and being purged is in
 * neither count, and a growth may be counted as committed and not yet as free. */
static size_t limits_used_pages_locked(void)
{
    bool locked = lock_acquire(&pages_state.lock);
    size_t used = limits_used_pages();
    if (locked)
        lock_release(&pages_state.lock);
    return used;
}

bool limits_wait_for_purges(unsigned *waited)
{
    if (*waited == WAIT_MS || load_relaxed(&pages_state.purging_dirty) == 0)
        return false;
    os_sleep_ms(1);
    (*waited)++;
    return true;
}

seldom_called bool limits_purge_for_hard(size_t pages)
{
    size_t limit = limits_in_pages(&pages_state.limits.hard_limit_bytes);
    free_spans_settle_all();
    size_t used = limits_used_pages_locked();
    if (pages <= limit && used + pages > limit && limits_give_kept())
        used = limits_used_pages_locked();
    if (used + pages > limit) {
        fetch_add_relaxed(&pages_state.refusals, (size_t)1);
        return false; /* purging all free memory would not be enough */
    }
    size_t counted = limits_counted_pages();
    size_t over = counted + pages - smaller_of(limit, counted + pages);
    /* at least a step, not for each take anew */
    size_t purged = over != 0 ? purge_pages(larger_of(over, PURGE_STEP_PAGES)) : 0;
    if (purged < over)
        (void)purge_outside(over - purged);
    unsigned waited = 0;
    while (limits_counted_pages() + pages > limit && limits_wait_for_purges(&waited))
        continue;
    return true;
}

/* Changes a counter by `change`, which makes `pages` more pages count, if the hard limit admits
 * them. */
static bool limits_admit(size_t *counter, size_t change, size_t pages)
{
    if (likely(load_relaxed(&pages_state.limits.hard_limit_bytes) == 0)) {
        fetch_add_relaxed(counter, change);
        return true;
    }
    for (unsigned tries = 0;; tries++) {
        bool locked = lock_acquire(&pages_state.lock);
        bool admitted = limits_admit_hard(pages);
        if (admitted)
            fetch_add_relaxed(counter, change);
        if (locked)
            lock_release(&pages_state.lock);
        if (admitted)
            return true;
        if (tries == LIMIT_TRIES || !limits_purge_for_hard(pages))
            return false;
    }
}

bool limits_claim_mapping(size_t pages)
{
    return limits_admit(&pages_state.huge_pages, pages, pages);
}

void limits_unclaim_mapping(size_t pages) { fetch_sub_relaxed(&pages_state.huge_pages, pages); }

void pages_note_swept(size_t pages) { fetch_add_relaxed(&pages_state.swept_pages, pages); }

bool pages_take_swept(size_t pages)
{
    bool admitted = limits_admit(&pages_state.swept_pages, 0 - pages, pages);
    if (admitted)
        limits_enforce_soft(0);
    return admitted;
}

void limits_enforce_soft(size_t pages)
{
    if (limits_exceed(&pages_state.limits.soft_limit_bytes, pages))
        limits_purge_all();
}

void limits_heed_growth(size_t pages)
{
    limits_enforce_soft(pages);
    if (!config_kept_mappings)
        return;
    size_t counted = limits_counted_pages();
    size_t most = load_relaxed(&pages_state.most_pages);
    if (likely(counted <= most))
        return;
    if (kept_mapping_pages() != 0)
        counted -= smaller_of(kept_mapping_purge(counted - most), counted);
    if (counted > most)
        store_relaxed(&pages_state.most_pages, counted);
}

void pages_heed_limits(void)
{
    if (limits_exceed(&pages_state.limits.soft_limit_bytes, 0) || !limits_admit_hard(0))
        limits_purge_all();
}

void pages_press(bool pressed)
{
    store_relaxed(&pages_state.pressed, pressed);
    if (pressed)
        limits_purge_all();
}
