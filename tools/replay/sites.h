// Blocks of sites that a policy names. Cairn's allocators serve them (sites.c), or the player
// without these allocators refuses them (no_sites.c).
#ifndef REPLAY_SITES_H
#define REPLAY_SITES_H

#include "player.h"

// With the options sites_by_malloc and site, the blocks of all sites, or of all but one policy,
// come from malloc, and everything else is unchanged. So two such runs differ only by the
// allocators.

// A record's slot, its word `site` (program.h), and the thread that plays it.
struct site_record {
    uint32_t slot, thread;
    uint64_t site;
};

struct site_state *sites_make(const struct player *player);
void sites_end(struct player *player);

// Allocates a block and touches it according to the player's options. Returns: false when out of
// memory.
bool sites_allocate(struct site_state *sites, struct site_record record, uint64_t size,
                    void **place);
// Resizes a block and touches its new bytes. Returns: false when out of memory.
bool sites_resize(struct site_state *sites, struct site_record record, uint64_t size,
                  uint64_t before, void **place);

// Frees the block and sets its place to NULL.
void sites_free(struct site_state *sites, struct site_record record, void **place);

// Releases the thread's own state after its last record.
void sites_end_thread(struct site_state *sites, uint32_t thread);

// Prints a line for each policy: the blocks that its allocator served, and those that another
// served.
void sites_print(const struct player *player);

#endif
