// The player without Cairn's allocators: see sites.h.
#include "sites.h"

struct site_state *sites_make(const struct player *player)
{
    player_fail("%s has sites on other allocators, which cairn-replay-sites plays",
                player->options.path);
}

void sites_end(struct player *player) { (void)player; }

bool sites_allocate(struct site_state *sites, const struct site_block *block, void **place)
{
    (void)sites, (void)block, (void)place;
    return false;
}

void *sites_resize(struct site_state *sites, const struct site_block *block, void *pointer,
                   uint64_t before)
{
    (void)sites, (void)block, (void)pointer, (void)before;
    return NULL;
}

void sites_free(struct site_state *sites, const struct site_block *block, void **place)
{
    (void)sites, (void)block, (void)place;
}

void sites_end_thread(struct site_state *sites, uint32_t thread) { (void)sites, (void)thread; }

void sites_print(const struct player *player) { (void)player; }
