/* Canaries, zeroing and random order of slab blocks: see harden.h. */
#include "heap/harden.h"

#include "base/bits.h"
#include "base/random.h"
#include "os/memory.h"
#include "os/process.h"

#include <string.h>

size_t harden_size(struct span *slab, const void *block)
{
    if (slab_is_zero_size(slab))
        return 0;
    return slab->size_bytes - CANARY_BYTES - harden_slack(slab, block);
}

void harden_wipe(struct span *slab, unsigned slot)
{
    if (config_zero_freed && !slab_is_zero_size(slab))
        memset(slab_block(slab, slot), 0, slab->size_bytes);
}

void *harden_hand_out(void *block, size_t size_bytes)
{
    size_t block_bytes = page_map_find(block)->size_bytes;
    return harden_hand_out_at(block, block_bytes, size_bytes, block_bytes <= SMALL_BLOCK_MAX);
}

/* The number of slots from which the first slot of a slab is drawn: those of a page, at least
 * GROUP_MIN. In light builds, for slots up to NEAR_MAX_BYTES, it is a few neighbours. */
static unsigned harden_first_choice(const struct span *slab)
{
    enum { NEIGHBOURS = 10, NEAR_MAX_BYTES = 512, GROUP_MIN = 32 };
    if (!config_random_pages && slab->size_bytes <= NEAR_MAX_BYTES)
        return NEIGHBOURS;
    return (unsigned)larger_of((size_t)PAGE_BYTES / slab->size_bytes, (size_t)GROUP_MIN);
}

/* A walk once around all slots of a slab, upwards or downwards. Slots count from 1. */
struct round {
    unsigned slot, step, count; /* next slot, distance to the one after it, slots of the slab */
};

/* Starts a walk at a random page: upwards with the first slot of that page, downwards with the slot
 * before it. */
static struct round harden_round_start(struct heap *heap, const struct span *slab)
{
    uint64_t random = random_next(&heap->random);
    size_t page = (random >> 32) * size_classes[slab_class(slab)].pages >> 32;
    size_t before = ((page << PAGE_SHIFT) + slab->size_bytes - 1) / slab->size_bytes;
    unsigned count = slab->capacity;
    unsigned step = random % 2 ? 1 : count - 1;
    unsigned slot = (unsigned)(before + (step != 1 ? step : 0)) % count + 1;
    return (struct round){.slot = slot, .step = step, .count = count};
}

inline_always uint8_t round_next(struct round *round)
{
    unsigned slot = round->slot;
    unsigned next = slot + round->step;
    round->slot = next > round->count ? next - round->count : next;
    return (uint8_t)slot;
}

/* Each slot is drawn from the next ones around the slab only. The drawn slots up to the first half
 * of a group are not replaced. From then on each one is replaced by the next slot around the slab,
 * until there is none.
 *
 * So a walk over blocks in the order of their allocation moves through memory in one direction,
 * which the processor's prefetching follows. A slab that is hardly used has memory for its used
 * part only. The slots that can be drawn are spread over at least the length of a group. So a block
 * is no easier to guess from the one before than in a group that is shuffled as a whole. */
void harden_shuffle(struct heap *heap, struct span *slab)
{
    uint8_t choice[CAPACITY_MAX];
    unsigned count = slab->capacity;
    unsigned group = (unsigned)smaller_of(harden_first_choice(slab), count);
    unsigned half = group / 2;
    struct round round = harden_round_start(heap, slab);
    for (unsigned i = 0; i < group; i++)
        choice[i] = round_next(&round);
    unsigned choices = group;
    uint8_t first = 0;
    uint8_t *link = &first;
    uint64_t random = 0;
    for (unsigned i = 0; i < count; i++, random >>= 16) {
        if (i % 4 == 0)
            random = random_next(&heap->random);
        uint8_t *drawn = choice + ((random & 0xffff) * choices >> 16);
        *link = *drawn;
        link = slab_link(slab, *drawn);
        *drawn = i - half < count - group ? round_next(&round) : choice[--choices];
    }
    *link = LINK_END;
    slab_hot(slab)->head = first;
    slab_hot(slab)->top = slab_block(slab, first);
    store_relaxed(&slab->fresh_slot, (uint64_t)count + 1);
}

void harden_seed(struct heap *heap) { heap->random = os_random(); }

struct secrets secrets_of_process[sealed_count(struct secrets, 1)] sealed_data;
sealed_fills(secrets_of_process);

_Noreturn void canary_damaged(const struct span *slab, const void *block)
{
    unsigned slot = (unsigned)slab_slot(slab, block);
    /* Another thread may have freed it since it was found in use. */
    if (!link_shows_use(load_relaxed(slab_link(slab, slot))))
        die("double free of %p (%u-byte block)", block, slab->size_bytes);
    die("overflow of %p (%u-byte block)", block, slab->size_bytes);
}

_Noreturn void block_written(const void *block, size_t block_bytes)
{
    die("write after free to %p (%zu-byte block)", block, block_bytes);
}

void canary_start(void)
{
    secrets_of_process[0] = (struct secrets){.factor = os_random() | 1, .mask = os_random()};
    if (config_sealed)
        (void)os_protect(secrets_of_process, sizeof secrets_of_process, OS_READ);
}
