/* The tables of the profiler: sites, which are stacks with their sums, and the samples in use. Also
 * the state that the profiler shares with its dumps.
 *
 * The tables have a fixed size, at most 2 MiB together, in metadata memory of which unused pages
 * stay untouched. A sample whose stack finds no room is counted at the site without a stack. A
 * sample that finds no place among those in use is counted as allocated only. Both are reported as
 * lost.
 *
 * Weight: a sample of s bytes stands for 1 / (1 - exp(-s / R)) blocks of that size, where R is the
 * mean interval. Each sample has its own weight, so the sums of a site are unbiased; a sum weighted
 * by its average size would not be. Weights are in units of 1 / 65536.
 *
 * Sites: a hash table that is never emptied. A thread claims a site by a compare-and-swap of
 * `hash`, and publishes `ready` after it has written the frames. A thread that finds its hash at a
 * site that is not ready makes a second site for this stack; readers of a dump add them up.
 *
 * Samples: a hash table of sets of neighbouring entries, by the block's address without its last
 * three bits. Each transition is a compare-and-swap or a release store by the thread that allocates
 * or frees the block:
 *
 *   block    FREE -> BUSY -> address -> BUSY -> FREE, address -> address of a renamed sample
 *
 * The thread that made an entry BUSY owns its other fields. There is no lock, so fork needs no
 * handler for it: an entry that another thread had made BUSY stays BUSY in the child and is lost to
 * it.
 *
 * Threads: any; all functions may run at the same time; async-signal-safe. */
#ifndef CAIRN_WATCH_PROFILE_TABLE_H
#define CAIRN_WATCH_PROFILE_TABLE_H

#include "base/atomic.h"
#include "base/compiler.h"
#include "watch/profile_writer.h"

enum {
    PROFILE_SITES = 4096,
    PROFILE_FRAMES = 96 << 10, /* frames of all sites together */
    PROFILE_BLOCKS = 16 << 10,
    PROFILE_DEPTH = 40,      /* frames of a stack */
    PROFILE_SET_BLOCKS = 32, /* entries of a set */
    PROFILE_WEIGHT_SHIFT = 16,
};

enum { BLOCK_FREE, BLOCK_BUSY }; /* other values are addresses */

/* Sums of samples. Each field is atomic. */
struct profile_sums {
    uint64_t samples;
    uint64_t objects; /* by weight, in units of 1 / 65536 */
    uint64_t bytes;   /* by weight */
};

/* A site: a stack and its sums. */
struct profile_site {
    uint64_t hash;                 /* atomic: hash of the frames; 0: free */
    uint32_t ready;                /* atomic: 1 + number of frames; 0: not written yet */
    uint32_t first_frame;          /* const once ready */
    struct profile_sums allocated; /* since the start */
    struct profile_sums live;      /* samples in use */
};

/* A sample in use. The other fields belong to the thread that made `block` BUSY. */
struct profile_block {
    uintptr_t block;      /* atomic: BLOCK_FREE, BLOCK_BUSY or an address */
    uint32_t site;        /* index of its site */
    uint32_t thread;      /* number that the kernel gave the thread */
    uint64_t asked_bytes; /* size as requested */
    uint64_t objects;     /* its weight */
    uint64_t bytes;       /* its weight times its size */
    uint64_t time_ms;     /* time of the allocation, monotonic */
};

/* Memory for a dump, because the stack may be small. */
struct profile_scratch {
    struct profile_writer writer;
    struct profile_maps maps;
};

struct profile_table {
    struct profile_site sites[PROFILE_SITES]; /* the first one is the site without a stack */
    struct profile_block blocks[PROFILE_BLOCKS];
    uintptr_t frames[PROFILE_FRAMES];
    struct profile_scratch scratch; /* dumping thread */
    struct profile_modules modules; /* libraries of the frames */
    uint64_t frames_taken;          /* atomic: number of frames in use */
    uint64_t stacks_lost;           /* atomic: samples whose stack found no room */
    uint64_t blocks_lost;           /* atomic: samples that found no place among those in use */
    struct profile_sums allocated;  /* sums over all sites */
    struct profile_sums live;
    uint32_t is_forked; /* atomic: 1 in a fork's child until profile_table_after_fork */
};
static_check(sizeof(struct profile_table) <= 2 << 20, "what a profile may cost");

/* Makes empty tables.
 *
 * Returns: NULL when out of memory. */
struct profile_table *profile_table_make(void);

/* Returns the weight of a block of `size_bytes` at the mean interval, in units of 1 / 65536. */
uint64_t profile_weight(uint64_t size_bytes, uint64_t interval_bytes);

/* Returns the bytes of `objects`, which are in units of 1 / 65536, of `size_bytes` each. */
inline_always uint64_t profile_weighted_bytes(uint64_t objects, uint64_t size_bytes)
{
    return (uint64_t)((unsigned __int128)objects * size_bytes >> PROFILE_WEIGHT_SHIFT);
}

/* Adds a sample. The caller has filled in of `taken` the block, the requested size, the thread, the
 * time and the weight.
 *
 * Returns: false if it found no place among the samples in use; then its free is not to be
 * reported. */
bool profile_table_add(struct profile_table *table, const struct profile_block *taken,
                       uint64_t size_bytes, const uintptr_t *frames, unsigned depth);

/* Removes the sample of a block that is about to be freed.
 *
 * Returns: whether the block was a sample and this call has removed it. */
bool profile_table_remove(struct profile_table *table, const void *block);

/* Gives a sample another address, which differs from the first in the last three bits only.
 *
 * Returns: whether `from` was a sample. */
bool profile_table_rename(struct profile_table *table, const void *from, const void *to);

/* Sets the sums of allocated memory to 0 in the child of a fork, once, if is_forked is set; samples
 * in use stay. Called before the first sample is added and before the sums are read. */
void profile_table_after_fork(struct profile_table *table);

/* Removes all samples and sets all sums to 0; stacks stay. A sample that is added or removed
 * meanwhile may be counted or not. */
void profile_table_reset(struct profile_table *table);

/* The state of the profiler. In the child of a fork it stays what it was in the parent. */
struct profile_state {
    struct profile_table *table; /* atomic, set once: NULL before the first start */
    uint64_t interval_bytes;     /* atomic: mean interval between samples; 0: never started */
    uint64_t growth_bytes;       /* atomic: growth that is dumped; 0: none */
    uint64_t growth_mark;        /* atomic: live bytes at which the next dump is due */
    uint32_t near_limit;         /* atomic: 1 after the dump near a limit was written */
    uint32_t busy;               /* claimed to start the profiler or to write a dump: os_claim */
};
extern hidden_data struct profile_state profile_state;

#endif
