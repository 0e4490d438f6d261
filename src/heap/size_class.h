/* Size classes: the table of block sizes and slab lengths, and the class of each request.
 *
 * Block sizes grow in 16-byte steps to 128 bytes, then in 8 classes a doubling to 32 KiB. Builds
 * with canaries have one class more, so that a request of 32 KiB has room for its canary. Zero-size
 * blocks and packed slabs have a class each, in some builds. Decision 40 explains the spacing and
 * the slab lengths.
 *
 * All sizes are multiples of 16 except that of packed blocks, so every block of more than 8 bytes
 * is aligned to 16. A block whose size is a multiple of a power of two is aligned to that power,
 * because slabs start on pages, and those of classes such as 8 and 24 KiB at multiples of 8 KiB.
 * Threads: size_classes_init fills the table once, before other threads exist; it is constant
 * afterwards. The mappings are pure functions. */
#ifndef CAIRN_HEAP_SIZE_CLASS_H
#define CAIRN_HEAP_SIZE_CLASS_H

#include "base/bits.h"
#include "page/page.h"

enum {
    /* The largest block of a small class; the heap finds the class of such a request in a table. */
    SMALL_BLOCK_MAX = 1024,
    MEDIUM_REQUEST_MAX = 32768, /* the largest request that slabs serve */
    MEDIUM_BLOCK_MAX =
        MEDIUM_REQUEST_MAX + (config_canaries ? 4096 : 0), /* the largest slab block */
    SMALL_CLASSES = 32,
    SIZED_CLASSES = SMALL_CLASSES + 40 + config_canaries,
    ZERO_SIZE_CLASS = SIZED_CLASSES, /* full hardened builds only: class_is_zero_size */
    PACKED_CLASS = SIZED_CLASSES,    /* builds without hardening only: packed.h */
    CLASS_COUNT = SIZED_CLASSES + config_zero_size_blocks + config_packed,
    /* Slots of a slab that may have a number. A link is a byte, and the values above this one are
     * states: see slab.h. */
    CAPACITY_MAX = config_quarantine ? 250 : 251,
    /* The most pages of a slab whose blocks have memory: sweep.c has a bit for each page. */
    SLAB_PAGES_MAX = 64,
    /* In a slab's cold area the link of slot 1 is right behind struct slab_hot_line. */
    LINKS_AT = 15,
    /* The size of struct slab_cold_area, at the end of the cold area. */
    SLAB_COLD_BYTES = 48,
    INVERSE_SHIFT = 15,                     /* at least the number of factors 2 in any block size */
    CANARY_BYTES = config_canaries ? 8 : 0, /* the canary behind each slab block */
    SMALL_REQUEST_MAX = SMALL_BLOCK_MAX - CANARY_BYTES, /* the largest that a small class serves */
};
static_check(MEDIUM_REQUEST_MAX + CANARY_BYTES <= MEDIUM_BLOCK_MAX,
             "the largest has a canary, too");

/* Whether the class is that of zero-size blocks, in full hardened builds. These blocks have slots
 * and slabs like other blocks, but no memory: any access to one faults. Each slot is a page of
 * addresses, so the blocks have every alignment up to a page. */
inline_always bool class_is_zero_size(unsigned size_class)
{
    return config_zero_size_blocks && size_class == ZERO_SIZE_CLASS;
}

/* Packed slabs (packed.h): their slots are groups of 64 blocks. */
enum {
    PACKED_BYTES = 8,
    PACKED_SLOT_BYTES = 64 * PACKED_BYTES,
    PACKED_SLOTS = 128, /* of a slab */
};
static_check(!(config_packed && config_zero_size_blocks), "the two classes have one number");

inline_always bool class_is_packed(unsigned size_class)
{
    return config_packed && size_class == PACKED_CLASS;
}

/* Whether the class serves requests up to SMALL_BLOCK_MAX that are not packed. */
inline_always bool class_is_small(unsigned size_class) { return size_class < SMALL_CLASSES; }

/* Whether the class has an exact count of used slots also in its current slab: see slab.h. */
inline_always bool class_is_medium(unsigned size_class)
{
    return !class_is_small(size_class) && !class_is_packed(size_class);
}

/* The table, indexed by class. Const after init. */
extern struct slab_shape size_classes[sealed_count(struct slab_shape, CLASS_COUNT)];

/* Fills the table. Threads: one, before any block is allocated. */
void size_classes_init(void);

/* The class of a block of `size_bytes`, at most SMALL_BLOCK_MAX. A size of 0 counts as 1. */
inline_always unsigned small_class(size_t size_bytes)
{
    if (size_bytes <= 16)
        return 0;
    size_t last = size_bytes - 1;
    if (size_bytes <= 128)
        return (unsigned)(last / 16);
    unsigned top = highest_bit(last);
    return 8 * (top - 6) + ((unsigned)(last >> (top - 3)) & 7);
}

/* The class of a block of `size_bytes`, above SMALL_BLOCK_MAX and at most MEDIUM_BLOCK_MAX. */
inline_always size_t medium_class(size_t size_bytes)
{
    size_t last = size_bytes - 1;
    size_t top = highest_bit(last);
    return 8 * top + (last >> (top - 3)) -
           (8 * 10 + 8 - SMALL_CLASSES); /* each position of the highest bit has 8 classes */
}

/* The class of a block of `size_bytes`, at most MEDIUM_BLOCK_MAX. */
inline_always unsigned class_of_size(size_t size_bytes)
{
    return size_bytes <= SMALL_BLOCK_MAX ? small_class(size_bytes)
                                         : (unsigned)medium_class(size_bytes);
}

/* The smallest class whose blocks hold `size_bytes` at a multiple of `alignment_bytes`, a power of
 * two.
 * Returns: CLASS_COUNT when only a large block does, or when it has fewer pages. */
unsigned class_of_aligned(size_t size_bytes, size_t alignment_bytes);

/* The class of a request, with room for the canary.
 * Returns: CLASS_COUNT when the request takes a large block. */
inline_always unsigned class_of_request(size_t size_bytes, size_t alignment_bytes)
{
    if (size_bytes > MEDIUM_REQUEST_MAX)
        return CLASS_COUNT;
    return class_of_aligned(size_bytes + CANARY_BYTES, alignment_bytes);
}

#endif
