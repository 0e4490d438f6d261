/* The heap's figures by name: see figures.h. */
#include "front/figures.h"

#include "base/bits.h"
#include "front/entry.h"
#include "os/os.h"
#include "watch/watch.h"

#include <string.h>

#define OF_HEAP(name)     {"stats." #name, offsetof(struct figures, heap.name), false}
#define OF_STEERING(name) {"stats." #name, offsetof(struct figures, steering.name), true}

/* clang-format off */
static const struct {
    char name[32]; /* an array: pointers cost at each start of a program */
    size_t offset; /* of a number of 8 bytes */
    bool of_steering;
} names[] = {
    OF_HEAP(allocated_bytes),
    OF_HEAP(allocated_blocks),
    OF_HEAP(large_bytes),
    OF_HEAP(large_blocks),
    OF_HEAP(sampled_bytes),
    OF_HEAP(sampled_blocks),
    OF_HEAP(active_bytes),
    OF_HEAP(slab_bytes),
    OF_HEAP(free_bytes),
    OF_HEAP(dirty_bytes),
    OF_HEAP(mapped_bytes),
    OF_HEAP(retained_bytes),
    OF_HEAP(metadata_bytes),
    OF_HEAP(thread_heaps),
    OF_HEAP(purged_bytes),
    OF_HEAP(purges),
    OF_HEAP(map_calls),
    OF_HEAP(protect_calls),
    OF_HEAP(unmap_calls),
    OF_HEAP(advise_calls),
    OF_HEAP(remap_calls),
    OF_STEERING(counted_bytes),
    OF_STEERING(soft_limit_bytes),
    OF_STEERING(hard_limit_bytes),
    OF_STEERING(cgroup_max_bytes),
    OF_STEERING(cgroup_high_bytes),
    OF_STEERING(refusals),
    OF_STEERING(pinned_bytes),
    OF_STEERING(decays),
    OF_STEERING(decay_age_ms),
    OF_STEERING(background),
    OF_STEERING(background_rounds),
    OF_STEERING(pressure),
    OF_STEERING(pressure_spells),
};
/* clang-format on */

static_check(countof(names) * sizeof(uint64_t) == sizeof(struct figures),
             "every number has a name");
static_check(sizeof(size_t) == sizeof(uint64_t), "all are numbers of 8 bytes");

void figures_read(struct figures *figures)
{
    struct page_stats pages;
    struct page_limits limits;
    struct surroundings_figures around;
    stats_read(&figures->heap);
    pages_read_stats(&pages);
    pages_read_limits(&limits);
    surroundings_read(&around);
    const cairn_heap_stats *heap = &figures->heap;
    size_t in_slabs = heap->allocated_bytes -
                      smaller_of(heap->allocated_bytes, heap->large_bytes + heap->sampled_bytes);
    figures->steering = (struct steering){
        .counted_bytes = pages.counted_bytes,
        .soft_limit_bytes = limits.soft_limit_bytes,
        .hard_limit_bytes = limits.hard_limit_bytes,
        .cgroup_max_bytes = around.max_bytes,
        .cgroup_high_bytes = around.high_bytes,
        .refusals = pages.refusals,
        .pinned_bytes = heap->slab_bytes - smaller_of(heap->slab_bytes, in_slabs),
        .decays = pages.intervals,
        .decay_age_ms = os_now_ms() - pages.interval_start_ms,
        .background = background_runs(),
        .background_rounds = background_rounds(),
        .pressure = pages.pressed,
        .pressure_spells = around.pressure_spells,
    };
}

const char *figures_key(size_t index, bool *of_steering)
{
    if (index >= countof(names))
        return NULL;
    *of_steering = names[index].of_steering;
    return names[index].name;
}

uint64_t figures_value(const struct figures *figures, size_t index)
{
    uint64_t value;
    memcpy(&value, (const char *)figures + names[index].offset, sizeof value);
    return value;
}
