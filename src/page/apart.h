/* Runs that are taken while the page lock is frozen for a fork: each has a mapping of its own.
 * Threading: any thread, no lock held.
 */
#ifndef CAIRN_PAGE_APART_H
#define CAIRN_PAGE_APART_H

#include "page/span.h"

/* As detached_take; NULL also when the hard limit refuses. */
struct span *apart_take(size_t pages, size_t alignment_bytes, unsigned cold_64,
                        size_t covered_bytes);

/* Once it has its tag: for apart_each. Those for which there is no place are missed by statistics,
 * and in the child of a fork. */
void apart_add(struct span *span);

/* A list of them, linked by `next`, that were given back. */
void apart_give(struct span *span);

bool apart_each(span_visit *visit, void *context);

#endif
