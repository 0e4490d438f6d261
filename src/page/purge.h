/* Purging: returns free memory to the system by decay, above the cap, and on demand.
 *
 * Decay uses the low-water mark: the memory that stayed free and dirty through a whole decay
 * interval was not needed in it. This memory is due at the end of the interval. The threads that
 * call pages_tick purge it in parts. Memory that is freed and taken again within an interval is
 * left alone. This layer has no thread or signal for this. So a process without calls of pages_tick
 * keeps its free memory: at most the cap, or as much as it has in use, whichever is more.
 *
 * A span is out of the bins while its memory is purged: the system call needs no lock.
 *
 * The system may refuse a part of a span: locked pages (mlock), and system pages of which another
 * span uses a part. All other pages are purged, of this span and of the other ones. Under mlockall
 * nothing can be purged, and a purge ends after some refusals.
 * Threads: any, no lock held. */
#ifndef CAIRN_PAGE_PURGE_H
#define CAIRN_PAGE_PURGE_H

#include "page/span.h"

struct page_shard;

/* The bounds of the calls that purge. Memory pressure, a limit and a trim have none.
 *
 * A call purges PURGE_STEP_PAGES of the due memory, or as much for each millisecond since the last
 * purge of a part if that is more, for PURGE_MAX_US at most. The next call continues. So
 * the time of a call does not depend on the size of the heap: 2 MiB where calls are frequent,
 * 256 MiB after a pause. Either way 1 GiB is returned within half a second, or with four calls.
 *
 * A give purges at most twice its own pages and PURGE_STEP_PAGES to stay below the cap. It moves
 * its pages from the used memory, which is a limit of the free memory, to the free memory. So free
 * memory that was below the cap before is below it afterwards. */
enum {
    PURGE_STEP_PAGES = (2 << 20) >> PAGE_SHIFT,
    PURGE_MAX_US = 128000,
};

/* Purges dirty pages until at least `pages` are purged, of this thread's own shard first, and of
 * its longest span. Of the last span only the end is purged, because the end is handed out last.
 * Returns: the number of purged pages. */
size_t purge_pages(size_t pages);

/* Purges free memory and kept mappings above the cap, if the shard has told its counts since a
 * call found them below. Called after `pages` pages were given back to the shard.
 * Cost: bounded, see PURGE_STEP_PAGES. */
void purge_excess(struct page_shard *shard, size_t pages);

/* The number of dirty pages that are kept outside the arenas: kept mappings, or the memory of
 * revoked blocks in builds with config_guarded_blocks. */
size_t pages_kept_outside(void);

/* Purges about `pages` of the pages that are kept outside the arenas, and returns their number. */
size_t purge_outside(size_t pages);

#endif
