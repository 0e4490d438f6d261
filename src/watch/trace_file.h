/* The file of a trace: its header, its chunks, the order of events, and its end. trace_format.h
 * describes its layout.
 *
 * Chunks are begun without a lock. One word has the number of chunks and a lower bound of the order
 * of events. A compare-and-swap increments the number and raises the bound to the value that the
 * counter of events had before. So the chunks of a file are sorted by their first_order. No event
 * of a chunk is before its first_order, because the orders of its events are taken later. Room on
 * the disk is allotted before a chunk is mapped.
 *
 * The program may close the descriptor of the file and use its number again. So each use checks
 * that it is still the trace's file, and otherwise opens the file by its name.
 *
 *   state       OFF --trace_file_begin--> ON, set by the caller
 *               ON --trace_file_end--> OFF, the reason is in the header
 *               in a child of fork: any --> LOST: the kernel or a handler wipes the word
 *               LOST --> BUSY --> ON or OFF, at the first event of the child: see trace.c
 *
 * LOST is 0. In that state nothing of the parent's file is touched, and trace_file_begin may be
 * called again; it closes the inherited descriptor.
 *
 * Threads: any; async-signal-safe. errno is unchanged. */
#ifndef CAIRN_WATCH_TRACE_FILE_H
#define CAIRN_WATCH_TRACE_FILE_H

#include "base/alone.h"
#include "base/compiler.h"
#include "os/file.h"
#include "watch/trace_format.h"

enum { TRACE_FILE_PATH_MAX = 1024, TRACE_TIME_STEP_NS = 1 << 17 };
enum trace_file_state { TRACE_FILE_LOST, TRACE_FILE_ON, TRACE_FILE_OFF, TRACE_FILE_BUSY };

struct trace_word {
    uint64_t value;
} cache_aligned;

struct trace_file {
    struct trace_word order;        /* atomic: order of the next event; on a line of its own */
    uint32_t *state;                /* const after the first begin; the word is atomic */
    struct trace_header *header;    /* const while it is on */
    uint64_t begun;                 /* atomic: number of chunks and bound of orders */
    uint64_t limit_bytes;           /* const after trace_file_place; 0: none */
    struct os_own_file file;        /* number: any thread; identity: const while it is on */
    uint32_t process;               /* const while it is on */
    uint32_t ends;                  /* atomic: 1 once a thread ends the trace */
    size_t path_bytes;              /* const after trace_file_place */
    char path[TRACE_FILE_PATH_MAX]; /* const while it is on: prefix, then .PROCESS.NUMBER */
};
extern hidden_data struct trace_file trace_file;

/* Sets the prefix of the files and the limit of their size, 0 for none.
 *
 * Returns: false if the prefix is too long. */
bool trace_file_place(const char *path, size_t length_bytes, uint64_t limit_bytes);

/* Makes a new file. `parent`: number of the parent process in a child of fork, else 0.
 * `fork_order`: order of the parent's trace at the fork. The caller sets the state.
 *
 * Threads: one at a time.
 * Returns: 0 or a negative errno. */
int trace_file_begin(uint32_t parent, uint64_t fork_order);

/* Returns the state; OFF before the first begin. */
inline_always uint32_t trace_file_state(void)
{
    if (unlikely(trace_file.state == NULL))
        return TRACE_FILE_OFF;
    return load_acquire(trace_file.state); /* pairs with trace_file_set_state */
}

/* Sets the state. */
void trace_file_set_state(uint32_t state);

/* Returns the time, rounded down to whole steps: finer times would take much of a compressed
 * trace. */
uint64_t trace_file_now_ns(void);

/* Takes the order of an event: after its block was allocated, before its block is free. */
inline_always uint64_t trace_file_order(void) { return count_if_threaded(&trace_file.order.value); }

/* Begins a chunk and maps it, all zero. Stores the least order that its events can have.
 *
 * Returns: NULL if the trace is over, or is ended by this call. */
struct trace_chunk *trace_file_chunk(uint64_t *first_order);

/* Unmaps `*chunk`, sets it to NULL, and does what trace_file_chunk does. */
struct trace_chunk *trace_file_next_chunk(struct trace_chunk **chunk, uint64_t *first_order);

/* Unmaps a chunk; NULL is ignored. */
void trace_file_unmap(struct trace_chunk *chunk);

/* Ends the trace and writes to the header how it ended. Only the first call has an effect. */
void trace_file_end(uint32_t state, uint32_t reason);

#endif
