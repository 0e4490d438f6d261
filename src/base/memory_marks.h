/* Marks that tell memory checkers which memory the program may access: AddressSanitizer's poison
 * and Valgrind's client requests.
 *
 * Both are found at run time, so one build of the library serves programs with and without them.
 * The symbols of AddressSanitizer's runtime are weak references here. Valgrind's request sequence
 * has no effect on the processor. An allocator calls memory_marks_active() when it is made and then
 * uses its checked functions, so no fast path needs this.
 *
 * Threads: any. The answer never changes while the process lives.
 */
#ifndef CAIRN_BASE_MEMORY_MARKS_H
#define CAIRN_BASE_MEMORY_MARKS_H

#include "base/compiler.h"

/* Whether the process runs under a checker. */
bool memory_marks_active(void);

/* Marks memory as inaccessible: any access is an error. */
void mark_inaccessible(const void *start, size_t size_bytes);

/* Marks memory as writable. Valgrind reports reads before the first write. */
void mark_undefined(const void *start, size_t size_bytes);

/* Marks memory as readable and writable; also for memory that is returned to its source. */
void mark_defined(const void *start, size_t size_bytes);

#endif
