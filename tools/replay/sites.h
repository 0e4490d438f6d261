// Blocks of sites that a policy names: served by Cairn's allocators (sites.c), or, in the player
// without them, refused (no_sites.c).
#ifndef REPLAY_SITES_H
#define REPLAY_SITES_H

#include "player.h"

// With the option sites_by_malloc the blocks come from malloc, and all else that is done for them
// is the same: what two runs then differ by is the allocators alone.

// Of a record: its slot, the word `site` (program.h), and the thread that plays it.
struct site_record {
    uint32_t slot, thread;
    uint64_t site;
};

struct site_state *sites_make(const struct player *player);
void sites_end(struct player *player);

// The block is touched as the player's options have it. False: no memory.
bool sites_allocate(struct site_state *sites, struct site_record record, uint64_t size,
                    void **place);
bool sites_resize(struct site_state *sites, struct site_record record, uint64_t size,
                  uint64_t before, void **place);

// Clears the block's place.
void sites_free(struct site_state *sites, struct site_record record, void **place);

// The thread has played all its records: what is its own goes.
void sites_end_thread(struct site_state *sites, uint32_t thread);

// A line for each policy, at the end: blocks that its allocator served, and that went elsewhere.
void sites_print(const struct player *player);

#endif
