/* Whether the heap is dense where it grows: whether the program has taken what was added last.
 *
 * Known without a system call: a slab hands out its blocks from its start, and its `limit` counts
 * them. Blocks of at most a page are touched in every page of theirs. Of longer ones, and of runs,
 * nobody knows whether the program fills them, so they count as if it did not.
 *
 * Threading: any thread, no lock. Spans may come and go meanwhile: of their headers only `tag` and
 * `limit` are read, atomically; and whatever a span is by then, what lies in these words is stored
 * atomically, the fields that share the second one too (`resident` is of builds that do not ask). A
 * span that has become another since the page map led to it is counted wrong, for no more than its
 * pages.
 */
#ifndef CAIRN_PAGE_DENSE_H
#define CAIRN_PAGE_DENSE_H

#include "base/compiler.h"

/* Longer ones are not noted: they were made for one long run. */
enum { DENSE_GROWTH_MOST = (1 << 12) - 1 };

/* The heap grew by these pages. */
void dense_note_growth(const char *start, size_t pages);

/* Whether most of what it grew by the last two times is touched. Two, since the last one alone may
 * lie in slabs that have just begun. */
bool dense_is_filled(void);

#endif
