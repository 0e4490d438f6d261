// cairn-replay plays a replay program once on the malloc of the process, and prints the cost.
//
//   cairn-replay [--empty] [--sites-by-malloc] [--site N]
//                [--touch pages|filled|zeroed|first|nothing] [--work-parallel NS]
//                [--work-in-line NS] [--samples N] [--output FILE] PROGRAM
//
// --empty plays it without an allocator, to measure the player itself. --sites-by-malloc is the
// reference for a run of the same program with sites on other allocators. --site keeps the sites of
// the Nth policy on their allocator, and those of all other policies on malloc. --work-… works for
// NS nanoseconds before each record (work.h).
//
// Output: one line of key=value words, and one line for each sample: window, time in ns, resident
// bytes.
#include "player.h"

#include "sites.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const touches[] = {
    [TOUCH_PAGES] = "pages", [TOUCH_FILL] = "filled",     [TOUCH_ZEROED] = "zeroed",
    [TOUCH_FIRST] = "first", [TOUCH_NOTHING] = "nothing",
};

static bool parse_touch(const char *text, struct player_options *options)
{
    for (size_t at = 0; at < sizeof touches / sizeof *touches; at++)
        if (strcmp(text, touches[at]) == 0) {
            options->touch = (enum player_touch)at;
            return true;
        }
    return false;
}

static bool parse_work(const char *text, struct player_options *options)
{
    if (strcmp(text, "--work-parallel") == 0)
        options->work = WORK_PARALLEL;
    else if (strcmp(text, "--work-in-line") == 0)
        options->work = WORK_IN_LINE;
    else
        return false;
    return true;
}

// Writes the output to the file instead of the standard output.
static void send_output(const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (file < 0 || dup2(file, STDOUT_FILENO) < 0)
        player_fail("cannot write %s: %s", path, strerror(errno));
    close(file);
}

static bool parse_arguments(int argc, char **argv, struct player_options *options)
{
    int at = 1;
    for (; at < argc - 1; at++) {
        if (strcmp(argv[at], "--empty") == 0)
            options->empty = true;
        else if (strcmp(argv[at], "--sites-by-malloc") == 0)
            options->sites_by_malloc = true;
        else if (strcmp(argv[at], "--site") == 0)
            options->site = (uint32_t)strtoul(argv[++at], NULL, 10);
        else if (strcmp(argv[at], "--touch") == 0 && parse_touch(argv[at + 1], options))
            at++;
        else if (parse_work(argv[at], options))
            options->work_ns = (uint32_t)strtoul(argv[++at], NULL, 10);
        else if (strcmp(argv[at], "--samples") == 0)
            options->samples = (uint32_t)strtoul(argv[++at], NULL, 10);
        else if (strcmp(argv[at], "--output") == 0)
            send_output(argv[++at]);
        else
            return false;
    }
    options->path = at < argc ? argv[at] : NULL;
    return options->path != NULL;
}

// Prints without stdio, which would allocate.
static void print_result(const struct player *player, const struct player_result *result)
{
    dprintf(1,
            "wall_ns=%llu cpu_ns=%llu wait_ns=%llu start_bytes=%llu peak_bytes=%llu end_bytes=%llu "
            "minor_faults=%llu events=%llu threads=%u\n",
            (unsigned long long)result->wall_ns, (unsigned long long)result->cpu_ns,
            (unsigned long long)result->wait_ns, (unsigned long long)result->start_resident_bytes,
            (unsigned long long)result->peak_resident_bytes,
            (unsigned long long)result->end_resident_bytes,
            (unsigned long long)result->minor_faults, (unsigned long long)player->header.events,
            player->header.threads);
    for (uint64_t at = 0; at < player->samples_made; at++) {
        const struct player_sample *sample = &player->samples[at];
        dprintf(1, "sample %llu %llu %llu\n", (unsigned long long)sample->window,
                (unsigned long long)sample->time_ns, (unsigned long long)sample->resident_bytes);
    }
}

int main(int argc, char **argv)
{
    static struct player player;
    struct player_options options = {0};
    struct player_result result;
    if (!parse_arguments(argc, argv, &options)) {
        fputs(
            "usage: cairn-replay [--empty] [--sites-by-malloc] [--site N] "
            "[--touch pages|filled|zeroed|first|nothing] [--work-parallel NS] [--work-in-line NS] "
            "[--samples N] [--output FILE] PROGRAM\n",
            stderr);
        return 2;
    }
    player_open(&player, &options);
    player_play(&player, &result);
    print_result(&player, &result);
    sites_print(&player);
    player_close(&player);
    return 0;
}
