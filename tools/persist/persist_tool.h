// cairn-persist: looks at the file of a persistent heap, for `cairn persist`. What stands where:
// persist_tool.c the arguments and how a failure is said, persist_look.c info, check and dump,
// persist_compact.c compact.
//
// Output: lines of words with tabs between, the first of which says what the line is of. Names and
// contents are in hexadecimal, so that no byte of them is taken for anything else. Exit status: 0;
// 1 the heap is damaged, with a line `finding`; 2 it could not be done, with a sentence on stderr.
#ifndef CAIRN_TOOLS_PERSIST_TOOL_H
#define CAIRN_TOOLS_PERSIST_TOOL_H

#include <cairn/persist.h>
#include <stdnoreturn.h>
#include <sys/stat.h>

enum { STATUS_DAMAGED = 1, STATUS_FAILED = 2 };

// Ends the program with a sentence. An error of 0: the sentence says all.
noreturn void fail(const char *sentence, int error);

// Opens the file itself, as a regular one; what else there is, is said in a sentence.
int open_file(const char *path, int flags, struct stat *status);

// Opens the heap; NULL when it is damaged, with *finding.
cairn_persist *open_heap(const char *path, unsigned flags, const char **finding);

// The commands; each returns the exit status.
int info(const char *path);
int check(const char *path);
int dump(const char *path, unsigned long bytes);
int compact(const char *path);

#endif
