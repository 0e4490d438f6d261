/* The persistent heap's files: see persist_files.c. 0 or a descriptor, or a negative errno. */
#ifndef CAIRN_REGION_PERSIST_FILES_H
#define CAIRN_REGION_PERSIST_FILES_H

#include "region/persist_heap.h"

/* The heap's file, locked; made with so many bytes of data if there is none and options say so. */
int files_open(const char *path, const struct cairn_persist_options *options, size_t data_bytes);

/* The segments' files: those that are there after a crash, else new ones; none for reading a heap
 * that was closed. */
int files_open_logs(struct cairn_persist *heap, const char **why);
void files_remove_logs(const struct cairn_persist *heap);
void files_close(struct cairn_persist *heap);

#endif
