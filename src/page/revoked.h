/* Freed guarded blocks (guarded.c), in builds with config_guarded_blocks.
 *
 * A freed block is *revoked*: its addresses stay reserved and fault. It takes a place among
 * REVOKED_COUNT, chosen at random. When another freed block replaces it there, its addresses become
 * *ready*: they still fault, and serve the next block of that length, so that its guards need not
 * be made again. Addresses that still have memory, are long, or have other guards than one page on
 * each side are unmapped instead.
 *
 * The memory of a freed block is purged, or kept for another block as far as the dirty cap and the
 * decay allow. Kept memory is moved to the addresses of a new block and cleared there, which costs
 * a fraction of the page faults for new memory. If ready addresses of the freed block's length
 * exist, its memory is moved there at once. Ready addresses with memory are *backed*: they do not
 * fault, and the next block of that length needs no system call. If the memory was hardly used, the
 * next block purges it instead, because clearing would make pages resident that it never had.
 * Threads: any, no lock held. The places are words that are exchanged atomically. A
 * thread that takes a span out of its place owns it. */
#ifndef CAIRN_PAGE_REVOKED_H
#define CAIRN_PAGE_REVOKED_H

#include "os/memory.h"
#include "page/span.h"

/* Revokes the access to a freed block. Its span is no longer counted in pages_state. */
void revoked_add(struct span *span);

/* Takes ready addresses for `pages` pages, between guards of a page each. If `backed`, they do not
 * fault, and their memory has the content of an earlier block; else they fault and have no memory.
 * Returns: NULL if there are none. */
struct span *revoked_take(size_t pages, bool backed);

/* Unmaps all revoked and ready addresses. Returns: false when there were none. */
bool revoked_release(void);

/* Moves kept memory to all of the `size_bytes` at `block`, the addresses of a new block.
 * Returns: OS_KEPT when no kept memory fits or it could not be moved; OS_LOST when the addresses of
 * `block` are lost. */
enum os_moved revoked_move(char *block, size_t size_bytes);

extern hidden_data size_t revoked_memory_pages; /* atomic */

/* Purges about `pages` pages of kept memory. Returns: the number of purged pages. */
size_t revoked_purge(size_t pages);

/* At the end of a decay interval: purges the kept memory that the interval did not need. */
void revoked_decay(void);

/* The size of the guard before a block, 0 if it has no guards. */
inline_always size_t guard_before(const struct span *span)
{
    return span->behind_pages != 0 ? os_page_size() : 0;
}

#endif
