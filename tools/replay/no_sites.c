// The player without Cairn's allocators. sites.h describes the functions.
#include "sites.h"

struct site_state *sites_make(const struct player *player)
{
    player_fail("%s has sites on other allocators, which cairn-replay-sites plays",
                player->options.path);
}

void sites_end(struct player *player) { (void)player; }

bool sites_allocate(struct site_state *sites, struct site_record record, uint64_t size,
                    void **place)
{
    (void)sites, (void)record, (void)size, (void)place;
    return false;
}

bool sites_resize(struct site_state *sites, struct site_record record, uint64_t size,
                  uint64_t before, void **place)
{
    (void)sites, (void)record, (void)size, (void)before, (void)place;
    return false;
}

void sites_free(struct site_state *sites, struct site_record record, void **place)
{
    (void)sites, (void)record, (void)place;
}

void sites_end_thread(struct site_state *sites, uint32_t thread) { (void)sites, (void)thread; }

void sites_print(const struct player *player) { (void)player; }
