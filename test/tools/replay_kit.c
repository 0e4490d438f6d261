/* Implements replay_kit.h: the events become a replay program, which the player runs in this
 * process. */
#include "replay_kit.h"

#include <player.h>
#include <prepare.h>

static struct prepare prepare;
static struct site_policies read_policies;

void kit_begin(const char *path, const char *policies)
{
    if (policies)
        site_policies_read(&read_policies, policies);
    prepare_start(&prepare, path, policies ? &read_policies : NULL);
}

void kit_add(const struct kit_event *event)
{
    prepare_event(&prepare,
                  &(struct replay_event){.operation = (enum replay_operation)event->operation,
                                         .thread = event->thread,
                                         .address = event->address,
                                         .size = event->size,
                                         .stack = event->stack,
                                         .align_log2 = event->align_log2,
                                         .zeroed = event->zeroed != 0});
}

struct kit_program kit_finish(void)
{
    prepare_finish(&prepare);
    site_policies_end(&read_policies);
    const struct program_header *header = &prepare.streams.header;
    return (struct kit_program){.events = header->events,
                                .slots = header->slots,
                                .windows = header->windows,
                                .waits = header->waits,
                                .peak_live_bytes = header->peak_live_bytes,
                                .end_live_bytes = header->end_live_bytes,
                                .unknown = header->unknown_frees,
                                .lost = header->lost_events,
                                .bytes = header->file_bytes,
                                .threads = header->threads};
}

static struct kit_result play(const struct player_options *options)
{
    static struct player player;
    struct player_result result;
    player_open(&player, options);
    player_play(&player, &result);
    struct kit_result kit = {.start_bytes = result.start_resident_bytes,
                             .peak_bytes = result.peak_resident_bytes,
                             .samples = player.samples_made,
                             .events = player.header.events,
                             .cpu_ns = result.cpu_ns};
    player_close(&player);
    return kit;
}

struct kit_result kit_play(const char *path, int empty, uint32_t samples)
{
    struct player_options options = {.path = path, .empty = empty != 0, .samples = samples};
    return play(&options);
}

struct kit_result kit_play_with_work(const char *path, int in_line, uint32_t work_ns)
{
    struct player_options options = {.path = path,
                                     .touch = TOUCH_FILL,
                                     .work = in_line ? WORK_IN_LINE : WORK_PARALLEL,
                                     .work_ns = work_ns};
    return play(&options);
}

struct kit_result kit_play_by_malloc(const char *path)
{
    struct player_options options = {.path = path, .sites_by_malloc = true, .touch = TOUCH_FILL};
    return play(&options);
}
