/* What a slab holds, for statistics. */
#ifndef CAIRN_HEAP_SLAB_COUNT_H
#define CAIRN_HEAP_SLAB_COUNT_H

#include "heap/slab.h"

struct slab_count {
    size_t live_blocks, slots, live_bytes, slab_bytes;
};
struct slab_count heap_count_slab(const struct span *slab, unsigned size_class);

#endif
