/* Room behind a block that grows, a thread's own.
 *
 * Programs grow one buffer after another: a string, a line, a table. Each step that moves it is a
 * copy, and each step that takes or gives pages comes to the page lock. So a block that has to move
 * while it grows, to more than a page, becomes the front of a run with room behind it. It grows
 * into that by one compare-and-swap, and when it is freed, both are kept for the next one.
 *
 * The room belongs to no span and has no entry in the page map: like pages in transit, walks pass
 * it page by page. A kept run is a span with the tag SPAN_KEPT, as the freed block was: a second
 * free dies. One word says what there is:
 *
 *   0        nothing
 *   a span   a kept run
 *   HELD     the room behind a block in use: its length, and its first address
 *
 * with AGED once an aging has seen it.
 */
/* clang-format off */
/*   0 -> HELD        owner: a run was taken, or cut
 *   HELD -> HELD     owner: the block before it grew
 *   HELD -> 0        owner: likewise, to the end; or the room became the block's
 *   0 -> a span      owner: a block that had grown was freed
 *   a span -> 0      owner: to cut it
 *   any -> AGED      any thread, once a decay interval
 *   any -> 0         any thread: it goes to the pages
 */
/* clang-format on */
/* All but those from 0 are exchanges: whoever made one has what the word named. Only the owner
 * changes 0, so a store will do. The block before the room may be freed by any thread, and its
 * pages be another one's then: whatever block ends where the room begins may have it.
 *
 * There is one such run a heap, of at most GROWTH_MOST_PAGES. It is kept with the other runs, and
 * goes with them (run_cache.h). Other blocks that grow move as before; so do those of hardened
 * builds, and all while somebody watches.
 */
#ifndef CAIRN_HEAP_GROWTH_H
#define CAIRN_HEAP_GROWTH_H

#include "page/page.h"

enum {
    GROWTH_LEAST_BYTES = PAGE_BYTES,     /* of a block in it, and one more */
    GROWTH_MAKES_BYTES = 2 * PAGE_BYTES, /* likewise, of one for which a run is taken */
    GROWTH_NEW_PAGES = 16,               /* of such a run */
    GROWTH_MOST_PAGES = 256,             /* of a kept one */
    GROWTH_WASTE = 4,                    /* at most so a part of a block that moves into it */
};

enum { config_growth = !config_hardened };

/* A block of so many pages, the front of the kept run; NULL when none is kept, or it is too short.
 * Its content is anything. The owner's, as all but the last two. */
struct span *growth_take(uintptr_t *growth, size_t pages);

/* The block of an arena's run keeps so many pages, the rest becomes room: there is none yet. */
void growth_cut(uintptr_t *growth, struct span *span, size_t pages);

/* The block grows to so many pages; false when there is not so much room right behind it. */
bool growth_extend(uintptr_t *growth, struct span *span, size_t pages);

/* The room right behind the block becomes the block's. Whether there was any. */
bool growth_join(uintptr_t *growth, struct span *span);

/* Whether there is a kept run, which no block is before. */
bool growth_is_kept(const uintptr_t *growth);

/* Keeps a block that had grown and was freed. The room behind it is its in any case. */
bool growth_put(uintptr_t *growth, struct span *span);

/* Gives it to the pages, and returns whether there was something; ages it, and gives it when it was
 * aged before. Any thread. */
bool growth_empty(uintptr_t *growth);
void growth_age(uintptr_t *growth);

#endif
