/* The state that the files of the simulator share.
 *
 * lines.c     the cache lines, which core has each, and the tables of transfers
 * turns.c     which thread runs
 * plugin.c    what qemu calls: translation, memory accesses, system calls
 * result.c    the result file
 *
 * Threads: the thread that has the turn changes everything but the fields of `struct thread` that
 * decide about turns; turns_lock protects these.
 */
#ifndef CAIRN_BENCH_CORES_SIMULATOR_H
#define CAIRN_BENCH_CORES_SIMULATOR_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { CORES_MAX = 64, THREADS_MAX = 1 << 16, CALLS = 512 };

/* Costs in cycles; an instruction costs one. */
enum {
    COST_TRANSFER = 100,
    COST_LOCKED = 20,
    COST_CALL = 500,
    COST_FIRST_ACCESS = 1500, /* of a page */
    COST_UNMAPPED_PAGE = 100,
};

/* The kinds of transfers: see README.md. */
enum kind { READ_DIRTY, READ_CLEAN, WRITE_DIRTY, WRITE_SHARED, KINDS };

/* Whose code an instruction is. */
enum code_owner { PROGRAM, ALLOCATOR, OTHER, CODE_OWNERS };

/* An instruction of the program that accessed memory or was locked. */
struct code {
    uint64_t address, transfers[KINDS], locked;
};

/* A translated block of instructions. */
struct block {
    uint32_t instructions;
    enum code_owner owner;
    uint64_t address, runs;
    struct block *next;
};

/* A thread of the program. */
struct thread {
    uint64_t clock;      /* cycles */
    uint64_t limit;      /* clock at which the turn ends */
    pthread_cond_t wake; /* turns_lock: the thread has the turn */
    bool wants;          /* turns_lock: it runs or waits for its turn */
    bool released;       /* it gave its turn away for a system call */
    bool shared;         /* since it got the turn it used a line that another core has */
    bool placed;         /* it counts in the load of its core */
    uint32_t core;
    enum code_owner owner;   /* of the code that runs, or that called it */
    int64_t in_call;         /* number of the system call; -1: none */
    uint64_t arguments[3];   /* first, second and fourth of the system call */
    uint64_t sleeps_on;      /* turns_lock: address of the futex; 0: none */
    uint64_t cleared_at_end; /* address of the futex of those who join the thread */
    unsigned sleepers;       /* threads that slept on the futex before this one woke some */
    pid_t number;            /* the kernel's number of the thread */
};

struct totals {
    uint64_t transfers[CODE_OWNERS][KINDS], instructions[CODE_OWNERS], locked[CODE_OWNERS];
    uint64_t accesses, first_accesses, pages, unmapped_pages, pauses;
    uint64_t calls[CALLS], futex_waits, futex_wakes;
    uint64_t turns, escapes, threads;
};

/* A lock of the allocator that is watched: by place of the call that took it. */
enum { HOLD_SITES = 64 };
struct hold {
    uint64_t site, count, cycles, longest;
};

/* A cell of a table of transfers. */
struct cell {
    uint64_t first, second; /* second is never 0 in a used cell */
    uint64_t transfers[KINDS];
};
struct table {
    struct cell *cells;
    uint64_t capacity, used;
};

extern struct totals totals;
extern bool counting;  /* between start and stop */
extern bool ended;     /* the program runs on without a simulation */
extern unsigned cores; /* const after the start */
extern uint64_t quantum, end_clock, start_clock;
extern struct code *codes;
extern uint32_t codes_count;
extern struct block *blocks;
extern struct hold holds[HOLD_SITES];
extern struct table code_pairs; /* (accessing code, 1 + code that wrote last) */
extern struct table line_sites; /* (line, accessing code) */

/* lines.c. The number of an instruction. */
uint32_t lines_code(uint64_t address);
/* Counts what an access of a line costs. */
void lines_access(struct thread *thread, uint64_t line, bool is_store, uint32_t code);
/* Forgets the lines of a range whose pages are gone. Returns: the number of these pages. */
uint64_t lines_forget(uint64_t start, uint64_t size);
/* Simulates finite caches of this size in each core. */
void lines_limit(unsigned kib);
void lines_init(void);

/* turns.c. The thread that has the turn; NULL: none. */
extern struct thread *turns_holder;
extern struct thread *turns_threads[THREADS_MAX];
extern unsigned turns_count;
extern pthread_mutex_t turns_lock;
/* A thread begins. `cleared_at_end` is the futex word that the kernel clears at its end. */
void turns_add(unsigned index, uint64_t cleared_at_end);
void turns_place(struct thread *thread, unsigned core);
/* Waits for the turn of the thread. It may return without the turn, when qemu needs the thread. */
void turns_take(struct thread *thread);
/* Gives the turn away until turns_take, for a system call that may block. */
void turns_release(struct thread *thread);
/* Gives the turn to the thread whose clock is lowest. */
void turns_next(struct thread *thread);
/* Before and after a fork: meanwhile qemu waits until all threads have left translated code. */
void turns_fork(bool begins);
/* The thread ends: wakes the simulated sleepers that join it. */
void turns_end(struct thread *thread);
/* Ends the simulation. */
void turns_end_all(void);
unsigned turns_sleepers(uint64_t futex);
/* A thread returns from the wait on a futex. */
void turns_awake(struct thread *thread);
/* Waits until `woken` of the threads that slept on the futex have returned. */
void turns_await_woken(const struct thread *waker, int64_t woken);

/* result.c */
void result_write(const char *path, uint64_t mallocs, uint64_t frees);

#endif
