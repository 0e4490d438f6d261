/* TLSF's blocks and heap structure: the layout, and the smallest verbs on it.
 *
 *     block b                                                    next block
 *     | word | next | prev |            …            | size_bytes | word | …
 *              `--- user's memory when in use ---------------------'
 *
 * A block starts at its word, 8 bytes before a multiple of 16, and ends where the next one's word
 * starts: sizes count the word, are multiples of 16, and at least 32. A free block keeps its list's
 * links at the start of its memory and its size in the last 8 bytes, where the block behind finds
 * it (the boundary tag). A region ends in a word of size 0, END, never free.
 *
 * The word: bits 0 to 23 are a tag, made from the block's place; then FREE, PREVIOUS_FREE, END;
 * from bit 28 on the size in grains. Whoever runs over the end of a block meets the tag first.
 * Copied headers have the tag of another place. What was a word once and now lies inside of a block
 * is either overwritten or says FREE, for a block is freed before it is merged: so a stale pointer
 * never finds a block in use, and its free is told as the double free that it is.
 *
 * Places are offsets in bytes from the heap structure, also those of other regions: nothing here is
 * an address but for the out-of-memory function, so the heap can be mapped elsewhere as long as its
 * regions keep their distances.
 *
 * Invariants (cairn_tlsf_check):
 *   the blocks of a region lie gapless from its first word to its end word;
 *   no two free blocks are neighbours; PREVIOUS_FREE(b) == FREE(block before b);
 *   every free block is in the list of its class, once, and nothing else is in a list;
 *   head(c) != 0 == bit c of second; bit f of first == second[f] != 0;
 *   free_bytes == sum of the sizes of the free blocks; used_blocks == number of blocks in use.
 *
 * Threading: one thread at a time; see shared_tlsf.c.
 */
#ifndef CAIRN_REGION_TLSF_BLOCK_H
#define CAIRN_REGION_TLSF_BLOCK_H

#include "cairn/tlsf.h"
#include "region/tlsf_map.h"

/* Offset from the heap. 0 is the heap itself and so stands for none. */
typedef int64_t place;

struct block {
    uint64_t word;
    place next; /* free only: the class's list */
    place prev; /* free only; not kept for the head of a list, which is known from the heap */
};

enum {
    BLOCK_WORD_BYTES = 8,
    BLOCK_LEAST_BYTES = 32, /* word, two links, boundary tag */
    BLOCK_TAG_BITS = 24,
    BLOCK_FREE = 1 << 24,
    BLOCK_PREVIOUS_FREE = 1 << 25,
    BLOCK_END = 1 << 26, /* the end word of a region */
    BLOCK_SIZE_SHIFT = 28,
};

#define BLOCK_MOST_BYTES (((size_t)1 << TLSF_SIZE_BITS) - TLSF_GRAIN_BYTES)

static_check(sizeof(struct block) + BLOCK_WORD_BYTES == BLOCK_LEAST_BYTES, "");
static_check(TLSF_SIZE_BITS - 4 + BLOCK_SIZE_SHIFT == 64, "the size takes the rest of the word");

/* In front of a region's first block. */
struct region {
    place next;        /* const but for add and remove of its neighbour in the list; 0 at its end */
    uint64_t unused;   /* keeps the first block's memory aligned */
    size_t size_bytes; /* const: of the blocks between this header and the end word */
};

static_check(sizeof(struct region) % TLSF_GRAIN_BYTES == BLOCK_WORD_BYTES, "blocks are aligned");

/* All fields: whoever uses the heap, one thread at a time. What an operation touches comes first.
 */
struct cairn_tlsf {
    uint64_t first;          /* bit f: second[f] is not 0 */
    place low;               /* const but for add: no word lies below */
    uint64_t extent_bytes;   /* const but for add: from low to behind the last end word */
    size_t free_bytes;       /* in free blocks */
    size_t least_free_bytes; /* since the start */
    size_t used_blocks;
    size_t largest_bytes;                    /* const: of a block that the heads reach */
    uint64_t magic;                          /* const */
    uint32_t second[TLSF_FIRST_LEVELS_MOST]; /* bit s: head[32 f + s] is not 0 */
    place regions;                           /* the list of regions, newest first */
    size_t total_bytes;                      /* of all regions' blocks */
    uint32_t region_count;
    uint32_t levels;       /* const: first levels that have heads */
    uint64_t mapped_bytes; /* const after init: size of the own mapping; 0: the caller's memory */
    place shared;          /* the block that cairn_tlsf_share made; 0: none */
    uint64_t reserved;     /* 0 */

