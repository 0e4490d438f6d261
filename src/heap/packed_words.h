/* The words of packed slabs (packed.h): a bit a block, set while it is free, and the one word that
 * the holder has claimed. The argument for the order of the accesses stands in packed.c.
 */
#ifndef CAIRN_HEAP_PACKED_WORDS_H
#define CAIRN_HEAP_PACKED_WORDS_H

#include "heap/slab.h"

enum {
    PACKED_BYTES = 8,
    PACKED_WORDS = 128, /* of a slab */
    PACKED_PAGES = PACKED_WORDS * 64 * PACKED_BYTES / PAGE_BYTES,
    PACKED_COLD_64 = 1 + PACKED_WORDS * 8 / 64, /* the bits; slab_own and remote are a line */
    PACKED_FROM_SLABS =
        config_debug ? 4 : 1024, /* so many of the smallest class, and a heap packs */
    PACKED_PATIENCE_WORDS = 8,   /* with free blocks, before a slab that had none is gone back to */
};
static_check((int)PACKED_COLD_64 < (int)COLD_KINDS, "the page layer knows the cold area's size");
static_check(PACKED_WORDS <= 2 * 64, "the summary lies in the first two of the remote words");

/* The bits of the word's blocks: set is free. */
inline_always uint64_t *packed_word(const struct span *slab, size_t word)
{
    return (uint64_t *)(uintptr_t)(slab_own(slab) + 1) + word;
}

inline_always uint64_t packed_bit(size_t index) { return (uint64_t)1 << index % 64; }

/* The summary of 64 words: a bit for each that may have free blocks. */
inline_always uint64_t *packed_summary(struct span *slab, size_t word)
{
    return &slab_remote(slab)->words[word / 64];
}

inline_always char *packed_word_start(const struct span *slab, size_t word)
{
    return slab->base + word * 64 * PACKED_BYTES;
}

/* Where block `index`, whose word begins at `start`, is marked free. Exact for a block that nobody
 * frees or is handed meanwhile. The slab's base is not read: another free may give it back. */
struct packed_bits {
    bool in_word, in_claim;
};
struct packed_bits packed_bits_at(const struct span *slab, size_t index, const char *start);

/* Takes a word into `claimed`, one with free blocks or one never used; false when there is none.
 * Nothing is claimed before. The holder's. */
bool packed_claim_next(struct span *slab);
/* Gives back what is claimed of it: from here on the slab is not allocated from. The holder's. */
void packed_unclaim(struct span *slab);

/* How many of the first `limit` words have free blocks. */
size_t packed_count_ready(struct span *slab, size_t limit);
bool packed_all_free(const struct span *slab);

/* Two frees at the same instant, found when the block was in two places already. */
no_return void packed_die_twice(const void *block) cold;

size_t packed_live(const struct span *slab); /* exact while nobody frees or allocates */

#endif
