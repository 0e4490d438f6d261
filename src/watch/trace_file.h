/* The file of a trace: its header, its chunks, the order of events, and its end. See
 * trace_format.h for the layout.
 *
 * Chunks are begun without a lock. One word has the number of chunks and a lower bound of the order
 * of events; a compare-and-swap counts one more, and raises the bound to what the counter of events
 * was before. So the chunks of a file lie in the order of their first_order, and no event of a
 * chunk is before it, since its orders are taken after. Room on the disk is allotted before a chunk
 * is mapped.
 *
 * The file's descriptor may be closed by the program and its number used again. So each use looks
 * whether it is still the trace's file, and opens it by its name if not.
 *
 * States: OFF -> ON by trace_file_begin; ON -> OFF by the one who cuts or ends it, which is said in
 * the header. In a fork's child the word is 0, LOST: the kernel wipes it, or a handler does;
 * then nothing of the parent's file is to be touched, and trace_file_begin may come again.
 *
 * Any thread, signal handlers too; errno is untouched.
 */
#ifndef CAIRN_WATCH_TRACE_FILE_H
#define CAIRN_WATCH_TRACE_FILE_H

#include "base/alone.h"
#include "base/compiler.h"
#include "watch/trace_format.h"

enum { TRACE_PATH_MOST = 1024, TRACE_TIME_STEP_NS = 1 << 17 };
enum trace_file_state { TRACE_FILE_LOST, TRACE_FILE_ON, TRACE_FILE_OFF, TRACE_FILE_BUSY };

struct trace_word {
    uint64_t value;
} cache_aligned;

struct trace_file {
    struct trace_word order;  /* atomic: of the next event. On a line of its own */
    uint32_t *state;          /* const after the first begin; what it points to: atomic */
    struct trace_header *header; /* const while it is on */
    uint64_t begun;           /* atomic: chunks, and a bound of orders: see above */
    uint64_t limit_bytes;     /* const after trace_file_place; 0: none */
    uint64_t device, number;  /* const while it is on: of the file */
    int descriptor;           /* atomic */
    uint32_t process;         /* const while it is on */
    uint32_t ends;            /* atomic: 1 once somebody ends it */
    size_t path_bytes;        /* const after trace_file_place */
    char path[TRACE_PATH_MOST]; /* likewise; behind it what is the file's own: .PROCESS.NUMBER */
};
extern hidden_data struct trace_file trace_file;

/* Where, and how large each file may become. False: the path is too long. */
bool trace_file_place(const char *path, size_t length_bytes, uint64_t limit_bytes);

/* A new file. In a fork's child `parent` is its parent's number, else 0. 0 or a negative errno. One
 * thread at a time; the state is the caller's to set. */
int trace_file_begin(uint32_t parent, uint64_t fork_order);

inline_always uint32_t trace_file_state(void)
{
    if (unlikely(trace_file.state == NULL))
        return TRACE_FILE_OFF;
    return load_acquire(trace_file.state); /* pairs with trace_file_set_state */
}
void trace_file_set_state(uint32_t state);

/* In whole steps, and not later than it is: finer times would be a third of a compressed trace. */
uint64_t trace_file_now_ns(void);

/* The order of an event: after the block is there, before it is gone. */
inline_always uint64_t trace_file_order(void) { return alone_or_count(&trace_file.order.value); }

/* A mapped chunk, zero, and the least order that its events can have. NULL: the trace is over. */
struct trace_chunk *trace_file_chunk(uint64_t *first_order);
void trace_file_unmap(struct trace_chunk *chunk); /* NULL is ignored */

/* Says in the header how it ended; the first one counts. */
void trace_file_end(uint32_t state, uint32_t reason);

#endif
