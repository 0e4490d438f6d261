/* Programs of many threads with a fixed number of allocator operations, for the simulator.
 *
 * usage: programs NAME THREADS [PERCENT [WORK]]
 *        programs --list
 *
 * PERCENT of the operations; after each free, WORK nanoseconds pass in which the thread uses no
 * memory. The count begins when all threads have warmed up. Everything of the program itself is
 * outside of the heap. */
#define _GNU_SOURCE
#include "machine.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAILED = 5, STACK_BYTES = 256 << 10 };

/* Replaces random blocks of the thread's own. */
static void replace(struct worker *worker, void **slots, unsigned slots_count, unsigned operations,
                    unsigned low, unsigned high)
{
    for (unsigned i = 0; i < operations; i++) {
        unsigned slot = worker_random(worker, 0, slots_count - 1);
        worker_put(worker, slots[slot]);
        slots[slot] = worker_get(worker, worker_random(worker, low, high));
    }
}

static void replace_counted(struct worker *worker, unsigned slots_count, unsigned operations,
                            unsigned low, unsigned high)
{
    void **slots = worker_own_memory(slots_count * sizeof *slots);
    operations = worker_scaled(operations);
    replace(worker, slots, slots_count, operations, low, high);
    worker_begin(worker);
    replace(worker, slots, slots_count, operations, low, high);
    worker_end(worker);
    for (unsigned i = 0; i < slots_count; i++)
        worker_put(worker, slots[i]);
}

static void local(struct worker *worker) { replace_counted(worker, 256, 4000, 8, 512); }
static void medium(struct worker *worker) { replace_counted(worker, 64, 2000, 1024, 32768); }
static void large(struct worker *worker) { replace_counted(worker, 16, 1000, 32768, 262144); }

/* Many blocks, then all are freed. */
static void growing(struct worker *worker)
{
    void **first = NULL, **last = NULL;
    worker_put(worker, worker_get(worker, 100));
    worker_begin(worker);
    for (uint64_t bytes = 0, limit = 20 * 1024 * (uint64_t)worker_scaled(1024); bytes < limit;) {
        unsigned size = worker_random(worker, 16, 512);
        void **block = worker_get(worker, size);
        *block = NULL;
        if (last)
            *last = block;
        else
            first = block;
        last = block;
        bytes += size;
    }
    while (first) {
        void **block = first;
        first = *block;
        worker_put(worker, block);
    }
    worker_end(worker);
}

static pthread_t thread_start(void *(*work)(void *), void *argument, int state)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, state);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (pthread_create(&thread, &attributes, work, argument) != 0)
        _exit(FAILED);
    return thread;
}

/* larson: a thread replaces blocks, then starts another one that continues with them, and ends. */
enum { LARSON_SLOTS = 500 };
struct lineage {
    struct worker *worker __attribute__((aligned(128)));
    void **slots;
    unsigned generation, last;
    _Atomic int done;
};
static struct lineage lineages[WORKERS_MAX];

static void *larson_thread(void *argument)
{
    enum { WAKE = 1 };
    struct lineage *lineage = argument;
    replace(lineage->worker, lineage->slots, LARSON_SLOTS, LARSON_SLOTS, 10, 500);
    if (++lineage->generation < lineage->last) {
        (void)thread_start(larson_thread, lineage, PTHREAD_CREATE_DETACHED);
    } else {
        lineage->done = 1;
        syscall(SYS_futex, &lineage->done, WAKE, 1);
    }
    return NULL;
}

static void larson_part(struct lineage *lineage, unsigned generations)
{
    enum { WAIT = 0 };
    lineage->done = 0;
    lineage->generation = 0;
    lineage->last = generations;
    (void)thread_start(larson_thread, lineage, PTHREAD_CREATE_DETACHED);
    while (!lineage->done)
        syscall(SYS_futex, &lineage->done, WAIT, 0, NULL);
}

static void larson(struct worker *worker)
{
    struct lineage *lineage = &lineages[worker->number];
    lineage->worker = worker;
    lineage->slots = worker_own_memory(LARSON_SLOTS * sizeof(void *));
    larson_part(lineage, 2);
    worker_begin(worker);
    larson_part(lineage, worker_scaled(10));
    worker_end(worker);
}

/* pairs: one thread allocates, its partner frees. */
enum { RING = 512, STEP = 32 };
struct ring {
    _Atomic uint32_t head __attribute__((aligned(128)));
    _Atomic uint32_t tail __attribute__((aligned(128)));
    void *cells[RING] __attribute__((aligned(128)));
};
static struct ring rings[WORKERS_MAX / 2];

