/* Which packed slab a heap allocates from: see packed_take.h. */
#include "heap/packed_take.h"

#include "base/test_delay.h"
#include "heap/mailbox.h"
#include "heap/remote.h"
#include "heap/tick.h"

#include <string.h>

bool packed_turn_on(struct heap *heap)
{
    if (heap->smallest_slabs < PACKED_FROM_SLABS || packed_is_off())
        return false;
    memset(heap->small_class, CLASS_COUNT, PACKED_BYTES + 1); /* to the slow path */
    return heap->packed.on = true;
}

static struct span *make(struct heap *heap)
{
    struct span *slab = pages_take_slab(PACKED_CLASS);
    if (slab == NULL)
        return NULL;
    for (size_t word = 0; word < PACKED_WORDS; word += 64)
        store_relaxed(packed_summary(slab, word), (uint64_t)0);
    store_relaxed(&slab->limit, (uint64_t)0);
    store_relaxed(&slab->claimed, (uint64_t)0);
    store_relaxed(&slab_remote(slab)->swept.given, (uint64_t)0);
    store_relaxed(&slab_own(slab)->claimed_at, NULL);
    slab->size_bytes = PACKED_BYTES;
    slab->capacity = 1;
    remote_open(heap, slab);
    store_release(&slab->owner,
                  (uintptr_t)heap | OWNER_PACKED); /* pairs with load_acquire of who looks at it */
    return slab;
}

static struct span *refill(struct heap *heap)
{
    if (unlikely(heap->look_after_fork))
        heap_look_after_fork(heap);
    heap_drain_mailbox(heap, remote_mailbox(PACKED_CLASS));
    struct bin *bin = &heap->packed.bin;
    struct span *slab = bin->first;
    bool refused = false;
    while (slab && !slab_take_given(slab, &refused))
        slab = slab->next;
    if (slab) {
        bin_remove(bin, slab);
        return slab;
    }
    heap_drain(heap);
    heaps_tick();
    slab = make(heap);
    if (unlikely(slab == NULL) && heaps_empty_run_caches())
        slab = make(heap);
    return slab;
}

/* Current no more before the mailbox is emptied: what was freed since its words were looked at is
 * told once, and has to be attended to. */
static void wait(struct packed *packed)
{
    struct span *slab = packed->slab;
    packed_unclaim(slab);
    slab->next = slab;
    slab_own(slab)->until = PACKED_PATIENCE_WORDS;
    packed->slab = NULL;
    test_delay();
}

bool packed_advance(struct heap *heap)
{
    struct packed *packed = &heap->packed;
    while (packed->slab == NULL || !packed_claim_next(packed->slab)) {
        if (packed->slab)
            wait(packed);
        packed->slab = refill(heap);
        if (packed->slab == NULL)
            return false;
    }
    return true;
}
