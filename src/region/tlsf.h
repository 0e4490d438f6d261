/* The internal interface of TLSF (tlsf.c): a request with its repetition after a failure, and
 * growth and shrinkage of a heap of one region.
 *
 * An allocation, an aligned allocation and a reallocation are one struct tlsf_request, so that the
 * heap with a lock (hosted_tlsf.c) can try a request without calling the program's function under
 * its lock. The persistent heap grows its single region in place with tlsf_extend.
 *
 * Threads: one at a time in a heap; the caller orders them.
 */
#ifndef CAIRN_REGION_TLSF_H
#define CAIRN_REGION_TLSF_H

#include "base/bits.h"
#include "cairn/tlsf.h"

/* TLSF's size classes, blocks, heap structure, lists of free blocks, and messages of misuse.
 *
 * Size classes. The first level is the power of two; the second level divides it into 32 equal
 * steps. Below 512 bytes a step would be less than the grain of 16 bytes, so one linear first level
 * has a class for each size there. Both levels are one number, class = first level * 32 + second
 * level, in which adjacent classes are adjacent:
 *
 *     size < 512:  class = size / 16
 *     else:        class = (top - 9) * 32 + size / 2^(top - 5), top = highest bit of size
 *
 * Up to 1008 bytes a class holds one size only.
 *
 * Blocks:
 *
 *     block b                                                    next block
 *     | word | next | prev |            …            | size_bytes | word | …
 *              `--- user's memory when in use ---------------------'
 *
 * A block starts at its word, 8 bytes before a multiple of 16, and ends where the next block's word
 * starts. The size of a block includes the word, is a multiple of 16, and is at least 32. A free
 * block keeps the links of its list at the start of its memory, and its size in the last 8 bytes
 * (the boundary tag), where the block behind finds it. A region ends in a word of size 0 with the
 * flag END, which is never free.
 *
 * The word: bits 0 to 23 are a tag computed from the block's place; then the flags BLOCK_FREE,
 * BLOCK_PREVIOUS_FREE and BLOCK_END, here without BLOCK_; from bit 28 on the size in grains. An
 * overrun of the block in front reaches the tag first, and a copied header has the tag of another
 * place. A former word inside a block is either overwritten or has FREE or END set, because a block
 * is marked free before it is merged. So a stale pointer never finds a block in use, and its free
 * is reported.
 *
 * Places are offsets in bytes from the heap structure, also in other regions. The only addresses
 * are the out-of-memory function and its context, so a heap can be mapped elsewhere if its regions
 * keep their distances.
 *
 * Lists. Each class has a doubly linked list of free blocks, last in first out. The `prev` of a
 * list's head is not kept: a comparison with the heap's head, which is in the cache, replaces it.
 * So removing a head does not touch the block behind it in the list. Every link is checked before
 * it is followed, and the target block before it is trusted. A program that writes into freed
 * memory dies here instead of corrupting the heap. Link, unlink and find take constant time.
 *
 * Invariants (cairn_tlsf_check):
 *   the blocks of a region follow each other without gap from its first word to its end word;
 *   no two free blocks are adjacent; PREVIOUS_FREE(b) == FREE(block before b);
 *   every free block is in the list of its class, once, and a list holds nothing else;
 *   head(c) != 0 == bit c of second; bit f of first == second[f] != 0;
 *   free_bytes == sum of the sizes of the free blocks; used_blocks == number of blocks in use.
 *
 * Threads: one at a time in a heap; hosted_tlsf.c has the lock for several.
 */

enum {
    TLSF_GRAIN_BYTES = 16,
    TLSF_SECOND_BITS = 5,
    TLSF_SECOND_LEVELS = 1 << TLSF_SECOND_BITS,
    TLSF_LINEAR_BITS = 9, /* below 2^9 bytes classes are linear */
    TLSF_SIZE_BITS = 40,  /* sizes are below 2^40 */
    TLSF_FIRST_LEVELS_MAX = TLSF_SIZE_BITS - TLSF_LINEAR_BITS + 1,
    TLSF_CLASSES_MAX = TLSF_FIRST_LEVELS_MAX * TLSF_SECOND_LEVELS,
};

