/* Hardened slab blocks: see harden.h. */
#include "heap/harden.h"

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

void harden_take_back(struct span *slab, unsigned slot)
{
    harden_take_back_at(slab, slab_block(slab, slot));
}

void harden_wipe(struct span *slab, unsigned slot)
{
    if (config_zero_freed && !slab_is_void(slab))
        memset(slab_block(slab, slot), 0, slab->size_bytes);
}

void *harden_hand_out(void *block, size_t size_bytes)
{
    return harden_hand_out_at(block, page_map_find(block)->size_bytes, size_bytes);
}

void harden_shuffle(struct heap *heap, struct span *slab)
{
    /* Fisher and Yates, inside out: Knuth, The Art of Computer Programming, volume 2, 3.4.2. */
    uint8_t order[CAPACITY_MAX];
    uint64_t random = 0;
    unsigned count = slab->capacity;
    for (unsigned i = 0; i < count; i++, random >>= 16) {
        if (i % 4 == 0)
            random = random_next(&heap->random);
        unsigned place = (unsigned)((random & 0xffff) * (i + 1) >> 16);
        order[i] = order[place];
        order[place] = (uint8_t)(i + 1);
    }
    for (unsigned i = 0; i + 1 < count; i++)
        *slab_link(slab, order[i]) = order[i + 1];
    *slab_link(slab, order[count - 1]) = LINK_END;
    slab->head = order[0];
    slab->top = slab_block(slab, order[0]);
    store_relaxed(&slab->limit, (uint64_t)count + 1);
}

void harden_seed(struct heap *heap) { heap->random = os_entropy(); }