static void produce(struct worker *worker, struct ring *ring, unsigned operations)
{
    for (unsigned i = 0; i < operations; i += STEP) {
        uint32_t head = ring->head;
        while (head - ring->tail > RING - STEP)
            __builtin_ia32_pause();
        for (uint32_t j = 0; j < STEP; j++)
            ring->cells[(head + j) % RING] = worker_get(worker, worker_random(worker, 16, 256));
        ring->head = head + STEP;
    }
}

static void consume(struct worker *worker, struct ring *ring, unsigned operations)
{
    for (unsigned i = 0; i < operations; i += STEP) {
        uint32_t tail = ring->tail;
        while (ring->head == tail)
            __builtin_ia32_pause();
        for (uint32_t j = 0; j < STEP; j++) {
            uint64_t *block = ring->cells[(tail + j) % RING];
            __asm__ volatile("" : : "r"(*block)); /* reads it */
            worker_put(worker, block);
        }
        ring->tail = tail + STEP;
    }
}

static void pairs(struct worker *worker)
{
    struct ring *ring = &rings[worker->number / 2];
    unsigned operations = worker_scaled(6400) / STEP * STEP;
    void (*part)(struct worker *, struct ring *, unsigned) = worker->number % 2 ? consume : produce;
    part(worker, ring, operations);
    worker_begin(worker);
    part(worker, ring, operations);
    worker_end(worker);
}

/* many: blocks go to random threads. */
enum { PLACES = 64 };
static struct {
    void *_Atomic block;
} __attribute__((aligned(64))) * exchange;

static void many_part(struct worker *worker, unsigned operations)
{
    for (unsigned i = 0; i < operations; i++) {
        void *block = worker_get(worker, worker_random(worker, 16, 256));
        unsigned place = worker_random(worker, 0, PLACES * workers_count - 1);
        worker_put(worker, atomic_exchange(&exchange[place].block, block));
    }
}

static void many(struct worker *worker)
{
    if (worker->number == 0)
        exchange = worker_own_memory(PLACES * workers_count * sizeof *exchange);
    worker_meet();
    many_part(worker, worker_scaled(4000));
    worker_begin(worker);
    many_part(worker, worker_scaled(4000));
    worker_end(worker);
}

/* shorts: threads that allocate 100 blocks, free them and end. */
static void *short_thread(void *argument)
{
    enum { BLOCKS = 100 };
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = worker_get(argument, worker_random(argument, 16, 512));
    for (int i = 0; i < BLOCKS; i++)
        worker_put(argument, blocks[i]);
    return NULL;
}

static void shorts_part(struct worker *worker, unsigned threads)
{
    for (unsigned i = 0; i < threads; i++)
        pthread_join(thread_start(short_thread, worker, PTHREAD_CREATE_JOINABLE), NULL);
}

static void shorts(struct worker *worker)
{
    shorts_part(worker, 4);
    worker_begin(worker);
    shorts_part(worker, worker_scaled(40));
    worker_end(worker);
}

/* bursts: a burst of work, then a rest of 100 ms. */
enum { BURST_BLOCKS = 1000 };
static void bursts_part(struct worker *worker, void **slots, unsigned rounds)
{
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < BURST_BLOCKS; i++)
            slots[i] = worker_get(worker, worker_random(worker, 16, 1024));
        for (unsigned i = 0; i < BURST_BLOCKS; i++)
            worker_put(worker, slots[i]);
        worker_sleep(100000000);
    }
}

static void bursts(struct worker *worker)
{
    void **slots = worker_own_memory(BURST_BLOCKS * sizeof *slots);
    bursts_part(worker, slots, 2);
    worker_begin(worker);
    bursts_part(worker, slots, worker_scaled(6));
    worker_end(worker);
}

/* resizing: buffers that grow by half, to 1 to 512 KiB. */
static void resizing_part(struct worker *worker, unsigned buffers)
{
    for (unsigned i = 0; i < buffers; i++) {
        void *buffer = worker_get(worker, worker_random(worker, 16, 256));
        unsigned limit = 1024u << worker_random(worker, 0, 9);
        for (unsigned size = 300; size < limit; size += size / 2)
            buffer = worker_resize(worker, buffer, size);
        worker_put(worker, buffer);
    }
}

static void resizing(struct worker *worker)
{
    resizing_part(worker, worker_scaled(60));
    worker_begin(worker);
    resizing_part(worker, worker_scaled(60));
    worker_end(worker);
}