    /* Addresses, unlike all else here: the program sets them anew when it maps the heap elsewhere.
     */
    bool (*out_of_memory)(void *context, size_t size_bytes); /* NULL: none */
    void *out_of_memory_context;
    place head[]; /* by class; as many as largest_bytes needs */
};

static_check(offsetof(struct cairn_tlsf, head) == 256, "four cache lines, then the small heads");

#define TLSF_MAGIC 0x31666c736e726963u

inline_always struct block *block_at(const struct cairn_tlsf *heap, place at)
{
    return (struct block *)((uintptr_t)heap + (uintptr_t)at);
}

inline_always place place_of(const struct cairn_tlsf *heap, const void *address)
{
    return (place)((uintptr_t)address - (uintptr_t)heap);
}

/* Whether a word can lie there, or, with several regions, in a gap between two. For links, which
 * were written by the heap itself; what comes from outside is looked up by region_of. */
inline_always bool place_is_within(const struct cairn_tlsf *heap, place at)
{
    return (uint64_t)(at - heap->low) < heap->extent_bytes &&
           ((uint64_t)at & (TLSF_GRAIN_BYTES - 1)) == BLOCK_WORD_BYTES;
}

inline_always struct region *region_at(const struct cairn_tlsf *heap, place at)
{
    return (struct region *)((uintptr_t)heap + (uintptr_t)at);
}

/* The word of a region's first block. */
inline_always place region_first(place at) { return at + (place)sizeof(struct region); }

/* Where a region's words lie: those of blocks from `first` on, below `end`, where the end word is.
 */
struct bounds {
    place first;
    place end;
};

/* The region in which a word of a block, or its end word, can lie there. False: in none. Constant
 * time when there is one region; else CAIRN_TLSF_REGION_INSTRUCTIONS more for each. */
bool region_search(const struct cairn_tlsf *heap, place at, struct bounds *bounds);
inline_always bool region_of(const struct cairn_tlsf *heap, place at, struct bounds *bounds)
{
    if (unlikely(!place_is_within(heap, at)))
        return false;
    if (unlikely(heap->region_count != 1))
        return region_search(heap, at, bounds);
    bounds->first = heap->low;
    bounds->end = heap->low + (place)heap->extent_bytes - BLOCK_WORD_BYTES;
    return true;
}

/* Multiplication by 2^64 / golden ratio, its upper bits: neighbouring places differ in many bits.
 */
inline_always uint64_t tag_of(place at)
{
    return (uint64_t)at * 0x9e3779b97f4a7c15u >> (64 - BLOCK_TAG_BITS);
}

inline_always uint64_t word_of(place at, size_t size_bytes, unsigned flags)
{
    return tag_of(at) | flags | (uint64_t)size_bytes << (BLOCK_SIZE_SHIFT - 4);
}

inline_always size_t word_size(uint64_t word)
{
    return (word >> (BLOCK_SIZE_SHIFT - 4)) & ~(size_t)(TLSF_GRAIN_BYTES - 1);
}

inline_always bool word_is_free(uint64_t word) { return (word & BLOCK_FREE) != 0; }

/* Compares tag and flags under a mask of flags. */
inline_always bool word_matches(uint64_t word, place at, unsigned flags, unsigned mask)
{
    return (((word ^ tag_of(at)) ^ flags) & (((uint64_t)1 << BLOCK_TAG_BITS) - 1 + mask)) == 0;
}

inline_always bool word_is_block(uint64_t word, place at) { return word_matches(word, at, 0, 0); }

/* The boundary tag at the end of a free block. */
inline_always size_t *block_footer(struct block *end) { return (size_t *)(void *)end - 1; }

inline_always void *block_memory(struct block *block) { return &block->next; }

/* The size of the block that holds `size_bytes` of memory. The caller has excluded overflow. */
inline_always size_t block_size_for(size_t size_bytes)
{
    size_t size = align_up(size_bytes + BLOCK_WORD_BYTES, TLSF_GRAIN_BYTES);
    return larger_of(size, BLOCK_LEAST_BYTES);
}

#endif
