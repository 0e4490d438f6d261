/* See slab_count.h. */
#include "heap/slab_count.h"

#include "base/bits.h"
#include "heap/frozen.h"
#include "heap/packed_words.h"

/* Other threads go on meanwhile, and the slab may be given back, or be of another class, at any
 * step. Its header and its link bytes stay readable, and a header's slabs are all of classes with
 * as many of them: the figures may be wrong then, but nothing else is read. */
struct slab_count heap_count_slab(const struct span *slab, unsigned class)
{
    if (class == PACKED_CLASS) {
        size_t blocks = packed_live(slab);
        return (struct slab_count){.live_blocks = blocks,
                                   .slots = PACKED_WORDS * 64,
                                   .live_bytes = blocks * PACKED_BYTES,
                                   .slab_bytes = (size_t)PACKED_PAGES << PAGE_SHIFT};
    }
    const struct size_class *shape = &size_classes[class];
    size_t handed_out = smaller_of(load_relaxed(&slab->limit) - 1, (uint64_t)shape->capacity);
    size_t live = 0;
    size_t freed = 0;
    for (unsigned slot = 1; slot <= handed_out; slot++)
        live += link_shows_use(load_relaxed(slab_link(slab, slot)));
    bool words_count =
        slab_is_frozen(slab) && load_acquire(&slab_remote(slab)->generation) == heap_generation;
    for (unsigned i = 0; i < REMOTE_WORDS && words_count; i++)
        freed += count_bits(load_relaxed(&slab_remote(slab)->words[i]));
    live -= smaller_of(live, freed);
    bool no_memory = class_is_void(class);
    return (struct slab_count){.live_blocks = live,
                               .slots = shape->capacity,
                               .live_bytes = no_memory ? 0 : live * shape->size_bytes,
                               .slab_bytes = no_memory ? 0 : (size_t)shape->pages << PAGE_SHIFT};
}
