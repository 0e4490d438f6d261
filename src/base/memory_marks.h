/* Telling the memory checkers what the program may touch: AddressSanitizer's poison and Valgrind's
 * client requests.
 *
 * Both are found at run time, so one build of the library serves programs with and without them:
 * AddressSanitizer by its runtime's symbols, which are weak references here; Valgrind by its
 * request sequence, which is a no-op on the processor. An allocator asks memory_marks_active() when
 * it is made and then takes its checked way; nothing of this is on a fast path.
 *
 * Threading: any thread; the answer never changes while the process lives.
 */
#ifndef CAIRN_BASE_MEMORY_MARKS_H
#define CAIRN_BASE_MEMORY_MARKS_H

#include "base/compiler.h"

/* Whether a checker is there to be told. */
bool memory_marks_active(void);

/* Any access is an error from now on. */
void mark_inaccessible(const void *start, size_t size_bytes);
/* May be written; reading it before is an error to Valgrind. */
void mark_undefined(const void *start, size_t size_bytes);
/* May be read and written: also for memory that goes back to where it came from. */
void mark_defined(const void *start, size_t size_bytes);

#endif
