/* Packed slabs: blocks of 8 bytes side by side, for a heap that holds many.
 *
 * A request of at most 8 bytes is usually a block of the smallest class: 16 bytes, a link byte and
 * its share of a header. A list of a million 8-byte nodes would take twice its memory. So once a
 * heap has 4 MiB of the smallest class, such requests are served from slabs that keep one bit a
 * block, in the header's cold area: set while the block is free. 1.8 % beside the payload.
 *
 * Words of 64 bits are taken into use one after another; `limit` counts them, and those behind are
 * not looked at. The word that the holder of the heap allocates from is claimed: its bits are moved
 * to the header, where he takes and sets them without atomic operations. So a block is free when
 * its bit is set in its word, or in `claimed` if `claimed_at` is its word's first block. Other bits
 * are set by any thread, and nobody clears them but who claims. A summary, in place of the remote
 * words, has a bit for each word that may have free blocks. See packed.c for the argument.
 *
 * The slab is current, or in the heap's list (it has free blocks), or waits (it had none) until
 * several words have some. Fields of the header, beside those that all slabs have: these;
 * `size_bytes`; `capacity` 1; `until`, while it waits: words in which the holder has yet to free
 * until it looks; the owner word with OWNER_PACKED, so that no fast path takes its blocks.
 */
#ifndef CAIRN_HEAP_PACKED_H
#define CAIRN_HEAP_PACKED_H

#include "heap/sampling.h"

enum {
    PACKED_BYTES = 8,
    PACKED_WORDS = 128, /* of a slab */
    PACKED_PAGES = PACKED_WORDS * 64 * PACKED_BYTES / PAGE_BYTES,
    PACKED_COLD_64 = 1 + PACKED_WORDS * 8 / 64, /* the remote line, and the bits */
    PACKED_FROM_SLABS =
        config_debug ? 4 : 1024, /* so many of the smallest class, and a heap packs */
};
static_check((int)PACKED_COLD_64 < (int)COLD_KINDS, "the page layer knows the cold area's size");
static_check(PACKED_WORDS <= 2 * 64, "the summary lies in the first two of the remote words");

/* The bits of the word's blocks: set is free. */
inline_always uint64_t *packed_word(const struct span *slab, size_t word)
{
    return (uint64_t *)(void *)(slab->links + LINKS_AT + 1) + word;
}

/* Where the block is marked free. Exact for a block that nobody frees or is handed meanwhile. */
struct packed_bits {
    bool in_word, in_claim;
};
struct packed_bits packed_bits_of(const struct span *slab, const void *block);

/* Whether requests of at most PACKED_BYTES are packed, by now. */
bool packed_turn_on(struct heap *heap);

/* Whoever chooses among blocks chooses among those of classes. */
inline_always bool packed_is_off(void)
{
    const uint32_t who = WATCH_GUARDED | WATCH_PROFILE | WATCH_TRACE;
    return unlikely((load_acquire(&heap_watch) & who) != 0);
}

inline_always bool packed_serves(struct heap *heap)
{
    return config_packed && (likely(heap->packed.on) ? !packed_is_off() : packed_turn_on(heap));
}

/* A word with free blocks is claimed; false when memory is out. The holder's. */
bool packed_advance(struct heap *heap);

/* A block; NULL when memory is out. The holder's. */
inline_always void *packed_allocate(struct heap *heap)
{
    if (unlikely((heap->packed.slab == NULL || heap->packed.slab->claimed == 0) &&
                 !packed_advance(heap)))
        return NULL;
    struct span *slab = heap->packed.slab;
    uint64_t bits = slab->claimed;
    store_relaxed(&slab->claimed, bits & (bits - 1));
    return slab->claimed_at + lowest_bit(bits) * PACKED_BYTES;
}

/* Dies unless `pointer` is a block in use of `slab`, which is `heap`'s. Any thread, lock-free. */
void packed_free(void *pointer, struct heap *heap, struct span *slab);

/* A slab of the mailbox: blocks of it were freed. The holder's. */
void packed_attend(struct heap *heap, struct span *slab);

/* Gives back what is empty. The holder's. */
void packed_trim(struct heap *heap);

/* In the child of a fork: a slab of the thread's own heap, which other threads may have been
 * freeing to. Into the mailbox. */
void packed_after_fork(struct heap *heap, struct span *slab);

size_t packed_live(const struct span *slab); /* exact while nobody frees or allocates */

void packed_verify(struct heap *heap);

#endif
