/* Guarded blocks that were freed (guarded.c), in hardened builds.
 *
 * A freed block is trapped: its addresses stay taken and fault, until another freed block takes its
 * place among TRAP_COUNT, chosen at random. After that they serve a coming block of the same
 * length, so that its guards need not be made again, or go back; until then they go on to fault.
 * Its memory goes back, or is kept for a coming block, as far as the dirty cap and the decay allow:
 * it is moved to the addresses of that one and cleared there, which costs a fraction of faulting in
 * as many pages. Where addresses of the same length wait already it is moved there at once: they
 * are filled, do not fault any more, and the next block of that length needs no system call. What
 * was hardly used is not kept: clearing it would bring in pages that it never had.
 *
 * Threading: any thread, no lock held. The places of trapped spans are exchanged atomically;
 * whoever takes a span out of its place owns it.
 */
#ifndef CAIRN_PAGE_TRAPPED_H
#define CAIRN_PAGE_TRAPPED_H

#include "os/os.h"
#include "page/span.h"

/* A freed block, whose span is not counted any more. */
void trapped_add(struct span *span);

/* A freed block of so many pages whose time is over: its addresses, which still fault, between
 * guards of a page each, and have no memory. NULL if there is none. */
struct span *trapped_take_ready(size_t pages);

/* The same, but filled: they do not fault, and their memory is as the program left it. */
struct span *trapped_take_filled(size_t pages);

/* Gives all trapped addresses back; false when there were none. */
bool trapped_release(void);

/* Moves memory that was kept to new addresses, which are all of a block's. */
enum os_moved trapped_move(char *block, size_t size_bytes);

/* Pages of memory that is kept; gives up to so many back, and returns their number; what is due at
 * the end of a decay interval. */
extern hidden_data size_t trapped_kept; /* atomic */
size_t trapped_kept_pages(void);
size_t trapped_purge(size_t pages);
void trapped_tick(void);

/* Of the guard before the block, 0 where there are none. */
inline_always size_t guard_before(const struct span *span)
{
    return span->behind_bytes != 0 ? os_page_size() : 0;
}

#endif