static_check(1 << TLSF_LINEAR_BITS == TLSF_GRAIN_BYTES * TLSF_SECOND_LEVELS,
             "the linear level ends where a step of the next is one grain");

/* The class that holds blocks of a size. */
inline_always unsigned tlsf_class_of(size_t size_bytes)
{
    unsigned top = highest_bit(size_bytes | (size_t)1 << TLSF_LINEAR_BITS);
    return ((top - TLSF_LINEAR_BITS) << TLSF_SECOND_BITS) +
           (unsigned)(size_bytes >> (top - TLSF_SECOND_BITS));
}

/* The smallest size in a class. Every block of the class is at least this large. */
inline_always size_t tlsf_class_floor(unsigned size_class)
{
    unsigned first = size_class >> TLSF_SECOND_BITS;
    size_t second = size_class & (TLSF_SECOND_LEVELS - 1);
    if (first == 0)
        return second * TLSF_GRAIN_BYTES;
    return (TLSF_SECOND_LEVELS + second) << (first + TLSF_LINEAR_BITS - 1 - TLSF_SECOND_BITS);
}

/* An offset in bytes from the heap structure. 0 means none, because no block is at the structure
 * itself. */
typedef int64_t place;

struct block {
    uint64_t word;
    place next; /* free blocks: the next block in the list of the class */
    place prev; /* free blocks: the previous one; not kept for the head of a list */
};

enum {
    BLOCK_WORD_BYTES = 8,
    BLOCK_MIN_BYTES = 32, /* word, two links, boundary tag */
    BLOCK_TAG_BITS = 24,
    BLOCK_FREE = 1 << 24,
    BLOCK_PREVIOUS_FREE = 1 << 25,
    BLOCK_END = 1 << 26, /* the end word of a region */
    BLOCK_SIZE_SHIFT = 28,
};

#define BLOCK_MAX_BYTES (((size_t)1 << TLSF_SIZE_BITS) - TLSF_GRAIN_BYTES)

static_check(sizeof(struct block) + BLOCK_WORD_BYTES == BLOCK_MIN_BYTES, "");
static_check(TLSF_SIZE_BITS - 4 + BLOCK_SIZE_SHIFT == 64, "the size takes the rest of the word");

/* The header of a region, directly in front of its first block. */
struct region {
    place next;      /* the next region; 0 at the end; changed by add and remove only */
    uint64_t unused; /* keeps the first block's memory aligned */
    /* of the blocks up to the end word; changed by tlsf_extend and tlsf_cut only */
    size_t size_bytes;
};

static_check(sizeof(struct region) % TLSF_GRAIN_BYTES == BLOCK_WORD_BYTES, "blocks are aligned");

/* A heap. The calling thread writes all fields, one thread at a time. Fields that each operation
 * touches are at the start. */
struct cairn_tlsf {
    uint64_t first;          /* bit f: second[f] is not 0 */
    place low;               /* no word is below; changed by add and remove only */
    uint64_t extent_bytes;   /* from low up to behind the last end word; changed with the regions */
    size_t free_bytes;       /* sum of the sizes of the free blocks */
    size_t least_free_bytes; /* the minimum of free_bytes since init */
    size_t used_blocks;
    /* const after init: the largest block for which there is a head */
    size_t largest_bytes;
    uint64_t magic;                         /* const after init */
    uint32_t second[TLSF_FIRST_LEVELS_MAX]; /* bit s: head[32 f + s] is not 0 */
    place regions;                          /* the list of regions, newest first */
    size_t total_bytes;                     /* sum of the sizes of all blocks of all regions */
    uint32_t region_count;
    uint32_t levels; /* const after init: number of first levels that have heads */
    /* const after init: size of the heap's own mapping; 0: the caller's memory */
    uint64_t mapped_bytes;
    place shared;      /* the block of cairn_tlsf_share; 0: none */
    uint64_t reserved; /* always 0 */

