// Blocks of sites that a policy names: served by Cairn's allocators (sites.c), or, in the player
// without them, refused (no_sites.c).
#ifndef REPLAY_SITES_H
#define REPLAY_SITES_H

#include "player.h"

// With the option sites_by_malloc the blocks come from malloc, and all else that is done for them
// is the same: what two runs then differ by is the allocators alone.

struct site_block {
    uint32_t policy, slot;
    uint32_t owner;  // the thread that allocated it
    uint32_t thread; // that calls
    uint64_t size;
    unsigned align_log2;
    bool zero;
};

struct site_state *sites_make(const struct player *player);
void sites_end(struct player *player);

// The block is touched as the player's options have it. False: no memory.
bool sites_allocate(struct site_state *sites, const struct site_block *block, void **place);
void *sites_resize(struct site_state *sites, const struct site_block *block, void *pointer,
                   uint64_t before);

// Reads the block as the options have it, and clears its place.
void sites_free(struct site_state *sites, const struct site_block *block, void **place);

// The thread has played all its records: what is its own goes.
void sites_end_thread(struct site_state *sites, uint32_t thread);

// A line for each policy, at the end: blocks that its allocator served, and that went elsewhere.
void sites_print(const struct player *player);

#endif
