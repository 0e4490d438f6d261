/* Metadata memory: small pieces that are never given back, in mappings of their own between fences.
 *
 * There are two kinds: hot memory for heaps, bitmaps and headers without a cold area, and cold
 * memory for the headers of slabs with their cold areas. Most link bytes are not touched until
 * blocks of the slab are freed. Pieces are dense and zero. meta_take aligns them to two cache
 * lines, because processors fetch lines in pairs and two threads would otherwise compete for a
 * pair.
 * Threads: any. Lock-free, so it works in any state of a fork. */
#ifndef CAIRN_PAGE_META_H
#define CAIRN_PAGE_META_H

#include "base/compiler.h"

/* Fences: guard pages between the parts of the address space, and the places of those parts.
 *
 * A fence is a page without permissions. In all builds there is one before and one behind each
 * arena, each range of metadata and each leaf of the page map. So a linear overflow of a block, of
 * any length, ends before it reaches one of these. Fences are reserved together with the range
 * between them, so they cost no system call; next to memory that is reserved without permissions
 * they do not even cost a mapping of the kernel. Where the kernel refuses to protect pages, there
 * are no fences. Hardened builds have fences within arenas, too: see grow.c.
 * Threads: any, no lock held. */

/* Reserves addresses without permissions, between fences, for an arena or for metadata. Metadata is
 * before the arenas and so before the blocks in core files. Both begin at random places. In
 * hardened builds each arena has a random place of its own.
 * Returns: NULL when out of addresses. */
char *fenced_reserve(size_t size_bytes, bool for_arena);

/* Reserves addresses without permissions for an arena, between fences, that begin at a multiple of
 * the alignment. If there are too few addresses for that, they begin at any page.
 * Returns: NULL when out of addresses. */
char *fenced_reserve_aligned(size_t size_bytes, size_t alignment_bytes);

/* Unmaps a range of fenced_reserve or fenced_reserve_aligned, with its fences. */
void fenced_unmap(char *start, size_t size_bytes);

enum meta_kind { META_HOT, META_COLD, META_KINDS };

/* Takes a piece, aligned to two cache lines. Returns: NULL when out of memory. */
void *meta_take(enum meta_kind kind, size_t size_bytes);

/* Sets the function that provides pages, zero and between fences, when the system provides none.
 * The arenas provide it, and they need metadata themselves. The function returns NULL when it has
 * no pages. Before this call a refusal of the system is final. */
void meta_start(char *(*steal_pages)(size_t size_bytes));

/* atomic: address space in use for metadata */
extern hidden_data size_t meta_total_bytes;

enum { META_CHUNK_BYTES = 256 * 1024 }; /* the longest chunk, except for larger pieces */

#endif
