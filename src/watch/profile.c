/* The sampling heap profiler: how much memory each call site holds and has allocated.
 *
 * The profiler is off until it is started. Then heap/profiling.h chooses samples, whose stacks and
 * weights go to the tables of profile_table.h. A dump (profile_dump.c) is written on request, at
 * the end of the process, and by the malloc after which the live bytes have grown by a given amount
 * or a limit is near. At most one dump is written at a time.
 *
 * In the child of a fork the profiler continues: it has the parent's samples in use, and counts
 * what is allocated since the fork.
 *
 * Threads: any. */
#include "base/bits.h"
#include "base/user_probe.h"
#include "heap/heap.h"
#include "os/process.h"
#include "unwind/unwind.h"
#include "watch/profile_table.h"
#include "watch/watch.h"

#include <errno.h>

/* Owner thread: set while this thread takes a sample. The unwinder may allocate, in a process with
 * unwind tables of its own; these blocks are no samples. */
static thread_local_word bool inside;

/* Writes a dump if the live bytes have reached the mark. The next mark is at least a quarter
 * higher, so the number of these dumps is bounded. */
static void profile_look_at_growth(const struct profile_table *table)
{
    uint64_t growth = load_relaxed(&profile_state.growth_bytes);
    uint64_t live = load_relaxed(&table->live.bytes);
    uint64_t mark = load_relaxed(&profile_state.growth_mark);
    if (growth == 0 || live < mark || (int64_t)live < 0 ||
        !compare_swap_acq_rel(&profile_state.growth_mark, &mark,
                              live + larger_of(growth, live / 4)))
        return;
    (void)profile_dump_next("growth"); /* a failure is reported there */
}

/* Writes a dump when the memory in use reaches seven eighths of the lower limit of the pages. The
 * next one is written only after the memory in use was below three quarters. */
static void profile_look_at_limits(void)
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
        (void)profile_dump_next("limit");
}

/* Records a sample: the callback `allocated` of struct heap_profiler (heap/hooks.h). */
static bool profile_sampled(void *block, size_t asked_bytes, size_t size_bytes)
{
    /* Acquire: pairs with profile_make_table. */
    struct profile_table *table = load_acquire(&profile_state.table);
    uint64_t interval = load_relaxed(&profile_state.interval_bytes);
    if (inside || table == NULL || interval == 0)
        return false;
    inside = true;
    uintptr_t frames[PROFILE_DEPTH];
    unsigned depth = unwind_stack(frames, PROFILE_DEPTH, 0);
    struct profile_block taken = {
        .block = (uintptr_t)block,
        .thread = os_thread_id(),
        .asked_bytes = asked_bytes,
        .objects = profile_weight(size_bytes, interval),
        .time_ms = os_now_ms(),
    };
    profile_table_after_fork(table);
    bool kept = profile_table_add(table, &taken, size_bytes, frames, depth);
    profile_look_at_growth(table);
    profile_look_at_limits();
    inside = false;
    if (kept)
        user_probe_3("otel_memory", "alloc", block, asked_bytes,
                     profile_weighted_bytes(taken.objects, size_bytes));
    return kept;
}

/* Removes a sample: the callback `freed` of struct heap_profiler (heap/hooks.h). */
static void profile_freed(void *block)
{
    /* Acquire: pairs with profile_make_table. */
    struct profile_table *table = load_acquire(&profile_state.table);
    if (table && profile_table_remove(table, block))
        user_probe_1("otel_memory", "free", block);
}

/* Moves a sample to another address: the callback `renamed` of struct heap_profiler
 * (heap/hooks.h). */
static void profile_renamed(void *from, void *to)
{
    /* Acquire: pairs with profile_make_table. */
    struct profile_table *table = load_acquire(&profile_state.table);
    if (table)
        (void)profile_table_rename(table, from, to);
}

static const struct heap_profiler profiler = {
    .allocated = profile_sampled, .freed = profile_freed, .renamed = profile_renamed};

/* The fork handler of the child: it keeps the parent's samples in use, and its sums of allocated
 * memory begin at 0. */
static void profile_in_child(void) { store_relaxed(&profile_state.table->is_forked, 1u); }

/* Makes the tables, unless they exist, and registers the fork handler.
 *
 * Returns: 0 or a negative errno. */
static int profile_make_table(void)
{
    if (load_relaxed(&profile_state.table) != NULL)
        return 0;
    struct profile_table *table = profile_table_make();
    if (table == NULL)
        return -ENOMEM;
    store_release(&profile_state.table, table); /* pairs with each load_acquire of the pointer */
    return os_fork_register(NULL, NULL, profile_in_child);
}

int profile_start(uint64_t interval_bytes, uint64_t seed)
{
    if (interval_bytes == 0)
        return -EINVAL;
    heap_start();
    unwind_prepare();
    if (!os_claim(&profile_state.busy, 0))
        return -EBUSY;
    int error = profile_make_table();
    if (error == 0) {
        store_relaxed(&profile_state.interval_bytes, interval_bytes);
        heap_profile_start(&profiler, interval_bytes, seed);
    }
    os_unclaim(&profile_state.busy);
    return error;
}

void profile_stop(void) { heap_profile_stop(); }

void profile_reset(void)
{
    /* Acquire: pairs with profile_make_table. */
    struct profile_table *table = load_acquire(&profile_state.table);
    if (table)
        profile_table_reset(table);
    store_relaxed(&profile_state.growth_mark, load_relaxed(&profile_state.growth_bytes));
}

void profile_read(cairn_profile_stats *stats)
{
    /* Acquire: pairs with profile_make_table. */
    struct profile_table *table = load_acquire(&profile_state.table);
    *stats = (cairn_profile_stats){0};
    if (table == NULL)
        return;
    profile_table_after_fork(table);
    stats->interval_bytes = load_relaxed(&profile_state.interval_bytes);
    stats->is_on = heap_has_hook(HOOK_PROFILE);
    stats->samples = load_relaxed(&table->allocated.samples);
    stats->live_samples = load_relaxed(&table->live.samples);
    stats->allocated_bytes = load_relaxed(&table->allocated.bytes);
    stats->live_bytes = load_relaxed(&table->live.bytes);
    stats->lost_stacks = load_relaxed(&table->stacks_lost);
    stats->lost_blocks = load_relaxed(&table->blocks_lost);
    for (size_t i = 0; i < PROFILE_SITES; i++)
        stats->sites += load_relaxed(&table->sites[i].ready) != 0;
}
