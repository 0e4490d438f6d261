// cairn-persist examines the file of a persistent heap, for `cairn persist`. persist_tool.c has the
// arguments and the error messages, persist_look.c info, check and dump, persist_compact.c compact.
//
// Output: lines of words separated by tabs. The first word is the kind of the line. Names and
// contents are in hexadecimal, so that none of their bytes can be a separator. Exit status: 0; 1
// when the heap is damaged, with a line `finding`; 2 on failure, with a sentence on stderr.
#ifndef CAIRN_TOOLS_PERSIST_TOOL_H
#define CAIRN_TOOLS_PERSIST_TOOL_H

#include <cairn/persist.h>
#include <stdnoreturn.h>
#include <sys/stat.h>

enum { STATUS_DAMAGED = 1, STATUS_FAILED = 2 };

// Ends the program with a sentence, followed by the text of `error` unless it is 0.
noreturn void fail(const char *sentence, int error);

// Opens the file, which must be a regular one. Ends the program with a sentence on failure.
int open_file(const char *path, int flags, struct stat *status);

// Opens the heap. Returns: NULL when it is damaged, with *finding.
cairn_persist *open_heap(const char *path, unsigned flags, const char **finding);

// The commands. Each returns the exit status.
int info(const char *path);
int check(const char *path);
int dump(const char *path, unsigned long bytes);
int compact(const char *path);

#endif
