/* The heap's statistics: the whole, by size of blocks, by thread.
 *
 *     cairn_heap_stats stats;
 *     cairn_heap_read_stats(&stats);
 *     printf("%zu bytes in %zu blocks\n", stats.allocated_bytes, stats.allocated_blocks);
 *
 * From outside the process, `cairn stats PID` shows the same and more (docs/SEEING.md).
 *
 * Nothing is allocated and no lock is held: other threads go on while it is counted, so the numbers
 * need not be of one instant, and a sum may lie a little beside its parts. Cost: a look at the
 * header of every slab and large block, and at a byte for each slot: about 5 ms for a million small
 * blocks. The counters since the start are of this process and of those that it was forked off
 * from.
 *
 * Threads: any, at any time. A signal handler may call none of this. No failure.
 */
#ifndef CAIRN_STATS_H
#define CAIRN_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cairn/api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn_heap_stats {
    /* What the program holds. Sizes of blocks are those handed out, rounded up to their class or to
     * pages. */
    size_t allocated_bytes;
    size_t allocated_blocks;
    size_t large_bytes; /* of those, in blocks of pages: above 32 KiB */
    size_t large_blocks;
    size_t sampled_bytes; /* of those, guarded (option `sample`), in bytes as asked for */
    size_t sampled_blocks;
    /* What that takes. */
    size_t active_bytes;   /* pages of slabs, and large and sampled blocks */
    size_t slab_bytes;     /* of those, pages of slabs */
    size_t free_bytes;     /* pages in no one's use, readable and writable */
    size_t dirty_bytes;    /* of those, not given back to the system yet */
    size_t mapped_bytes;   /* readable and writable in all, without metadata */
    size_t retained_bytes; /* address space kept without memory: reserved, or given back */
    size_t metadata_bytes; /* beside the blocks; those never touched have no memory */
    size_t thread_heaps;   /* of threads that live, and of those that ended, for the next ones */
    /* Since the start. */
    uint64_t purged_bytes;  /* given back to the system, of the arenas */
    uint64_t purges;        /* in so many pieces */
    uint64_t map_calls;     /* system calls: mmap */
    uint64_t protect_calls; /* mprotect */
    uint64_t unmap_calls;   /* munmap */
    uint64_t advise_calls;  /* madvise and mincore */
    uint64_t remap_calls;   /* mremap */
} cairn_heap_stats;
CAIRN_API void cairn_heap_read_stats(cairn_heap_stats *stats) CAIRN_NOEXCEPT;

/* Blocks up to 32 KiB lie in slabs of one size each. */
typedef struct cairn_heap_class_stats {
    size_t block_bytes; /* 0: blocks of 0 bytes, which have no memory (hardened builds) */
    size_t live_blocks;
    size_t free_blocks; /* the rest of the slots, those never used among them */
    size_t slabs;
    size_t slab_bytes; /* of all slabs together */
} cairn_heap_class_stats;

/* Fills up to `count` rows, one for each size, also for those without slabs, and returns how many
 * sizes there are: call it with NULL and 0 to know. */
CAIRN_API size_t cairn_heap_read_class_stats(cairn_heap_class_stats *rows,
                                             size_t count) CAIRN_NOEXCEPT;

/* Each thread allocates from slabs of its own; large blocks belong to none. */
typedef struct cairn_heap_thread_stats {
    const void *heap;   /* which it is, the same in every reading */
    bool is_current;    /* of the calling thread */
    bool is_orphan;     /* its thread has ended: the next new thread takes it over */
    size_t live_blocks; /* in its slabs, whoever uses them */
    size_t live_bytes;
    size_t slabs;
    size_t slab_bytes;
} cairn_heap_thread_stats;

/* Likewise, one row for each thread heap. There may be more of them when it returns. */
CAIRN_API size_t cairn_heap_read_thread_stats(cairn_heap_thread_stats *rows,
                                              size_t count) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
