/* The sampling heap profiler: which sites hold how much, and have allocated how much.
 *
 * Off until it is started; then heap/profiling.h chooses samples, whose stacks and weights go to
 * the tables of profile_table.h. A dump (profile_dump.c) is written by whoever asks for it, by the
 * malloc after which the live bytes have grown by so much or a limit is near, or at the end of the
 * process; at most one at a time. Any thread; in the child of a fork it goes on with the parent's
 * samples.
 */
#include "base/bits.h"
#include "base/user_probe.h"
#include "heap/heap.h"
#include "os/os.h"
#include "watch/profile_state.h"
#include "watch/watch.h"

#include <errno.h>

/* The unwinder may allocate after all, in a process with unwind tables of its own. */
static thread_local_word bool inside;

/* Bounded in number: each mark is a quarter above the last at least. */
static void look_at_growth(const struct profile_table *table)
{
    uint64_t growth = load_relaxed(&profile_state.growth_bytes);
    uint64_t live = load_relaxed(&table->live.bytes);
    uint64_t mark = load_relaxed(&profile_state.growth_mark);
    if (growth == 0 || live < mark || (int64_t)live < 0 ||
        !compare_swap_acq_rel(&profile_state.growth_mark, &mark,
                              live + larger_of(growth, live / 4)))
        return;
    profile_dump_next("growth");
}

/* Before a limit of the pages is reached, what is in use is written once: from seven eighths of it
 * on. Once more after a quarter of it was free. */
static void look_at_limits(void)
{
    struct page_limits limits;
    struct page_stats stats;
    pages_read_limits(&limits);
    size_t hard = limits.hard_limit_bytes != 0 ? limits.hard_limit_bytes : SIZE_MAX;
    size_t soft = limits.soft_limit_bytes != 0 ? limits.soft_limit_bytes : SIZE_MAX;
    size_t limit = smaller_of(hard, soft);
    if (limit == SIZE_MAX || !profile_dumps())
        return;
    pages_read_stats(&stats);
    size_t used = stats.counted_bytes - smaller_of(stats.dirty_bytes, stats.counted_bytes);
    if (used < limit - limit / 4)
        store_relaxed(&profile_state.near_limit, 0u);
    else if (used >= limit - limit / 8 && exchange_acq_rel(&profile_state.near_limit, 1u) == 0)
        profile_dump_next("limit");
}

static bool sampled(void *block, size_t asked_bytes, size_t size_bytes)
{
    struct profile_table *table = load_acquire(&profile_state.table); /* pairs with start */
    uint64_t interval = load_relaxed(&profile_state.interval_bytes);
    if (inside || table == NULL || interval == 0)
        return false;
    inside = true;
    uintptr_t frames[PROFILE_DEPTH];
    unsigned depth = os_stack(frames, PROFILE_DEPTH, 0);
    struct profile_block taken = {
        .block = (uintptr_t)block,
        .thread = os_thread_id(),
        .asked_bytes = asked_bytes,
        .objects = profile_weight(size_bytes, interval),
        .time_ms = os_now_ms(),
    };
    bool kept = profile_table_add(table, &taken, size_bytes, frames, depth);
    look_at_growth(table);
    look_at_limits();
    inside = false;
    if (kept)
        user_probe_3("otel_memory", "alloc", block, asked_bytes,
                     profile_weighted_bytes(taken.objects, size_bytes));
    return kept;
}

static void freed(void *block)
{
    struct profile_table *table = load_acquire(&profile_state.table); /* pairs with start */
    if (table && profile_table_remove(table, block))
        user_probe_1("otel_memory", "free", block);
}

static void renamed(void *from, void *to)
{
    struct profile_table *table = load_acquire(&profile_state.table); /* pairs with start */
    if (table)
        (void)profile_table_rename(table, from, to);
}

static const struct heap_profiler profiler = {
    .allocated = sampled, .freed = freed, .renamed = renamed};

int profile_start(uint64_t interval_bytes, uint64_t seed)
{
    if (interval_bytes == 0)
        return -EINVAL;
    heap_start();
    os_stack_prepare();
    if (!profile_claim())
        return -EBUSY;
    if (load_relaxed(&profile_state.table) == NULL)
        store_release(&profile_state.table, profile_table_make()); /* pairs with sampled */
    bool made = load_relaxed(&profile_state.table) != NULL;
    if (made) {
        store_relaxed(&profile_state.interval_bytes, interval_bytes);
        heap_profile_start(&profiler, interval_bytes, seed);
    }
    profile_unclaim();
    return made ? 0 : -ENOMEM;
}

void profile_stop(void) { heap_profile_stop(); }

void profile_reset(void)
{
    struct profile_table *table = load_acquire(&profile_state.table); /* pairs with start */
    if (table)
        profile_table_reset(table);
    store_relaxed(&profile_state.growth_mark, load_relaxed(&profile_state.growth_bytes));
}

void profile_read(struct profile_figures *figures)
{
    const struct profile_table *table = load_acquire(&profile_state.table); /* as above */
    *figures = (struct profile_figures){0};
    if (table == NULL)
        return;
    figures->interval_bytes = load_relaxed(&profile_state.interval_bytes);
    figures->on = (load_acquire(&heap_watch) & WATCH_PROFILE) != 0;
    figures->samples = load_relaxed(&table->allocated.samples);
    figures->live_samples = load_relaxed(&table->live.samples);
    figures->allocated_bytes = load_relaxed(&table->allocated.bytes);
    figures->live_bytes = load_relaxed(&table->live.bytes);
    figures->lost_stacks = load_relaxed(&table->stacks_lost);
    figures->lost_blocks = load_relaxed(&table->blocks_lost);
    for (size_t i = 0; i < PROFILE_SITES; i++)
        figures->sites += load_relaxed(&table->sites[i].ready) != 0;
}