    /* These two are addresses. A program that maps the heap elsewhere sets them again. */
    bool (*out_of_memory)(void *context, size_t size_bytes); /* NULL: none */
    void *out_of_memory_context;
    place head[]; /* the lists, by class: 32 for each of `levels` */
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

/* Whether a place is aligned as a word and between the first and the last word of the heap. With
 * several regions it may be in the gap between two. This is enough for links, which the heap itself
 * wrote; a pointer of the program is looked up by region_of. */
inline_always bool place_is_within(const struct cairn_tlsf *heap, place at)
{
    return (uint64_t)(at - heap->low) < heap->extent_bytes &&
           ((uint64_t)at & (TLSF_GRAIN_BYTES - 1)) == BLOCK_WORD_BYTES;
}

inline_always struct region *region_at(const struct cairn_tlsf *heap, place at)
{
    return (struct region *)((uintptr_t)heap + (uintptr_t)at);
}

/* The place of the first block of a region. */
inline_always place region_first(place at) { return at + (place)sizeof(struct region); }

/* The places of a region's words: blocks start from `first` on and below `end`; the end word is at
 * `end`. */
struct bounds {
    place first;
    place end;
};

/* Finds the region of a place, in a heap of any number of regions.
 * Returns: false when no region can have a word there; else true with *bounds set.
 * Cost: CAIRN_TLSF_REGION_INSTRUCTIONS for each region. */
bool region_search(const struct cairn_tlsf *heap, place at, struct bounds *bounds);

/* Finds the region in which the word of a block, or the end word, can be at a place.
 * Returns: false when no region can have a word there; else true with *bounds set.
 * Cost: constant with one region; see region_search for more. */
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

/* The tag of a place: the upper bits of a multiplication by 2^64 / golden ratio. The tags of
 * adjacent places differ in many bits. */
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

/* Whether the word has the tag of its place, and of the flags in `mask` exactly those in
 * `flags`. */
inline_always bool word_matches(uint64_t word, place at, unsigned flags, unsigned mask)
{
    return (((word ^ tag_of(at)) ^ flags) & (((uint64_t)1 << BLOCK_TAG_BITS) - 1 + mask)) == 0;
}

inline_always bool word_is_block(uint64_t word, place at) { return word_matches(word, at, 0, 0); }

/* The boundary tag of the free block that ends at `end`. */
inline_always size_t *block_footer(struct block *end) { return (size_t *)(void *)end - 1; }

inline_always void *block_memory(struct block *block) { return &block->next; }

/* The size of a block for `size_bytes` of memory. The caller has excluded overflow. */
inline_always size_t block_size_for(size_t size_bytes)
{
    size_t size = align_up(size_bytes + BLOCK_WORD_BYTES, TLSF_GRAIN_BYTES);
    return larger_of(size, BLOCK_MIN_BYTES);
}

/* Ends the process: `pointer` was given to `verb` and is no block in use, or the block in front of
 * it was overrun. */
no_return void die_of_pointer(const struct cairn_tlsf *heap, const void *pointer, const char *verb);

/* Ends the process: the word behind the block in use at `at` was overwritten, or the block's own
 * word has a wrong size. */
no_return void die_of_overrun(const struct cairn_tlsf *heap, place at);

/* Ends the process: the free block at `at`, or a link to it, was written to. */
no_return void die_of_free_block(const struct cairn_tlsf *heap, place at);

/* Ends the process: the boundary tag in front of the block at `at` was written to. */
no_return void die_of_boundary_tag(const struct cairn_tlsf *heap, place at);

/* Ends the process: a walk found a word that is no block's. */
no_return void die_of_damage(const struct cairn_tlsf *heap, place at);

enum {
    /* blocks of the request's own class that are tried before a larger class */
    TLSF_PROBES = 4,
    /* blocks that are tried when there is no larger class; then the request fails */
    TLSF_LAST_PROBES = 8,
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

/* Makes [at, at + size) a free block and adds it to the list of its class. The caller changes the
 * word behind it. */
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

/* Removes a free block from the list of its class. */
inline_always void list_unlink(struct cairn_tlsf *heap, place at, size_t size_bytes)
{
    unsigned size_class = tlsf_class_of(size_bytes);
    const struct block *block = block_at(heap, at);
    place next = block->next;
    if (unlikely(next != 0 && !place_is_within(heap, next)))
        die_of_free_block(heap, at);
    if (heap->head[size_class] == at) {
        __builtin_prefetch(block_at(heap, next)); /* the class's next request reads it */
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

/* The size of the free block to which a link leads. Ends the process when there is no free
 * block. */
inline_always size_t list_size(struct cairn_tlsf *heap, place at)
{
    uint64_t word = block_at(heap, at)->word;
    if (unlikely(!word_matches(word, at, BLOCK_FREE, BLOCK_FREE | BLOCK_PREVIOUS_FREE)))
        die_of_free_block(heap, at);
    return word_size(word);
}

/* Searches the first `probes` blocks of a class for one that is large enough.
 * Returns: its place; 0 when there is none. */
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

/* Searches for a free block of at least `size_bytes`, which is at most heap->largest_bytes.
 * Returns: its place; 0 when constant time does not suffice to find one. */
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

struct tlsf_request {
    void *pointer; /* the block to reallocate; NULL: allocate a new block */
    size_t size_bytes;
    size_t align_bytes; /* a power of two; ignored by a reallocation */
};

/* Tries once to meet the request. The out-of-memory function is not called.
 * Returns: the block; NULL when no free block is large enough, and then the heap is unchanged. */
void *tlsf_request_meet(struct cairn_tlsf *heap, const struct tlsf_request *request);

/* Repeats a request that failed, as long as the heap's out-of-memory function returns true. After
 * the last failure it calls host_note_no_memory.
 * Returns: the block, or NULL. */
void *tlsf_request_again(struct cairn_tlsf *heap, void *pointer, size_t size, size_t align);

/* Calls the heap's out-of-memory function. The function is not called for a request that no region
 * of the heap could hold.
 * Returns: what the function returned; false when there is none. */
bool tlsf_may_try_again(const struct cairn_tlsf *heap, const struct tlsf_request *request);

/* The size of an array. A product that overflows becomes SIZE_MAX, which no heap can hold. */
inline_always size_t tlsf_total_of(size_t count, size_t size)
{
    size_t total;
    return __builtin_mul_overflow(count, size, &total) ? SIZE_MAX : total;
}

/* Error numbers of Linux. The core includes no header of libc; hosted_tlsf.c compares them with
 * those of libc. */
enum { TLSF_EBUSY = 16, TLSF_EINVAL = 22, TLSF_EFBIG = 27 };

inline_always place smaller_place(place a, place b) { return a < b ? a : b; }
inline_always place larger_place(place a, place b) { return a > b ? a : b; }

/* Grows a heap of one region by the `size_bytes` of memory directly behind it. The size is a
 * multiple of 16 and at least BLOCK_MIN_BYTES, and the region stays within largest_bytes. */
void tlsf_extend(struct cairn_tlsf *heap, size_t size_bytes);

/* The size of the free block at the end of a heap of one region; 0 when the last block is in
 * use. */
size_t tlsf_free_at_end(const struct cairn_tlsf *heap);

/* Removes the last `size_bytes` of a heap of one region, a multiple of 16. The free block at the
 * end of the heap must keep at least BLOCK_MIN_BYTES. */
void tlsf_cut(struct cairn_tlsf *heap, size_t size_bytes);

#endif
