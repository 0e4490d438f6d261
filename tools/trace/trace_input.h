// Reads the bytes of a trace file, plain or compressed, for trace_reader.c.
#ifndef CAIRN_TOOLS_TRACE_INPUT_H
#define CAIRN_TOOLS_TRACE_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct trace_input {
    int file;
    pid_t child;         // the decompressing process; 0: none
    uint64_t bytes_most; // the most bytes that the file can hold, decompressed
};

// Opens a trace file. Returns: NULL, or an error message to be freed.
char *input_open(struct trace_input *input, const char *path);
void input_close(struct trace_input *input);

// Reads bytes. Returns: their number, less than `bytes` only at the end of the file; a negative
// errno on failure.
ssize_t input_read(struct trace_input *input, void *to, size_t bytes);

// Returns: a message formatted as by printf, to be freed.
char *sentence(const char *format, ...) __attribute__((format(printf, 1, 2)));
// Like realloc, but ends the program when out of memory.
void *more_memory(void *old, size_t bytes);

#endif
