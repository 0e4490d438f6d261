/* What a pointer is that a caller claims to be a block: see checked.h. */
#include "heap/checked.h"

#include "heap/frozen.h"
#include "heap/packed_words.h"
#include "heap/refuse.h"
#include "heap/sampling.h"

unsigned checked_slot(const void *pointer, struct span *slab, const char *operation)
{
    unsigned slot = (unsigned)slab_slot(slab, pointer);
    if (unlikely(slab_is_frozen(slab)) && slot - 1 < slab->capacity) {
        slab_begin_frozen(slab);
        if (likely(!slab_frozen_freed(slab, slot)))
            return slot; /* its other state is not to be trusted */
        refuse_freed(pointer, slab, operation);
    } else if (unlikely(slot >= load_relaxed(&slab->limit))) {
        refuse_pointer(pointer, operation);
    } else if (unlikely(!link_shows_use(load_relaxed(slab_link(slab, slot))))) {
        refuse_freed(pointer, slab, operation);
    } else {
        return slot;
    }
    return SLOT_REFUSED;
}

size_t checked_packed(const void *pointer, struct span *slab, const char *operation)
{
    size_t offset = (size_t)((const char *)pointer - slab->base);
    size_t index = offset / PACKED_BYTES;
    bool frozen = slab_is_frozen(slab); /* then its limit is not to be trusted */
    if (unlikely(frozen))
        slab_begin_frozen(slab);
    size_t words = PACKED_WORDS;
    if (!frozen) /* of one that another thread gives back just now, too */
        words = smaller_of(words, (size_t)load_relaxed(&slab->limit));
    if (unlikely(offset % PACKED_BYTES != 0 || index / 64 >= words)) {
        refuse_pointer(pointer, operation);
        return INDEX_REFUSED;
    }
    struct packed_bits bits = {0};
    if (frozen) /* its holder may have stopped in the middle of a claim */
        bits.in_word = (load_relaxed(packed_word(slab, index / 64)) >> index % 64 & 1) != 0;
    else
        bits = packed_bits_at(slab, index, (const char *)pointer - index % 64 * PACKED_BYTES);
    if (likely(!bits.in_word && !bits.in_claim))
        return index;
    refuse_freed(pointer, slab, operation);
    return INDEX_REFUSED;
}

struct span *checked_span(const void *pointer, const char *operation)
{
    struct span *span = page_map_find(pointer);
    bool taken;
    if (span_is_slab(span) && slab_is_packed(span))
        taken = checked_packed(pointer, span, operation) != INDEX_REFUSED;
    else if (span_is_slab(span))
        taken = checked_slot(pointer, span, operation) != SLOT_REFUSED;
    else if (span->tag == SPAN_GUARDED)
        taken = heap_sampler->check(pointer, span, operation);
    else
        taken = large_is_in_use(span) && span->base == pointer;
    if (likely(taken))
        return span;
    if (!span_is_slab(span) && span->tag != SPAN_GUARDED)
        refuse_pointer(pointer, operation);
    return NULL;
}
