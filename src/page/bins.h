/* Free spans by length: segregated lists found through a bitmap, after TLSF.
 *
 * Lengths below 64 pages have a list each, longer ones share 16 lists a doubling. Two sets of
 * lists: spans with memory (dirty) and spans without (clean); memory that is there already is used
 * first. The caller holds the page lock.
 */
#ifndef CAIRN_PAGE_BINS_H
#define CAIRN_PAGE_BINS_H

#include "page/span.h"

void bins_insert(struct span *span);
void bins_remove(struct span *span);

/* A free span that holds `pages` pages at a multiple of `alignment_pages`, the best fit that a
 * bounded search finds; it stays in its list. NULL if none. */
struct span *bins_find(size_t pages, size_t alignment_pages);

/* One of the longest spans with memory, NULL if none has any. */
struct span *bins_longest_dirty(void);

/* For each span without memory; `look` may give it memory, and change no other. */
void bins_each_clean(void (*look)(struct span *span));

/* Asserts that lists and bitmaps agree; returns the number of pages in all lists. */
size_t bins_verify(void);

#endif
