/* See bound.h. */
#include "page/bound.h"

#include "base/alone.h"
#include "base/bits.h"
#include "os/os.h"
#include "page/purge.h"
#include "page/room.h"
#include "page/state.h"

enum {
    WAIT_MS = 100,
    GROWTH_AHEAD = 16, /* pages given back for the next takes, too: a call for a few of them */
    GROWTH_TIMES = 2,  /* the peak: so much goes back for it at once, and faults again */
    GROWTH_PART = 4,   /* of the peak where there are threads: each call stops them all */
    GROWTH_A_MS = 4,   /* and so many pages each millisecond: some 12 ms a second */
};

static size_t in_pages(const size_t *limit_bytes)
{
    return load_relaxed(limit_bytes) >> PAGE_SHIFT;
}

/* But for what is free and dirty. */
static size_t used_pages(void)
{
    size_t committed = load_relaxed(&pages_state.committed_pages);
    size_t free = load_relaxed(&pages_state.free_pages) + load_relaxed(&pages_state.purging_pages);
    free = smaller_of(free, committed);
    size_t used = committed - free + load_relaxed(&pages_state.huge_pages) +
                  load_relaxed(&pages_state.apart_pages);
    return used - smaller_of(load_relaxed(&pages_state.swept_pages), used);
}

size_t counted_pages(void)
{
    return used_pages() + load_relaxed(&pages_state.dirty_pages) +
           load_relaxed(&pages_state.purging_dirty) + pages_kept_outside();
}

bool huge_pages_fit(size_t pages)
{
    if (load_relaxed(&pages_state.limits.huge_pages) != HUGE_PAGES_AUTO ||
        load_relaxed(&pages_state.pressed))
        return false;
    size_t soft = load_relaxed(&pages_state.limits.soft_limit_bytes);
    size_t hard = load_relaxed(&pages_state.limits.hard_limit_bytes);
    size_t limit = soft == 0 || hard == 0 ? larger_of(soft, hard) : smaller_of(soft, hard);
    return advice_admits(counted_pages() << PAGE_SHIFT, pages << PAGE_SHIFT, limit);
}

bool hard_limit_admits(size_t pages)
{
    size_t limit = in_pages(&pages_state.limits.hard_limit_bytes);
    if (likely(limit == 0))
        return true;
    size_t counted = counted_pages();
    return counted <= limit && pages <= limit - counted;
}

static bool (*give_kept)(void); /* const after the start */

void pages_on_refusal(bool (*give)(void)) { give_kept = give; }

static void purge_all(void)
{
    purge_pages(SIZE_MAX);
    (void)purge_outside(SIZE_MAX);
}

/* Of one moment: what goes from free to being purged, or back, is in neither for a moment. */
static size_t used_pages_locked(void)
{
    bool locked = lock_acquire(&pages_state.lock);
    size_t used = used_pages();
    if (locked)
        lock_release(&pages_state.lock);
    return used;
}

bool purge_for_hard_limit(size_t pages)
{
    size_t limit = in_pages(&pages_state.limits.hard_limit_bytes);
    size_t used = used_pages_locked();
    if (pages <= limit && used > limit - pages && give_kept && give_kept())
        used = used_pages_locked();
    if (pages > limit || used > limit - pages) {
        fetch_add_relaxed(&pages_state.refusals, (size_t)1);
        return false; /* giving back what is free would not do */
    }
    size_t counted = counted_pages();
    size_t over = counted + pages - smaller_of(limit, counted + pages);
    size_t purged = purge_pages(over);
    if (purged < over)
        (void)purge_outside(over - purged);
    for (unsigned waited = 0; waited < WAIT_MS && counted_pages() + pages > limit &&
                              load_relaxed(&pages_state.purging_dirty) != 0;
         waited++)
        os_sleep_ms(1); /* other threads are giving it back */
    return true;
}

/* Changes the counter, by which so many pages more count, if they are admitted. */
static bool admit(size_t *counter, size_t change, size_t pages)
{
    if (likely(load_relaxed(&pages_state.limits.hard_limit_bytes) == 0)) {
        fetch_add_relaxed(counter, change);
        return true;
    }
    for (unsigned tries = 0;; tries++) {
        bool locked = lock_acquire(&pages_state.lock);
        bool admitted = hard_limit_admits(pages);
        if (admitted)
            fetch_add_relaxed(counter, change);
        if (locked)
            lock_release(&pages_state.lock);
        if (admitted)
            return true;
        if (tries == LIMIT_TRIES || !purge_for_hard_limit(pages))
            return false;
    }
}

bool huge_claim(size_t pages)
{
    bool admitted = admit(&pages_state.huge_pages, pages, pages);
    if (admitted)
        heed_growth(false);
    return admitted;
}

void huge_unclaim(size_t pages) { fetch_sub_relaxed(&pages_state.huge_pages, pages); }

void pages_note_swept(size_t pages) { fetch_add_relaxed(&pages_state.swept_pages, pages); }

bool pages_take_swept(size_t pages)
{
    bool admitted = admit(&pages_state.swept_pages, 0 - pages, pages);
    if (admitted)
        heed_growth(true);
    return admitted;
}

void heed_soft_limit(size_t pages)
{
    size_t limit = in_pages(&pages_state.limits.soft_limit_bytes);
    if (unlikely(limit != 0) && counted_pages() + pages > limit)
        purge_all();
}

/* Once an interval, by one thread; what is added meanwhile is as well forgotten in the next. */
static void forget_growth(void)
{
    uint64_t now = pages_interval_ms();
    uint64_t then = load_relaxed(&pages_state.growth_ms);
    if (now == then || !compare_swap_acq_rel(&pages_state.growth_ms, &then, now))
        return;
    size_t went = load_relaxed(&pages_state.growth_pages);
    size_t forgotten = smaller_of((size_t)(now - then) * GROWTH_A_MS, went);
    (void)compare_swap_acq_rel(&pages_state.growth_pages, &went, went - forgotten);
}

/* Free pages that go back in place of a higher peak. Where lengths come and go they are missed
 * soon, and others go back for them, without end: so what goes back is bounded. */
static size_t purge_for_growth(size_t pages, size_t most)
{
    forget_growth();
    size_t bound = is_alone() ? GROWTH_TIMES * most : most / GROWTH_PART;
    size_t left = bound - smaller_of(load_relaxed(&pages_state.growth_pages), bound);
    if (left == 0 || load_relaxed(&pages_state.dirty_pages) == 0)
        return 0;
    size_t purged = purge_pages_exactly(smaller_of(pages, left));
    fetch_add_relaxed(&pages_state.growth_pages, purged);
    return purged;
}

void heed_growth(bool of_runs)
{
    heed_soft_limit(0);
    if (!config_room)
        return;
    size_t counted = counted_pages();
    size_t most = load_relaxed(&pages_state.most_pages);
    if (likely(counted <= most))
        return;
    counted -= smaller_of(room_purge(counted - most), counted);
    if (of_runs && counted > most)
        counted -= smaller_of(purge_for_growth(counted - most + GROWTH_AHEAD, most), counted);
    if (counted > most)
        store_relaxed(&pages_state.most_pages, counted);
}

void pages_heed_limits(void)
{
    size_t hard = in_pages(&pages_state.limits.hard_limit_bytes);
    heed_soft_limit(0);
    if (hard != 0 && counted_pages() > hard)
        purge_all();
}

void pages_press(bool pressed)
{
    store_relaxed(&pages_state.pressed, pressed);
    if (pressed)
        purge_all();
}
