/* Which blocks are sampled: see sampling.h. Random numbers: xorshift64* (Vigna, 2016), one state a
 * heap. */
#include "heap/sampling.h"

#include "os/os.h"

enum {
    DENSE_INTERVAL_MAX = 1000, /* sampling costs more than counting on the slow path up to here */
    SKIPPED_MAX = 32,
};

const struct heap_sampler *heap_sampler;

static uint64_t random_word(struct heap *heap)
{
    struct sampling *sampling = &heap->sampling;
    while (sampling->random == 0)
        sampling->random = os_entropy() ^ (uintptr_t)heap;
    sampling->random ^= sampling->random >> 12;
    sampling->random ^= sampling->random << 25;
    sampling->random ^= sampling->random >> 27;
    return sampling->random * 0x2545f4914f6cdd1du >> 32;
}

/* From 1 to 2 * interval - 1, all alike. */
static int64_t next_interval(struct heap *heap)
{
    uint64_t span = 2 * (uint64_t)heap_sampler->interval - 1;
    return 1 + (int64_t)(random_word(heap) % span);
}

/* True when one of these blocks is to be sampled. */
static bool count_down(struct heap *heap, unsigned blocks)
{
    struct sampling *sampling = &heap->sampling;
    if (unlikely(sampling->random == 0))
        sampling->left = next_interval(heap);
    sampling->left -= blocks;
    if (likely(sampling->left > 0))
        return false;
    sampling->left = next_interval(heap);
    return true;
}

void heap_set_sampler(const struct heap_sampler *sampler)
{
    if (sampler->interval <= DENSE_INTERVAL_MAX)
        heap_arm_all();
    store_release(&heap_sampler, sampler); /* pairs with heap_is_sampling */
    fetch_or_acq_rel(&heap_watch, (uint32_t)WATCH_GUARDED);
}

void *heap_sample(struct heap *heap, unsigned class, size_t size_bytes, size_t alignment_bytes)
{
    struct sampling *sampling = &heap->sampling;
    if (heap_sampler->interval > DENSE_INTERVAL_MAX && class < SMALL_CLASSES) {
        if (sampling->armed != class + 1)
            return NULL;
        if (sampling->skipped > 0) {
            sampling->skipped--;
            return NULL;
        }
        heap_disarm(heap);
    } else if (!count_down(heap, 1)) {
        return NULL;
    }
    return heap_sampler->allocate(size_bytes, alignment_bytes);
}

void heap_passed(struct heap *heap, unsigned class, unsigned blocks)
{
    if (heap_sampler->interval <= DENSE_INTERVAL_MAX || class >= SMALL_CLASSES ||
        !count_down(heap, blocks))
        return;
    heap->sampling.skipped = (uint8_t)(random_word(heap) % SKIPPED_MAX);
    heap_arm(heap, class);
}
