/* Room for blocks that grow: the mappings that such blocks leave when they are freed.
 *
 * A block that grows beyond what an arena should hold becomes a mapping of its own. To make one, to
 * fault it in and to unmap it costs many times what it costs to fill it, and programs that grow one
 * block grow another. So the mapping of a freed one is kept as a range of room. The next block that
 * grows takes the front of a range, and what is left stays room right behind it, into which it
 * grows on without a system call.
 *
 *   a mapping = a block, a range of room, or a block and the range behind it
 *
 * What is kept does not make a process larger than it was:
 *
 *   room + free dirty pages <= the dirty cap, or what is in use where that is more
 *   counted pages <= the most that were counted while there was no room left to give (bound.h)
 *
 * So before anything grows beyond what there was, room goes back; and also when a decay interval
 * has passed over it, under pressure, near a limit, when the system refuses memory, and by a trim.
 * It goes from the end of a range, the shortest first, so that others stay long.
 *
 * A range is a span with the tag SPAN_KEPT, in the page map by its first page, as the freed block
 * was: a second free dies, and readers outside see it. Its states, all changes under the page lock:
 *
 *   none   -> whole    a block that had grown was freed
 *   whole  -> behind   a block took its front
 *   behind -> whole    that block was freed; the range is part of what it leaves
 *   any    -> none     taken to its end, or given back
 *
 * Threading: any thread, no lock held. While another thread forks nothing is kept and nothing
 * taken. A child of fork has its parent's room. Hardened builds keep none: there a block ends where
 * its mapping does.
 */
#ifndef CAIRN_PAGE_ROOM_H
#define CAIRN_PAGE_ROOM_H

#include "base/atomic.h"
#include "page/state.h"

enum {
    ROOM_MOST = 64,         /* ranges */
    ROOM_LEAST_PAGES = 256, /* of a whole range */
    ROOM_STEP_PAGES = 64,   /* given back at once, at least */
};

enum { config_room = !config_fences };

/* Pages of all ranges. A hint without the page lock. */
inline_always size_t room_pages(void)
{
    return config_room ? load_relaxed(&pages_state.room_pages) : 0;
}

/* Keeps a huge block's mapping, or as much of it as may be kept; the rest goes back. Its count goes
 * with it. False when the lock is not to be had: nothing has changed then. */
bool room_give(struct span *span);

/* A block of so many pages, in whole ones of the system's; NULL when no range is long enough. Its
 * content is anything, its pages are counted as huge ones. */
struct span *room_take(size_t pages);

/* The block grows to so many pages, of the room right behind it; false when that is too short. */
bool room_extend(struct span *span, size_t pages);

/* All of the room right behind the block becomes the block's. */
void room_join(struct span *span);

/* Gives up to so many pages back, or a few more, and returns their number; what is due at the end
 * of a decay interval. */
size_t room_purge(size_t pages);
void room_tick(void);

/* Asserts; page lock. */
void room_verify(void);

#endif
