/* Statistics of the heap of the process: in total, by block size and by thread.
 *
 * Use the statistics to export memory figures, to find the size classes with free space in their
 * slabs, and to test a program's use of memory. One private heap has statistics of its own
 * (cairn/private_heap.h). From outside the process, `cairn stats PID` and `cairn inspect PID` show
 * the same numbers and more (docs/SEEING.md). For estimates by call stack, use cairn/profile.h.
 *
 * Example:
 *
 *     #include <cairn/stats.h>
 *     #include <stdio.h>
 *
 *     void print_heap(void)
 *     {
 *         cairn_heap_stats stats;
 *         cairn_heap_read_stats(&stats);
 *         printf("%zu bytes in %zu blocks\n", stats.allocated_bytes, stats.allocated_blocks);
 *
 *         cairn_heap_class_stats rows[128];
 *         size_t count = cairn_heap_read_class_stats(rows, 128);
 *         for (size_t i = 0; i < count && i < 128; i++)
 *             if (rows[i].slabs != 0)
 *                 printf("%zu bytes: %zu blocks\n", rows[i].block_bytes, rows[i].live_blocks);
 *     }
 *
 * Threads: any thread may call any function at any time.
 *
 * Failure: none. No function allocates memory or sets errno.
 *
 * Cost: a visit to the header of every slab and large block and to one byte for each slot of a
 * slab: about 5 ms for a million small blocks. No lock is held meanwhile.
 *
 * Caveats:
 *  - No signal handler may call a function of this header.
 *  - Other threads continue while the numbers are read. The numbers may be of different instants,
 *    and a sum may differ a little from the sum of its parts.
 *  - The counters since the start include those of the processes from which this one was forked.
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

/* Totals of the process. Sizes of blocks are those handed out: rounded up to a size class or to
 * whole pages. */
typedef struct cairn_heap_stats {
    /* Blocks in use. */
    size_t allocated_bytes;
    size_t allocated_blocks;
    size_t large_bytes;    /* part of allocated_bytes in blocks above 32 KiB */
    size_t large_blocks;   /* part of allocated_blocks above 32 KiB */
    size_t guarded_bytes;  /* part of allocated_bytes in guarded blocks, as requested */
    size_t guarded_blocks; /* part of allocated_blocks guarded by the option `guard` */
    /* Memory for these blocks. */
    size_t active_bytes;   /* pages of slabs, large blocks and guarded blocks */
    size_t slab_bytes;     /* part of active_bytes in slabs */
    size_t free_bytes;     /* readable and writable pages that are not in use */
    size_t dirty_bytes;    /* part of free_bytes that was not returned to the system yet */
    size_t mapped_bytes;   /* all readable and writable pages, without metadata */
    size_t retained_bytes; /* address space without memory: reserved, or returned to the system */
    size_t metadata_bytes; /* mapped for metadata; pages that were never touched have no memory */
    size_t thread_heaps;   /* heaps of running threads, and of ended ones for the next threads */
    /* Counters since the start. */
    uint64_t purged_bytes;  /* returned to the system by the arenas */
    uint64_t purges;        /* number of pieces in which purged_bytes were returned */
    uint64_t map_calls;     /* system calls: mmap */
    uint64_t protect_calls; /* mprotect */
    uint64_t unmap_calls;   /* munmap */
    uint64_t advise_calls;  /* madvise and mincore */
    uint64_t remap_calls;   /* mremap */
} cairn_heap_stats;

/* Fills *stats with the totals of the process. */
CAIRN_API void cairn_heap_read_stats(cairn_heap_stats *stats) CAIRN_NOEXCEPT;

/* One size class: blocks of up to 32 KiB are in slabs that hold blocks of one size each. */
typedef struct cairn_heap_class_stats {
    size_t block_bytes; /* 0: blocks of 0 bytes, which have no memory (hardened builds) */
    size_t live_blocks;
    size_t free_blocks; /* the other slots of the slabs, those never used as well */
    size_t slabs;
    size_t slab_bytes; /* of all slabs of the class */
} cairn_heap_class_stats;

/* Writes one row for each size class to `rows`, at most `count` rows. Classes without slabs have a
 * row, too. `rows` may be NULL if `count` is 0.
 * Returns: the number of size classes, which may be more than `count`. */
CAIRN_API size_t cairn_heap_read_class_stats(cairn_heap_class_stats *rows,
                                             size_t count) CAIRN_NOEXCEPT;

/* One thread heap: each thread allocates from slabs of its own. Large blocks belong to no thread.
 */
typedef struct cairn_heap_thread_stats {
    const void *heap;   /* identifies the thread heap in all readings */
    bool is_current;    /* it is the heap of the calling thread */
    bool is_orphan;     /* its thread has ended; the next new thread takes the heap over */
    size_t live_blocks; /* blocks in use in its slabs, by any thread */
    size_t live_bytes;
    size_t slabs;
    size_t slab_bytes;
} cairn_heap_thread_stats;

/* Writes one row for each thread heap to `rows`, at most `count` rows. `rows` may be NULL if
 * `count` is 0.
 * Returns: the number of thread heaps, which may be more than `count` and may have grown since. */
CAIRN_API size_t cairn_heap_read_thread_stats(cairn_heap_thread_stats *rows,
                                              size_t count) CAIRN_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#endif
