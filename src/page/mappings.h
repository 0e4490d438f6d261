/* Spans outside the arenas, each in a mapping of its own:
 *   huge blocks    see page.h
 *   fork runs      runs that are taken while the locks are frozen for a fork
 *   void slabs     slabs for blocks of 0 bytes, in builds with config_zero_size_blocks
 *
 * The page map does not lead a walk to them, so fork runs and void slabs are also entered into
 * tables of a fixed length, for walks over all spans in use.
 *
 * A void slab is a range of addresses without permissions. Each of its pages is in the page map, so
 * that its slots are found, checked and freed like those of any slab, and an access to one faults.
 * A void slab costs only its header and its entries.
 * Threads: any, no lock held. A place of a table is taken and left by compare and swap. At any
 * time, and for ever in the child of a fork, a place may have a span that another thread was just
 * making or giving back, so a reader checks the tag. */
#ifndef CAIRN_PAGE_MAPPINGS_H
#define CAIRN_PAGE_MAPPINGS_H

#include "page/span.h"

/* Makes a fork run, zero and covered by the page map. The caller sets the tag and the entries. If
 * the table is full, statistics do not include the run, and walks do not visit it.
 * Returns: NULL when out of memory or above the hard limit. */
struct span *fork_run_take(size_t pages, size_t alignment_bytes, unsigned side_units);

void fork_run_give(struct span *span);

#endif