/* aligned: blocks up to 8 KiB, aligned to 32 bytes to a page. */
static void aligned_part(struct worker *worker, void **slots, unsigned slots_count,
                         unsigned operations)
{
    for (unsigned i = 0; i < operations; i++) {
        unsigned slot = worker_random(worker, 0, slots_count - 1);
        worker_put(worker, slots[slot]);
        unsigned size = worker_random(worker, 16, 8192);
        slots[slot] = worker_get_aligned(worker, (size_t)32 << worker_random(worker, 0, 7), size);
    }
}

static void aligned(struct worker *worker)
{
    enum { SLOTS = 128 };
    void **slots = worker_own_memory(SLOTS * sizeof *slots);
    aligned_part(worker, slots, SLOTS, worker_scaled(2000));
    worker_begin(worker);
    aligned_part(worker, slots, SLOTS, worker_scaled(2000));
    worker_end(worker);
}

/* Makes the allocator return its free memory to the system, by the function that it has. */
static void purge(void)
{
    static void (*collect)(bool);
    static int (*control)(const char *, void *, size_t *, void *, size_t);
    static int (*trim)(size_t);
    static bool known;
    if (!known) {
        known = true;
        *(void **)&collect = dlsym(RTLD_DEFAULT, "mi_collect");
        *(void **)&control = dlsym(RTLD_DEFAULT, "mallctl");
        *(void **)&trim = dlsym(RTLD_DEFAULT, "malloc_trim");
    }
    if (collect)
        collect(true);
    else if (control)
        control("arena.4096.purge", NULL, NULL, NULL, 0);
    else if (trim)
        trim(0);
}

/* purging: one thread purges again and again, while all allocate. */
enum { PURGING_SLOTS = 48, PURGING_STEP = 25 };
static void purging_part(struct worker *worker, void **slots, unsigned operations)
{
    for (unsigned i = 0; i < operations; i += PURGING_STEP) {
        replace(worker, slots, PURGING_SLOTS, PURGING_STEP, 16, i % 2 ? 65536 : 2048);
        if (worker->number == 0)
            purge();
    }
}

static void purging(struct worker *worker)
{
    void **slots = worker_own_memory(PURGING_SLOTS * sizeof *slots);
    purging_part(worker, slots, worker_scaled(1000));
    worker_begin(worker);
    purging_part(worker, slots, worker_scaled(1000));
    worker_end(worker);
}

/* forking: one thread forks again and again, while all allocate. The child ends at once. */
enum { FORKING_SLOTS = 64, FORKING_STEP = 100 };
static void forking_part(struct worker *worker, void **slots, unsigned operations)
{
    for (unsigned i = 0; i < operations; i += FORKING_STEP) {
        replace(worker, slots, FORKING_SLOTS, FORKING_STEP, 16, 16384);
        if (worker->number != 0)
            continue;
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        if (child < 0 || waitpid(child, NULL, 0) != child)
            _exit(FAILED);
    }
}

static void forking(struct worker *worker)
{
    void **slots = worker_own_memory(FORKING_SLOTS * sizeof *slots);
    forking_part(worker, slots, worker_scaled(500));
    worker_begin(worker);
    forking_part(worker, slots, worker_scaled(1500));
    worker_end(worker);
}

static const struct {
    const char *name;
    void (*work)(struct worker *);
} programs[] = {
    {"local", local},     {"growing", growing},   {"larson", larson},   {"pairs", pairs},
    {"many", many},       {"medium", medium},     {"large", large},     {"shorts", shorts},
    {"bursts", bursts},   {"resizing", resizing}, {"aligned", aligned}, {"purging", purging},
    {"forking", forking},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "--list") == 0) {
        for (unsigned i = 0; i < PROGRAMS; i++)
            puts(programs[i].name);
        return 0;
    }
    unsigned threads = count > 2 ? (unsigned)atoi(arguments[2]) : 0;
    unsigned percent = count > 3 ? (unsigned)atoi(arguments[3]) : 100;
    unsigned work_ns = count > 4 ? (unsigned)atoi(arguments[4]) : 0;
    for (unsigned i = 0; i < PROGRAMS && threads >= 1 && threads <= WORKERS_MAX; i++)
        if (strcmp(arguments[1], programs[i].name) == 0)
            workers_run(threads, percent, work_ns, programs[i].work);
    fputs("usage: programs NAME THREADS [PERCENT [WORK]]\n", stderr);
    return 2;
}
