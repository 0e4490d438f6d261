/* What is said of a pointer that is no block, and whether the process goes on.
 *
 * Misuse is reported and the process ends; after a wrong free it goes on, if the option on_error
 * says so. Then the caller leaves everything as it is. Hardened builds always end. After 100 such
 * reports wrong frees are only counted.
 */
#ifndef CAIRN_HEAP_REFUSE_H
#define CAIRN_HEAP_REFUSE_H

#include "heap/slab.h"

/* Misuse that changed nothing. Returns only after a free, and if on_error says so. */
void refuse(const char *operation, const char *format, ...) print_like(2, 3) cold;
/* What refuse does after its line. */
void refuse_reported(const char *operation);

/* What `operation` is to be done to is no block: finds out what it is. */
void refuse_pointer(const void *pointer, const char *operation) cold;

/* The block that `operation` is to be done to is free. */
void refuse_freed(const void *block, const struct span *slab, const char *operation);

/* The same, of so many bytes. */
void refuse_free_block(const void *block, size_t size_bytes, const char *operation) cold;

/* What on_error:report asks for. Before there are threads. */
void heap_go_on_after_wrong_frees(void);
size_t heap_count_wrong_frees(void); /* refused so far */

#endif
