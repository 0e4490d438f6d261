/* The needs of the programs besides the allocator: threads with a number, random numbers and
 * counts, memory outside of the heap, and the beginning and the end of the count. machine.c also
 * answers the allocator's questions about the machine: processors and the clock are the simulated
 * ones. */
#ifndef CAIRN_BENCH_CORES_MACHINE_H
#define CAIRN_BENCH_CORES_MACHINE_H

#include <stddef.h>
#include <stdint.h>

enum { WORKERS_MAX = 64 };

/* A thread that the program starts with. Threads that it starts later work for one of these. */
struct worker {
    uint64_t random __attribute__((aligned(128)));
    uint64_t mallocs, frees;
    unsigned number;
} __attribute__((aligned(128)));

extern unsigned workers_count;

/* A number from `low` to `high`. */
unsigned worker_random(struct worker *worker, unsigned low, unsigned high);

/* The given part of the operations of the program's full size, at least 1. */
unsigned worker_scaled(unsigned operations);

/* malloc and aligned_alloc; the first word is written. */
void *worker_get(struct worker *worker, size_t size);
void *worker_get_aligned(struct worker *worker, size_t alignment, size_t size);

/* realloc, which counts as a malloc and a free. */
void *worker_resize(struct worker *worker, void *block, size_t size);

/* free, then the time of other work. */
void worker_put(struct worker *worker, void *block);

/* Memory that is not the allocator's. */
void *worker_own_memory(size_t size);

/* Waits until all workers are here. */
void worker_meet(void);

/* Between the two the operations of all workers count. Each worker calls both. */
void worker_begin(struct worker *worker);
void worker_end(struct worker *worker);

/* Lets simulated time pass. */
void worker_sleep(uint64_t ns);

/* Runs `work` in `count` threads and returns when all have ended. */
void workers_run(unsigned count, unsigned percent, unsigned work_ns, void (*work)(struct worker *));

#endif
