/* Sampling: now and then a block is served by somebody else than the slabs (watch/ guards it).
 *
 * The fast path has no counter. It goes to the slow path when the current slab is the empty slab,
 * so to sample a coming malloc its class is armed: the thread heap's table of classes by size shows
 * one for its sizes whose current slab is always the empty one, while the class keeps its own. The
 * slow paths that the heap visits anyway (a slab ran full, a count of frees ran out) tell how many
 * blocks went through since, and arm the class that they visit each time some random number of
 * them, `interval` on average, has gone by. A few more mallocs of the class pass before one is
 * taken, or programs that allocate in a fixed rhythm would be seen at the same place always. At
 * small intervals all classes are armed for good and every malloc is counted.
 *
 * The count is an estimate: blocks freed by other threads are missed, slots that stay unused are
 * counted. Classes above SMALL_MAX take the slow path always and are counted exactly; large blocks
 * are not sampled.
 *
 * Threading: the sampler is set once; a heap's state is its holder's.
 */
#ifndef CAIRN_HEAP_SAMPLING_H
#define CAIRN_HEAP_SAMPLING_H

#include "heap/class_table.h"

struct heap_sampler {
    uint32_t interval; /* one block in about so many; not 0 */

    /* A block in use that reads zero, whose span has tag SPAN_GUARDED; NULL: the heap shall serve
     * it. */
    void *(*allocate)(size_t size_bytes, size_t alignment_bytes);
    /* `pointer` lies in such a span's pages. Unless it is a block in use, that is reported; what
     * follows is said in refuse.h. False: refused. */
    void (*free)(void *pointer, struct span *span);
    bool (*check)(const void *pointer, const struct span *span, const char *operation);
    /* Of all such blocks in use. */
    void (*count)(size_t *blocks, size_t *bytes);
};

extern hidden_data const struct heap_sampler *heap_sampler; /* atomic: NULL is off; set once */

void heap_set_sampler(const struct heap_sampler *sampler);

inline_always bool heap_is_sampling(void)
{
    return unlikely(load_acquire(&heap_sampler) != NULL); /* pairs with heap_set_sampler */
}

/* Serves the block if it is one to sample; else NULL. The holder's, only when sampling. */
void *heap_sample(struct heap *heap, unsigned size_class, size_t size_bytes,
                  size_t alignment_bytes);

/* So many blocks of the class went through the heap. The holder's, only when sampling. */
void heap_passed(struct heap *heap, unsigned size_class, unsigned blocks);

#endif
