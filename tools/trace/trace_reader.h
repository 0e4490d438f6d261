// Reads a trace (docs/TRACE-FORMAT.md): its events in the order in which they happened, over all
// threads, and the stacks and lines that they need. One pass, in bounded memory: the chunks that
// grow at a time, and 16 bytes for each frame that no stack had before.
//
//   char *error;
//   struct trace *trace = trace_open("program.trace", &error);
//   struct trace_event event;
//   while (trace_next(trace, &event))
//       …
//   if (trace_error(trace)) …
//   trace_close(trace);
//
// Both forms of the format are read; the second one takes 70 MB at most for what it expects. A file
// that zstd or gzip has compressed is read through these programs. Nothing here ends the
// process but the lack of memory. A trace is one thread's at a time.
#ifndef CAIRN_TOOLS_TRACE_READER_H
#define CAIRN_TOOLS_TRACE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <watch/trace_format.h>

struct trace;

struct trace_event {
    uint64_t order;         // unique, grows; with gaps
    uint64_t time_ns;       // CLOCK_MONOTONIC; the header has its start
    uint64_t address;       // of the block; TRACE_RESIZE_FAILED: where it still is
    uint64_t old_address;   // TRACE_RESIZE_TO, TRACE_RESIZE_FAILED: of the TRACE_RESIZE_FROM before
    uint64_t size;          // asked for; 0 of TRACE_FREE, TRACE_RESIZE_FROM, TRACE_RESIZE_FAILED
    uint32_t thread;        // the trace's number, from 1
    uint32_t stack;         // 0: none
    uint8_t operation;      // TRACE_ALLOCATE, never TRACE_ALLOCATE_OTHERWISE, and the others
    uint8_t alignment_log2; // TRACE_ALLOCATE; 0: none was asked for
    bool zeroed;            // TRACE_ALLOCATE: calloc
};

// NULL when it cannot be read; then *error is a sentence, to be freed.
struct trace *trace_open(const char *path, char **error);
void trace_close(struct trace *trace); // NULL is ignored

const struct trace_header *trace_head(const struct trace *trace); // as it was when it was opened

// The next event. False at the end, and where the file is damaged: trace_error tells.
bool trace_next(struct trace *trace, struct trace_event *event);

// The same, many at once. How many; fewer than `most` at the end only.
size_t trace_read(struct trace *trace, struct trace_event *events, size_t most);

// A sentence, NULL when nothing is wrong.
const char *trace_error(const struct trace *trace);

// Frames of a stack that an event has named, return addresses, innermost first. Their number, at
// most TRACE_DEPTH. *cut, unless NULL: outer frames were left out.
unsigned trace_stack(const struct trace *trace, uint32_t number, uint64_t frames[TRACE_DEPTH],
                     bool *cut);

uint32_t trace_stack_count(const struct trace *trace);  // numbers up to this one were read
uint32_t trace_thread_count(const struct trace *trace); // likewise
uint32_t trace_thread_id(const struct trace *trace, uint32_t thread); // the kernel's; 0: not known

// The lines of text that were read up to now, each ended by "\n", and a zero byte at the end.
const char *trace_text(const struct trace *trace);

uint64_t trace_bytes(const struct trace *trace); // of events that were read, encoded

#endif
