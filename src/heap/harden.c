/* Hardened slab blocks: see harden.h. */
#include "heap/harden.h"

#include "base/bits.h"
#include "base/random.h"
#include "heap/canary.h"
#include "os/os.h"

#include <string.h>

size_t harden_size(struct span *slab, const void *block)
{
    if (slab_is_void(slab))
        return 0;
    return slab->size_bytes - CANARY_BYTES - harden_slack(slab, block);
}

void harden_set_size(struct span *slab, void *block, size_t size_bytes)
{
    canary_place(block, slab->size_bytes, size_bytes);
}

void harden_check(struct span *slab, unsigned slot)
{
    if (!slab_is_void(slab))
        (void)harden_slack(slab, slab_block(slab, slot));
}

void harden_wipe(struct span *slab, unsigned slot)
{
    if (config_zero_freed && !slab_is_void(slab))
        memset(slab_block(slab, slot), 0, slab->size_bytes);
}

void *harden_hand_out(void *block, size_t size_bytes)
{
    size_t block_bytes = page_map_find(block)->size_bytes;
    if (block_bytes > SMALL_MAX)
        return harden_hand_out_medium(block, block_bytes, size_bytes);
    return harden_hand_out_at(block, block_bytes, size_bytes);
}

/* The numbers from `first` on in random order. Fisher and Yates, inside out: Knuth, The Art of
 * Computer Programming, volume 2, 3.4.2. */
static void shuffle(struct heap *heap, uint8_t *order, unsigned count, unsigned first)
{
    uint64_t random = 0;
    for (unsigned i = 0; i < count; i++, random >>= 16) {
        if (i % 4 == 0)
            random = random_next(&heap->random);
        unsigned place = (unsigned)((random & 0xffff) * (i + 1) >> 16);
        order[i] = order[place];
        order[place] = (uint8_t)(first + i);
    }
}

/* Light builds: slots up to so many bytes come by groups of neighbours, which rise. */
static bool is_near(const struct span *slab)
{
    enum { NEAR_MOST_BYTES = 512 };
    return !config_random_pages && slab->size_bytes <= NEAR_MOST_BYTES;
}

/* Slots that come together: neighbours, else a page of them, or GROUP_LEAST where a page has
 * fewer. */
static unsigned group_length(const struct span *slab)
{
    enum { NEIGHBOURS = 8, GROUP_LEAST = 32 };
    if (is_near(slab))
        return NEIGHBOURS;
    return (unsigned)larger_of((size_t)PAGE_BYTES / slab->size_bytes, (size_t)GROUP_LEAST);
}

/* Groups of neighbours rise from a random one on, and around, so that the processor's prefetching
 * has something to go by when a program walks over what it made; others are in random order. */
static void order_groups(struct heap *heap, const struct span *slab, uint8_t *groups,
                         unsigned count)
{
    if (!is_near(slab)) {
        shuffle(heap, groups, count, 0);
        return;
    }
    unsigned start = random_below(&heap->random, count);
    for (unsigned i = 0; i < count; i++)
        groups[i] = (uint8_t)((start + i) % count);
}

/* By groups, each in random order. What a program makes together lies on few pages, and a slab that
 * is hardly used has memory for its part. */
void harden_shuffle(struct heap *heap, struct span *slab)
{
    uint8_t order[CAPACITY_MAX];
    uint8_t groups[CAPACITY_MAX];
    unsigned count = slab->capacity;
    unsigned length = group_length(slab);
    unsigned group_count = (count + length - 1) / length;
    order_groups(heap, slab, groups, group_count);
    unsigned done = 0;
    for (unsigned i = 0; i < group_count; i++) {
        unsigned first = groups[i] * length;
        unsigned in_group = (unsigned)smaller_of(count - first, length);
        shuffle(heap, order + done, in_group, first + 1);
        done += in_group;
    }
    for (unsigned i = 0; i + 1 < count; i++)
        *slab_link(slab, order[i]) = order[i + 1];
    *slab_link(slab, order[count - 1]) = LINK_END;
    slab_own(slab)->head = order[0];
    slab_own(slab)->top = slab_block(slab, order[0]);
    store_relaxed(&slab->limit, (uint64_t)count + 1);
}

void harden_seed(struct heap *heap) { heap->random = os_entropy(); }
