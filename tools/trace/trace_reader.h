// Reads a trace (docs/dev/TRACE-FORMAT.md): its events in the order in which they happened in
// all threads, and their stacks and lines of text. The reader makes one pass in bounded memory: the
// chunks that grew at the same time, and 16 bytes for each frame that no earlier stack had.
//
//   char *error;
//   struct trace *trace = trace_open("program.trace", &error);
//   struct trace_event event;
//   while (trace_next(trace, &event))
//       …
//   if (trace_error(trace)) …
//   trace_close(trace);
//
// Both forms of the format are read; the second one takes up to 70 MB for its predictions. A file
// compressed by zstd or gzip is read through these programs. Nothing here ends the process except
// the lack of memory.
//
// Threads: one at a time for each trace.
#ifndef CAIRN_TOOLS_TRACE_READER_H
#define CAIRN_TOOLS_TRACE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <watch/trace_format.h>

struct trace;

struct trace_event {
    uint64_t order;         // unique and growing, with gaps
    uint64_t time_ns;       // CLOCK_MONOTONIC; the header has its start
    uint64_t address;       // address of the block
    uint64_t old_address;   // TRACE_RESIZE_TO, TRACE_RESIZE_FAILED: that of TRACE_RESIZE_FROM
    uint64_t size;          // requested; 0 for TRACE_FREE, TRACE_RESIZE_FROM, TRACE_RESIZE_FAILED
    uint32_t thread;        // number in the trace, from 1
    uint32_t stack;         // 0: none
    uint8_t operation;      // never TRACE_ALLOCATE_OTHERWISE, which becomes TRACE_ALLOCATE
    uint8_t alignment_log2; // of TRACE_ALLOCATE; 0: none requested
    bool zeroed;            // of TRACE_ALLOCATE: calloc
};

// Opens a trace. Returns: NULL on failure, with *error set to a message to be freed.
struct trace *trace_open(const char *path, char **error);
void trace_close(struct trace *trace); // NULL is ignored

const struct trace_header *trace_head(const struct trace *trace); // as it was at the opening

// Reads the next event. Returns: false at the end, and when the file is damaged: see trace_error().
bool trace_next(struct trace *trace, struct trace_event *event);

// Reads several events. Returns: their number, less than `most` only at the end.
size_t trace_read(struct trace *trace, struct trace_event *events, size_t most);

// Returns: a description of the damage, or NULL.
const char *trace_error(const struct trace *trace);

// Copies the frames of a stack that an event has named: return addresses, innermost first. `*cut`,
// unless NULL, is set when outer frames are missing. Returns: their number, at most TRACE_DEPTH.
unsigned trace_stack(const struct trace *trace, uint32_t number, uint64_t frames[TRACE_DEPTH],
                     bool *cut);

uint32_t trace_stack_count(const struct trace *trace);                // largest number read
uint32_t trace_thread_count(const struct trace *trace);               // largest number read
uint32_t trace_thread_id(const struct trace *trace, uint32_t thread); // kernel's number; 0: unknown

// Returns: the lines of text read so far, each ended by "\n", and a zero byte at the end.
const char *trace_text(const struct trace *trace);

uint64_t trace_bytes(const struct trace *trace); // encoded bytes of the events read so far

#endif
