/* Giving memory back: by decay, above the cap, and on demand.
 *
 * Decay follows the low-water mark: what stayed free and dirty through a whole interval was not
 * needed in it and is purged at its end, by whichever thread passes next; a working set that comes
 * and goes faster is left alone. No thread or signal of our own; an idle process keeps at most the
 * cap.
 *
 * And by growth (bound.h): where short runs would count for more than ever before, as many free
 * pages go back, so that a process holds what it needs at once, and not beside it what was too
 * short.
 *
 * A span leaves the bins while its memory is purged, so the system call is made without the lock.
 *
 * Not all of a span may go: the system refuses locked pages (mlock), and where its pages are larger
 * than ours one that others use a part of stays. What can go goes, of that span and of all others.
 * Under mlockall nothing can, and a purge ends after some refusals.
 */
#ifndef CAIRN_PAGE_PURGE_H
#define CAIRN_PAGE_PURGE_H

#include "base/compiler.h"

/* Purges up to `pages` dirty pages, the longest spans first. No lock held. Returns the number
 * purged. */
size_t purge_pages(size_t pages);

/* The same, but of the last one no more than is needed: of its end, which is handed out last. */
size_t purge_pages_exactly(size_t pages);

/* Purges what is above the cap; for the end of a give. No lock held. */
void purge_excess(void);

/* The same of what is kept outside the arenas, which is dirty, too: room, or trapped blocks where
 * the build has those. */
size_t pages_kept_outside(void);
size_t purge_outside(size_t pages);

#endif
