// The bytes of a trace file, plain or compressed. For trace_reader.c.
#ifndef CAIRN_TOOLS_TRACE_INPUT_H
#define CAIRN_TOOLS_TRACE_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct trace_input {
    int file;
    pid_t child; // who decompresses, 0: nobody
};

// NULL, or a sentence, to be freed.
char *input_open(struct trace_input *input, const char *path);
void input_close(struct trace_input *input);

// Fewer than `bytes` at the end of the file only; negative: an error number.
ssize_t input_read(struct trace_input *input, void *to, size_t bytes);

// A sentence made as by printf, to be freed.
char *sentence(const char *format, ...) __attribute__((format(printf, 1, 2)));
// realloc that never gives NULL.
void *more_memory(void *old, size_t bytes);

#endif
