/* TLSF's lists of free blocks, one for each size class: link, unlink, find. All take constant time.
 *
 * A list is doubly linked, last in first out. The head's `prev` is not kept: whether a block is the
 * head is asked of the heap, which is in the cache, so that taking a head does not touch the block
 * that follows it, which is not.
 *
 * Every link is looked at before it is followed, and the block that it leads to before it is
 * trusted: a program that writes into freed memory dies here instead of corrupting the heap.
 */
#ifndef CAIRN_REGION_TLSF_LIST_H
#define CAIRN_REGION_TLSF_LIST_H

#include "region/tlsf_block.h"
#include "region/tlsf_fault.h"

enum {
    TLSF_PROBES = 4,      /* of a class whose blocks may be too small, before a larger one is cut */
    TLSF_LAST_PROBES = 8, /* when there is no larger one: the request fails otherwise */
};

inline_always void list_mark(struct cairn_tlsf *heap, unsigned size_class)
{
    heap->second[size_class >> TLSF_SECOND_BITS] |= 1u << (size_class & (TLSF_SECOND_LEVELS - 1));
    heap->first |= (uint64_t)1 << (size_class >> TLSF_SECOND_BITS);
}

inline_always void list_unmark(struct cairn_tlsf *heap, unsigned size_class)
{
    unsigned first = size_class >> TLSF_SECOND_BITS;
    heap->second[first] &= ~(1u << (size_class & (TLSF_SECOND_LEVELS - 1)));
    if (heap->second[first] == 0)
        heap->first &= ~((uint64_t)1 << first);
}

/* Makes [at, at + size) a free block. The word behind it is the caller's to change. */
inline_always void list_link(struct cairn_tlsf *heap, place at, size_t size_bytes)
{
    unsigned size_class = tlsf_class_of(size_bytes);
    struct block *block = block_at(heap, at);
    place head = heap->head[size_class];
    block->word = word_of(at, size_bytes, BLOCK_FREE);
    block->next = head;
    *block_footer(block_at(heap, at + (place)size_bytes)) = size_bytes;
    if (head != 0)
        block_at(heap, head)->prev = at;
    else
        list_mark(heap, size_class);
    heap->head[size_class] = at;
}

/* Takes a free block out of its class's list. */
inline_always void list_unlink(struct cairn_tlsf *heap, place at, size_t size_bytes)
{
    unsigned size_class = tlsf_class_of(size_bytes);
    const struct block *block = block_at(heap, at);
    place next = block->next;
    if (unlikely(next != 0 && !place_is_within(heap, next)))
        die_of_free_block(heap, at);
    if (heap->head[size_class] == at) {
        __builtin_prefetch(block_at(heap, next)); /* the next request of the class looks at it */
        heap->head[size_class] = next;
        if (next == 0)
            list_unmark(heap, size_class);
        return;
    }
    place prev = block->prev;
    if (unlikely(!place_is_within(heap, prev) || block_at(heap, prev)->next != at))
        die_of_free_block(heap, at);
    block_at(heap, prev)->next = next;
    if (next != 0) {
        if (unlikely(block_at(heap, next)->prev != at))
            die_of_free_block(heap, at);
        block_at(heap, next)->prev = prev;
    }
}

/* The size of the free block at the end of a link; dies when it is none. */
inline_always size_t list_size(struct cairn_tlsf *heap, place at)
{
    uint64_t word = block_at(heap, at)->word;
    if (unlikely(!word_matches(word, at, BLOCK_FREE, BLOCK_FREE | BLOCK_PREVIOUS_FREE)))
        die_of_free_block(heap, at);
    return word_size(word);
}

/* The first of at most `probes` blocks of the class that is large enough; 0 if none is. */
inline_always place list_probe(struct cairn_tlsf *heap, unsigned size_class, size_t size_bytes,
                               unsigned probes)
{
    place at = heap->head[size_class];
    for (; at != 0 && probes > 0; probes--) {
        if (list_size(heap, at) >= size_bytes)
            return at;
        place next = block_at(heap, at)->next;
        if (unlikely(next != 0 && !place_is_within(heap, next)))
            die_of_free_block(heap, at);
        at = next;
    }
    return 0;
}

/* A free block of at least `size_bytes`, which is at most heap->largest_bytes; 0 if there is none
 * that could be found in constant time. */
inline_always place list_find(struct cairn_tlsf *heap, size_t size_bytes)
{
    unsigned size_class = tlsf_class_of(size_bytes);
    place at = list_probe(heap, size_class, size_bytes, TLSF_PROBES);
    if (likely(at != 0))
        return at;
    unsigned first = size_class >> TLSF_SECOND_BITS;
    uint32_t seconds = heap->second[first] & (~1u << (size_class & (TLSF_SECOND_LEVELS - 1)));
    if (seconds == 0) {
        uint64_t firsts = heap->first & (~(uint64_t)1 << first);
        if (firsts == 0)
            return list_probe(heap, size_class, size_bytes, TLSF_LAST_PROBES);
        first = lowest_bit(firsts);
        seconds = heap->second[first];
    }
    return heap->head[first << TLSF_SECOND_BITS | lowest_bit(seconds)];
}

#endif
