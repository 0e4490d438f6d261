/* The checks of pointers that a caller claims to be blocks, and the reports of misuse.
 *
 * A checked_ function returns where a block in use is. Otherwise it finds out what the pointer is,
 * reports the misuse, and the process ends.
 *
 * With the option on_error:report the process continues after an invalid free, in builds without
 * hardening. Then the report returns, and the caller leaves the heap unchanged. After 100 reports
 * invalid frees are only counted. The text of each message is in docs/reference/MESSAGES.md.
 * Threads: any. A check of a block that another thread frees at that time may find it in use or
 * free. */
#ifndef CAIRN_HEAP_MISUSE_REPORT_H
#define CAIRN_HEAP_MISUSE_REPORT_H

#include "heap/slab.h"

/* Reports misuse that has changed nothing, in the words of `format`. Returns only after a free, and
 * only with on_error:report. */
void report_misuse(const char *operation, const char *format, ...) print_like(2, 3) cold;
/* Ends the process, or counts an invalid free and returns, after the report was written. */
void misuse_reported(const char *operation);

/* Finds out what the pointer is, which is no block in use, and reports misuse of `operation`. */
void report_bad_pointer(const void *pointer, const char *operation) cold;

/* Reports a free block of `size_bytes`. */
void report_free_block(const void *block, size_t size_bytes, const char *operation) cold;

/* Selects on_error:report: the process continues after invalid frees.
 * Threads: one, at the start. */
void heap_go_on_after_wrong_frees(void);
/* The number of invalid frees that were reported or counted. */
size_t heap_count_wrong_frees(void);

enum { SLOT_INVALID = UINT32_MAX };

/* The slot of a block in use within its slab, which is not packed.
 * Returns: SLOT_INVALID after the report of an invalid free. */
unsigned checked_slot(const void *pointer, struct span *slab, const char *operation);

/* The span of a block in use: slab, large or guarded.
 * Returns: NULL after the report of an invalid free. */
struct span *checked_span(const void *pointer, const char *operation);

#endif
