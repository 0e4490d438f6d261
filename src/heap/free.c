/* The slow half of free: blocks of other threads, large ones, counts that ran out, and everything
 * that is not a block.
 */
#include "base/check.h"
#include "heap/checked.h"
#include "heap/harden.h"
#include "heap/heap.h"
#include "heap/large.h"
#include "heap/packed.h"
#include "heap/remote.h"

/* Misuse: finds out what the pointer is, says it and dies. */
static _Noreturn cold void reject(const void *pointer, const char *operation)
{
    char *start;
    struct span *span = pages_search(pointer, &start);
    const char *address = pointer;
    if (span && span_is_slab(span)) {
        size_t size = span->size_bytes;
        size_t offset = (size_t)(address - start);
        size_t slot = offset / size + 1;
        bool packed = slab_is_packed(span);
        if (!packed && slot > span->capacity)
            die("%s of %p, which is not a Cairn block", operation, pointer);
        if (offset % size != 0)
            die("%s of interior pointer %p (%zu-byte block at %p)", operation, pointer, size,
                (void *)(start + offset - offset % size));
        if (slot >= (packed ? span->limit * 64 + 1 : span->limit))
            die("%s of %p, which is not a Cairn block", operation, pointer);
        die("double free of %p (%zu-byte block)", pointer, size);
    }
    if (span && span->tag != SPAN_RUN && span->tag != SPAN_RUN_HUGE) {
        size_t size = (size_t)span->pages << PAGE_SHIFT;
        die("%s of interior pointer %p (%zu-byte block at %p)", operation, pointer, size,
            (void *)start);
    }
    bool trapped = config_guarded_blocks && page_map_find(pointer)->tag == SPAN_TRAPPED;
    if (span == NULL && (trapped || pages_holds(pointer)))
        die(operation[0] == 'f' ? "double %s of %p (its memory is free)"
                                : "%s of freed block %p (its memory is free)",
            operation, pointer);
    die("%s of %p, which is not a Cairn block", operation, pointer);
}

void free_foreign(void *pointer) { reject(pointer, "free"); }

/* Undoes slab_slot as far as the arithmetic allows: exact for every address in the slab. */
void free_reject(uint32_t slot, struct span *slab)
{
    if (unlikely(!span_is_slab(slab)))
        return; /* NULL, from a program's IFUNC resolver, before this library's thread-local word
                   has its value */
    slab->top = slab_block(slab, slab->head); /* a handler of the abort may allocate */
    unsigned twos = lowest_bit(slab->size_bytes);
    unsigned lost = INVERSE_SHIFT - twos;
    uint32_t product = (uint32_t)rotate_right_32(slot, 32 - INVERSE_SHIFT);
    int32_t offset = (int32_t)(product * (slab->size_bytes >> twos)) >> lost;
    reject(slab->base + offset, "free");
}

/* A thread that only frees gets to its mailbox here. */
void free_attend(struct span *slab)
{
    heap_attend(thread_heap, slab);
    if (load_relaxed(&thread_heap->mailbox) != NULL)
        heap_drain(thread_heap);
}

cold void die_freed(const void *block, const struct span *slab, const char *operation)
{
    if (operation[0] == 'f')
        die("double free of %p (%u-byte block)", block, slab->size_bytes);
    die("%s of freed block %p (%u-byte block)", operation, block, slab->size_bytes);
}

unsigned checked_slot(const void *pointer, struct span *slab, const char *operation)
{
    unsigned slot = (unsigned)slab_slot(slab, pointer);
    if (unlikely(slab_is_frozen(slab)) && slot - 1 < slab->capacity) {
        slab_begin_frozen(slab);
        if (unlikely(slab_frozen_freed(slab, slot)))
            die_freed(pointer, slab, operation);
        return slot; /* its other state is not to be trusted */
    }
    if (unlikely(slot >= load_relaxed(&slab->limit)))
        reject(pointer, operation);
    if (unlikely(load_relaxed(slab_link(slab, slot)) != LINK_LIVE))
        die_freed(pointer, slab, operation);
    return slot;
}

size_t checked_packed(const void *pointer, struct span *slab, const char *operation)
{
    size_t offset = (size_t)((const char *)pointer - slab->base);
    size_t index = offset / PACKED_BYTES;
    bool frozen = slab_is_frozen(slab); /* then its limit is not to be trusted */
    if (unlikely(frozen))
        slab_begin_frozen(slab);
    size_t words = frozen ? (size_t)PACKED_WORDS : (size_t)load_relaxed(&slab->limit);
    if (unlikely(offset % PACKED_BYTES != 0 || index / 64 >= words))
        reject(pointer, operation);
    struct packed_bits bits = {0};
    if (frozen) /* its holder may have stopped in the middle of a claim */
        bits.in_word = (load_relaxed(packed_word(slab, index / 64)) >> index % 64 & 1) != 0;
    else
        bits = packed_bits_of(slab, pointer);
    if (unlikely(bits.in_word || bits.in_claim)) {
        die_freed(pointer, slab, operation);
    }
    return index;
}

void free_slow(void *pointer, struct span *span)
{
    if (likely(span_is_slab(span))) {
        struct heap *heap = slab_heap(span);
        if (unlikely(heap == NULL))
            reject(pointer, "free"); /* the slab is just being given back */
        else if (slab_is_packed(span))
            packed_free(pointer, heap, span);
        else
            remote_free(pointer, heap, span);
        return;
    }
    if (likely(pointer == NULL))
        return;
    if (span->tag == SPAN_GUARDED) {
        heap_sampler->free(pointer, span);
        return;
    }
    if (unlikely((span->tag != SPAN_LARGE && span->tag != SPAN_HUGE) || span->base != pointer))
        reject(pointer, "free");
    if (unlikely(!large_free(span)))
        die("double free of %p (its memory is free)", pointer);
}

struct span *checked_span(const void *pointer, const char *operation)
{
    struct span *span = page_map_find(pointer);
    if (span_is_slab(span) && slab_is_packed(span))
        (void)checked_packed(pointer, span, operation);
    else if (span_is_slab(span))
        (void)checked_slot(pointer, span, operation);
    else if (span->tag == SPAN_GUARDED)
        heap_sampler->check(pointer, span, operation);
    else if ((span->tag != SPAN_LARGE && span->tag != SPAN_HUGE) || span->base != pointer)
        reject(pointer, operation);
    return span;
}
