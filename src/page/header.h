/* Headers of spans that nobody uses.
 *
 * A header has its cold area right behind it, so headers are recycled by its size. They lie
 * densely: one that was never used has cost no memory.
 */
#ifndef CAIRN_PAGE_HEADER_H
#define CAIRN_PAGE_HEADER_H

#include "page/span.h"

/* By the size of the cold area. Page lock; pop gives NULL when there is none. */
struct span *header_pop(unsigned cold_64);
void header_push(struct span *span);

/* A new one; NULL when memory is out. Any thread. */
struct span *header_make(unsigned cold_64);

/* One that was pushed, or a new one. No lock held. */
struct span *header_take(unsigned cold_64);

#endif
