/* Workers, and the simulated machine as the allocators see it: see machine.h. */
#define _GNU_SOURCE
#include "machine.h"

#include "requests.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

enum { NO_MEMORY = 3, NO_THREAD = 5, PAGE_BYTES = 4096 };

unsigned workers_count;
static struct worker workers[WORKERS_MAX];
static unsigned percent = 100, work_ns;
static int processors = WORKERS_MAX;
static void (*worker_work)(struct worker *);
/* Written while operations count, so in lines of their own. */
static struct {
    pthread_barrier_t barrier;
    _Atomic uint64_t mallocs, frees;
} __attribute__((aligned(64))) all;

int get_nprocs(void) { return processors; }
int get_nprocs_conf(void) { return processors; }

long sysconf(int name)
{
    static long (*real)(int);
    if (name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF)
        return processors;
    if (name == _SC_PAGESIZE)
        return PAGE_BYTES;
    if (real == NULL)
        real = (long (*)(int))dlsym(RTLD_NEXT, "sysconf");
    return real(name);
}

int sched_getaffinity(pid_t process, size_t size, cpu_set_t *set)
{
    (void)process;
    memset(set, 0, size);
    for (int i = 0; i < processors && (size_t)i < size * 8; i++)
        CPU_SET_S(i, size, set);
    return 0;
}

int pthread_getaffinity_np(pthread_t thread, size_t size, cpu_set_t *set)
{
    (void)thread;
    return sched_getaffinity(0, size, set);
}

int sched_getcpu(void)
{
    uint32_t core = 0;
    syscall(SIMULATOR, SIMULATOR_CORE, &core);
    return (int)core;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    enum { START_S = 1000000 };
    uint64_t ns = 0;
    (void)clock;
    syscall(SIMULATOR, SIMULATOR_CLOCK, &ns);
    time->tv_sec = (time_t)(START_S + ns / 1000000000);
    time->tv_nsec = (long)(ns % 1000000000);
    return 0;
}

unsigned worker_random(struct worker *worker, unsigned low, unsigned high)
{
    worker->random = worker->random * 6364136223846793005u + 1442695040888963407u;
    return low + (unsigned)(worker->random >> 33) % (high - low + 1);
}

unsigned worker_scaled(unsigned operations)
{
    unsigned part = (unsigned)((uint64_t)operations * percent / 100);
    return part != 0 ? part : 1;
}

static void *worker_note(struct worker *worker, void *block, size_t size)
{
    if (block == NULL) {
        (void)!write(STDERR_FILENO, "no memory\n", 10);
        _exit(NO_MEMORY);
    }
    *(uint64_t *)block = size;
    worker->mallocs++;
    return block;
}

__attribute__((noinline)) void *worker_get(struct worker *worker, size_t size)
{
    return worker_note(worker, malloc(size), size);
}

__attribute__((noinline)) void *worker_get_aligned(struct worker *worker, size_t alignment,
                                                   size_t size)
{
    return worker_note(worker, aligned_alloc(alignment, size), size);
}

__attribute__((noinline)) void *worker_resize(struct worker *worker, void *block, size_t size)
{
    worker->frees++;
    return worker_note(worker, realloc(block, size), size);
}

__attribute__((noinline)) void worker_put(struct worker *worker, void *block)
{
    if (block == NULL)
        return;
    worker->frees++;
    free(block);
    if (work_ns != 0)
        worker_sleep(work_ns);
}

void *worker_own_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        _exit(NO_MEMORY);
    return memory;
}

void worker_meet(void) { pthread_barrier_wait(&all.barrier); }

void worker_begin(struct worker *worker)
{
    worker_meet();
    if (worker->number == 0)
        syscall(SIMULATOR, SIMULATOR_START);
    worker_meet();
    worker->mallocs = worker->frees = 0;
}

void worker_end(struct worker *worker)
{
    atomic_fetch_add(&all.mallocs, worker->mallocs);
    atomic_fetch_add(&all.frees, worker->frees);
    worker_meet();
    if (worker->number == 0)
        syscall(SIMULATOR, SIMULATOR_STOP, all.mallocs, all.frees);
    worker_meet();
}

void worker_sleep(uint64_t ns) { syscall(SIMULATOR, SIMULATOR_SLEEP, ns); }

static void *worker_start(void *argument)
{
    struct worker *worker = argument;
    syscall(SIMULATOR, SIMULATOR_PLACE, (unsigned long)worker->number);
    worker_work(worker);
    return NULL;
}

void workers_run(unsigned count, unsigned percent_wanted, unsigned work_ns_wanted,
                 void (*work)(struct worker *))
{
    pthread_t threads[WORKERS_MAX];
    workers_count = count;
    percent = percent_wanted;
    work_ns = work_ns_wanted;
    worker_work = work;
    processors = (int)count;
    pthread_barrier_init(&all.barrier, NULL, count);
    for (unsigned i = 0; i < count; i++) {
        workers[i].number = i;
        workers[i].random = 88172645463325252u * (i + 1);
        if (pthread_create(&threads[i], NULL, worker_start, &workers[i]) != 0)
            _exit(NO_THREAD);
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    char text[100];
    int length = snprintf(text, sizeof text, "%u threads: %lu mallocs, %lu frees\n", count,
                          (unsigned long)all.mallocs, (unsigned long)all.frees);
    (void)!write(STDOUT_FILENO, text, (size_t)length);
    syscall(SIMULATOR, SIMULATOR_END);
    _exit(0);
}
