/* Spans outside the arenas, each in a mapping of its own:
 *
 *   huge blocks    see page.h
 *   fork runs      runs that are taken while the locks are frozen for a fork
 *   void slabs     slabs for blocks of 0 bytes, in builds with config_zero_size_blocks
 *
 * The page map does not lead a walk to them, so fork runs and void slabs are also entered into
 * tables of a fixed length (struct span_table), for walks over all spans in use.
 *
 * A void slab is a range of addresses without permissions. Each of its pages is in the page map, so
 * that its slots are found, checked and freed like those of any slab, and an access to one faults.
 * A void slab costs only its header and its entries.
 *
 * Threads: any, no lock held. A place of a table is taken and left by compare and swap. At any
 * time, and for ever in the child of a fork, a place may have a span that another thread was just
 * making or giving back, so a reader checks the tag.
 */
#ifndef CAIRN_PAGE_MAPPINGS_H
#define CAIRN_PAGE_MAPPINGS_H

#include "page/span.h"

/* A table of spans in use, of fixed length. */
struct span_table {
    struct span **places; /* atomic: spans in use, else NULL */
    size_t count;         /* const: number of places */
};

/* Adds a span to a table in place of NULL, or removes one.
 * Returns: false when no place of the table has `before`. */
bool span_table_replace(const struct span_table *table, struct span *before, struct span *after);

/* Calls `visit` for each span in use in a table. */
void span_table_each(const struct span_table *table, span_visit *visit, void *context);

/* Makes a run in a mapping of its own, zero. The page map covers its first `covered_bytes`. The
 * caller sets the tag and the entries.
 * Returns: NULL when out of memory. */
struct span *mapping_take(size_t pages, size_t alignment_bytes, unsigned side_units,
                          size_t covered_bytes);

/* Unmaps the run of mapping_take and returns its header. */
void mapping_give(struct span *span);

/* Makes a fork run, like mapping_take, with all of it covered. If the table is full, statistics do
 * not include the run, and walks do not visit it.
 * Returns: NULL when out of memory or above the hard limit. */
struct span *fork_run_take(size_t pages, size_t alignment_bytes, unsigned side_units);

/* Unmaps a freed fork run. */
void fork_run_give(struct span *span);

#endif
