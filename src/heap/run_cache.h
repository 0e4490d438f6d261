/* Runs of pages that a thread freed just now, kept for its next large block of the same length: a
 * cycle of such blocks takes no lock.
 *
 * A place for each remainder of the length; a newcomer sends the one before it back to the pages.
 * A kept run is free to everybody: its second free dies, statistics and walks do not see it. The
 * places are exchanged atomically, so any thread may empty any cache: for trim, when memory is out,
 * and when a run has been kept through a whole decay interval, also by an idle thread.
 */
#ifndef CAIRN_HEAP_RUN_CACHE_H
#define CAIRN_HEAP_RUN_CACHE_H

#include "page/page.h"

enum { RUN_CACHE_PLACES = 8, RUN_CACHE_MAX_PAGES = 64 };

struct run_cache {
    uintptr_t places[RUN_CACHE_PLACES]; /* atomic: a span, 0 for none; low bit: seen by an aging */
    uint8_t pages[RUN_CACHE_PLACES];    /* owner: length of what it put there last */
    uint8_t puts;                       /* owner: counts, around */
};

/* A run of exactly so many pages; NULL when none is kept. The owner's. Its content is anything. */
struct span *run_cache_take(struct run_cache *cache, size_t pages);

/* Keeps a large block's run, or gives it to the pages; so also the run that was in its place. True
 * when it is time to ask what is due by age: always when a run went to the pages, and now and then.
 * The owner's. */
bool run_cache_put(struct run_cache *cache, struct span *span);

/* Gives everything that is kept to the pages, or what was kept since the aging before. Any thread.
 * Returns whether there was anything. */
bool run_cache_empty(struct run_cache *cache);
void run_cache_age(struct run_cache *cache);

#endif
