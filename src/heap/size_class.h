/* Size classes: 16-byte steps to 128, then 8 a doubling to 1 KiB, then 16 a doubling to 32 KiB;
 * hardened builds have one step more, so that a request of 32 KiB has room for its canary.
 *
 * Spacing and slab lengths: docs/decisions/0002-size-classes.md. All sizes are multiples of 16, so
 * every block is 16-byte aligned; a block size that is a multiple of a power of two up to a page is
 * aligned to it, because slabs start on pages. The table is filled once at the start and constant
 * from then on; the mappings are pure.
 */
#ifndef CAIRN_HEAP_SIZE_CLASS_H
#define CAIRN_HEAP_SIZE_CLASS_H

#include "base/bits.h"

enum {
    SMALL_MAX = 1024,    /* the thread heap tells their classes by a table */
    MEDIUM_MOST = 32768, /* the largest request that the slabs serve */
    MEDIUM_MAX = MEDIUM_MOST + (config_canaries ? 2048 : 0), /* the largest slab block */
    SMALL_CLASSES = 32,
    SIZED_CLASSES = SMALL_CLASSES + 80 + config_canaries,
    VOID_CLASS = SIZED_CLASSES, /* of full hardened builds: see below */
    CLASS_COUNT = SIZED_CLASSES + config_void_blocks,
    CAPACITY_MAX = config_quarantine ? 250 : 252, /* a link is a byte: what is no slot has a meaning
                                                     of its own, see slab.h */
    SLAB_PAGES_MOST = 64,   /* of blocks with a size: a bit each, see slab_sweep.c */
    LINKS_AT = 15,          /* in a slab's cold area: slot 1's link comes behind struct own_line */
    SLAB_REMOTE_BYTES = 48, /* and at the area's end is struct remote */
    INVERSE_SHIFT = 15,     /* at least the number of factors 2 in any block size */
};

/* Behind each slab block, hardened builds only; and the largest request of a small class. */
enum {
    CANARY_BYTES = config_canaries ? 8 : 0,
    SMALL_MOST = SMALL_MAX - CANARY_BYTES,
};
static_check(MEDIUM_MOST + CANARY_BYTES <= MEDIUM_MAX, "the largest has a canary, too");

struct size_class {
    uint32_t size_bytes;
    uint16_t pages;             /* of a slab */
    uint8_t capacity;           /* of a slab */
    uint8_t cold_64;            /* metadata of a slab beside its header, in units of 64 bytes */
    uint32_t inverse;           /* see slab_slot */
} __attribute__((aligned(16))); /* sealed_count: they fill pages */

/* Void blocks, in full hardened builds: those of 0 bytes. They have a class, slots and slabs like
 * others, but no memory: an access to one faults. Their slots are pages, so that every alignment up
 * to one is theirs. */
inline_always bool class_is_void(unsigned size_class)
{
    return config_void_blocks && size_class == VOID_CLASS;
}

/* Of requests up to SMALL_MAX. */
inline_always bool class_is_small(unsigned size_class) { return size_class < SMALL_CLASSES; }

extern struct size_class size_classes[sealed_count(struct size_class, CLASS_COUNT)];

void size_classes_init(void);

/* `size_bytes` at most SMALL_MAX; 0 counts as 1. */
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

/* `size_bytes` above SMALL_MAX, at most MEDIUM_MAX. */
inline_always size_t medium_class(size_t size_bytes)
{
    size_t last = size_bytes - 1;
    size_t top = highest_bit(last);
    return 16 * top + (last >> (top - 4)) -
           (16 * 10 + 16 - SMALL_CLASSES); /* the highest bit counts for 16 */
}

inline_always unsigned class_of_size(size_t size_bytes)
{
    return size_bytes <= SMALL_MAX ? small_class(size_bytes) : (unsigned)medium_class(size_bytes);
}

/* The class whose blocks hold `size_bytes` at every multiple of `alignment_bytes`, a power of two
 * up to a page; CLASS_COUNT when only a large block does. */
unsigned class_of_aligned(size_t size_bytes, size_t alignment_bytes);

/* The class for a request, canary included; CLASS_COUNT when it takes a large block. */
inline_always unsigned class_of_request(size_t size_bytes, size_t alignment_bytes)
{
    if (size_bytes > MEDIUM_MOST)
        return CLASS_COUNT;
    return class_of_aligned(size_bytes + CANARY_BYTES, alignment_bytes);
}

#endif
