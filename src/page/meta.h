/* Metadata memory: small pieces that are never given back, from mappings that hold nothing else and
 * stand between inaccessible pages.
 *
 * Two regions: hot for heaps, bitmaps and headers without a cold area, and cold for those of slabs
 * with theirs. Most link bytes are not touched until blocks of the slab are freed.
 * Pieces are dense, zero, and aligned to two cache lines, because processors fetch lines in pairs
 * and two threads would take each other's. Lock-free, so it works in any state of a fork.
 */
#ifndef CAIRN_PAGE_META_H
#define CAIRN_PAGE_META_H

#include "base/compiler.h"

enum meta_kind { META_HOT, META_COLD, META_KINDS };

/* NULL when the system has no memory. */
void *meta_take(enum meta_kind kind, size_t size_bytes);

/* The same for small pieces, to single lines: one behind another of the calling thread's. */
void *meta_take_near(enum meta_kind kind, size_t size_bytes);

/* What gives fenced pages, zero, when the system gives none: a function of the arenas, which
 * themselves need metadata. NULL when it has none. Before this call a refusal is final. */
void meta_start(char *(*steal_pages)(size_t size_bytes));

/* In the child of a fork: other threads may have moved the cursors while the kernel copied page
 * after page. */
void meta_forget_chunks(void);

/* Address space in use for metadata. */
extern hidden_data size_t meta_total_bytes; /* atomic */
size_t meta_bytes(void);

enum { META_CHUNK_BYTES = 256 * 1024 }; /* the longest, but for larger pieces */

#endif
