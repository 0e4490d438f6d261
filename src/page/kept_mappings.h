/* Kept mappings: those of freed huge blocks, for the next ones, above all for blocks that grow.
 *
 * The mapping of a freed huge block is kept as a *range*, whole or, if the block had grown, as much
 * of it as may be kept: to make a mapping and fault it in costs many times more than to fill it
 * (decision 24). The next growing block takes the front of a range. The rest stays a range right
 * behind the block, into which the block grows further without a system call.
 *
 * Kept mappings do not make a process larger than it was:
 *   kept pages + free dirty pages <= the cap (state.h), or the pages in use where these are more
 *
 * Before the process grows beyond its peak, kept mappings are unmapped (limits_heed_growth). They
 * are also unmapped when a decay interval has passed in which no block took from them, under memory
 * pressure, near a limit, when the system refuses memory, and by a trim. The end of the shortest
 * range is unmapped first, so that the others stay long.
 *
 * A range is a span with the tag SPAN_KEPT. The page map has its first page: so a second free is
 * detected, and readers outside the process find the range. Its states change under the page lock:
 *   none   -> whole    a huge block was freed
 *   whole  -> behind   a block took its front
 *   behind -> whole    that block was freed; the range is part of what it leaves
 *   any    -> none     taken to its end, or unmapped
 * Threads: any, no lock held. While another thread forks, no mapping is kept and none is
 * taken. A child of fork has the ranges of its parent. Hardened builds keep none, because a block
 * there has to end at the end of its mapping. */
#ifndef CAIRN_PAGE_KEPT_MAPPINGS_H
#define CAIRN_PAGE_KEPT_MAPPINGS_H

#include "base/atomic.h"
#include "page/state.h"

enum {
    KEPT_MAPPINGS_MAX = 64, /* ranges */
    /* the least pages of a whole range; a quarter of it is unmapped at once */
    KEPT_MAPPING_MIN_PAGES = 256,
};

enum { config_kept_mappings = !config_fences };

/* Approximate without the page lock. */
inline_always size_t kept_mapping_pages(void)
{
    return config_kept_mappings ? load_relaxed(&pages_state.kept_mapping_pages) : 0;
}

/* Keeps the mapping of a freed huge block, or a part of it, and unmaps the rest. The block is no
 * longer counted as huge.
 * Returns: false when the page lock is frozen; then nothing has changed. */
bool kept_mapping_put(struct span *span);

/* Adds all of the range right behind a block to the block. */
void kept_mapping_join(struct span *span);

/* Unmaps about `pages` pages of ranges, the shortest first, and returns their number. */
size_t kept_mapping_purge(size_t pages);

/* At the end of a decay interval: makes the ranges due from which no block has taken since the
 * interval before.
 * Returns: the swing of the kept pages in the ended interval, for cap_age. */
size_t kept_mapping_age(void);

/* Unmaps and counts about `pages` pages of ranges that are due until a block takes from them. */
size_t kept_mapping_decay(size_t pages);

/* Checks the ranges with assertions. Locking: page lock held. */
void kept_mapping_verify(void);

#endif
