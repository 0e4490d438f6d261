/* What the profiler keeps: sites, which are stacks with their sums, and the samples in use.
 *
 * Sizes are fixed, at most 2 MiB together, in metadata memory that stays untouched as far as it is
 * not needed. What finds no room is counted, and its weight goes to the site without a stack, so
 * that sums stay true.
 *
 * A sample of s bytes stands for 1 / (1 - exp(-s / R)) blocks of that size, R the mean interval:
 * its weight, which makes sums by site unbiased (each sample has its own; to weigh a sum by its
 * average size would not do). Weights are kept in units of 1 / 65536.
 *
 * Sites: a hash table, never emptied. `hash` is claimed by compare and swap, `ready` published when
 * the frames stand; a thread that finds the same hash not ready makes a second site of the same
 * stack, which readers of a dump add up. Samples: sets of some neighbouring entries by the hash of
 * the block's address, without its last three bits. An entry's `block` goes FREE -> BUSY -> block
 * -> BUSY -> FREE, each by who allocates or frees the block; what makes it BUSY owns the other
 * fields. No lock, so fork needs nothing: what another thread had BUSY stays so in the child, and
 * is lost to it.
 *
 * Any thread; all of it may run together; async-signal-safe.
 */
#ifndef CAIRN_WATCH_PROFILE_TABLE_H
#define CAIRN_WATCH_PROFILE_TABLE_H

#include "base/atomic.h"
#include "base/compiler.h"
#include "watch/profile_maps.h"

enum {
    PROFILE_SITES = 4096,
    PROFILE_FRAMES = 96 << 10, /* of all sites together */
    PROFILE_BLOCKS = 16 << 10,
    PROFILE_DEPTH = 40,      /* frames of a stack */
    PROFILE_SET_BLOCKS = 32, /* where a sample may lie */
    PROFILE_WEIGHT_SHIFT = 16,
};

enum { BLOCK_FREE, BLOCK_BUSY }; /* other values are addresses */

struct profile_sums {
    uint64_t samples;
    uint64_t objects; /* by weight, in units of 1 / 65536 */
    uint64_t bytes;   /* by weight */
};

struct profile_site {
    uint64_t hash;                 /* atomic: of its frames; 0: free */
    uint32_t ready;                /* atomic: 1 + number of frames; 0: not written yet */
    uint32_t first_frame;          /* const once ready */
    struct profile_sums allocated; /* atomic, each: since the start */
    struct profile_sums live;      /* atomic, each: of samples in use */
};

struct profile_block {
    uintptr_t block;      /* atomic: see above */
    uint32_t site;        /* these: who has it BUSY */
    uint32_t thread;      /* the kernel's number */
    uint64_t asked_bytes; /* as asked for */
    uint64_t objects;     /* its weight */
    uint64_t bytes;       /* its weight times its size */
    uint64_t time_ms;     /* monotonic */
};

struct profile_scratch {
    struct profile_writer writer;
    struct profile_maps maps;
};

struct profile_table {
    struct profile_site sites[PROFILE_SITES]; /* the first is that without a stack */
    struct profile_block blocks[PROFILE_BLOCKS];
    uintptr_t frames[PROFILE_FRAMES];
    struct profile_scratch scratch; /* of who dumps */
    uint64_t frames_taken;          /* atomic */
    uint64_t stacks_lost;           /* atomic: samples whose stack found no room */
    uint64_t blocks_lost;           /* atomic: samples that are not among those in use */
    struct profile_sums allocated;  /* atomic, each: of all sites */
    struct profile_sums live;
};
static_check(sizeof(struct profile_table) <= 2 << 20, "what a profile may cost");

/* NULL when memory is out. */
struct profile_table *profile_table_make(void);

/* The weight of a block of that size at the mean interval, in units of 1 / 65536. */
uint64_t profile_weight(uint64_t size_bytes, uint64_t interval_bytes);

/* Of so many objects in those units, each of that size. */
inline_always uint64_t profile_weighted_bytes(uint64_t objects, uint64_t size_bytes)
{
    return (uint64_t)((unsigned __int128)objects * size_bytes >> PROFILE_WEIGHT_SHIFT);
}

/* A sample. False: it is not among those in use, and its free says nothing. `taken` has the block,
 * what was asked for, the thread, the time and the weight. */
bool profile_table_add(struct profile_table *table, const struct profile_block *taken,
                       uint64_t size_bytes, const uintptr_t *frames, unsigned depth);

/* The block is freed. Whether it was a sample that nobody removed before. */
bool profile_table_remove(struct profile_table *table, const void *block);

/* The sample is found by another address from now on, which differs in the last three bits only.
 * Whether there was one. */
bool profile_table_rename(struct profile_table *table, const void *from, const void *to);

/* No sums, no samples; stacks stay. What happens meanwhile may be lost or not. */
void profile_table_reset(struct profile_table *table);

#endif
