// Reads the file of a replay program, and allocates the player's own memory.
#define _GNU_SOURCE // MAP_POPULATE
#include "player.h"

#include "sites.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TABLE_PIECE = 256 };

_Noreturn void player_fail(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text - 1, format, arguments);
    va_end(arguments);
    if (length < 0 || length > (int)sizeof text - 2)
        length = (int)sizeof text - 2;
    text[length] = '\n';
    // Without stdio and exit, because other threads may hold their locks.
    ssize_t written = write(STDERR_FILENO, "cairn-replay: ", 14);
    written += write(STDERR_FILENO, text, (size_t)length + 1);
    _exit(written > 0 ? 1 : 2);
}

_Noreturn void player_damaged(const struct player *player, const char *what)
{
    player_fail("%s: damaged replay program: %s; prepare it again", player->options.path, what);
}

void *player_memory(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED)
        player_fail("out of memory: %llu bytes for the player", (unsigned long long)bytes);
    return memory;
}

void player_read(const struct player *player, void *to, uint64_t bytes, uint64_t place)
{
    char *at = to;
    while (bytes) {
        ssize_t got = pread(player->file, at, bytes, (off_t)place);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            player_damaged(player, got < 0 ? strerror(errno) : "the file is truncated");
        at += got;
        bytes -= (uint64_t)got;
        place += (uint64_t)got;
    }
}

static void check_table(const struct player *player, uint64_t place, uint64_t count, uint64_t size)
{
    uint64_t end = player->header.file_bytes;
    if (place % 8 || place > end || count > (end - place) / size)
        player_damaged(player, "a table is outside the file");
}

static void read_header(struct player *player)
{
    struct program_header *header = &player->header;
    struct stat status;
    if (fstat(player->file, &status) != 0 || status.st_size < (off_t)sizeof *header)
        player_fail("%s is not a replay program", player->options.path);
    player_read(player, header, sizeof *header, 0);
    if (memcmp(header->magic, program_magic, sizeof program_magic) != 0)
        player_fail("%s is not a replay program", player->options.path);
    if (header->version != PROGRAM_VERSION)
        player_fail("%s is a replay program of version %u, this player reads version %d: prepare "
                    "it again",
                    player->options.path, header->version, PROGRAM_VERSION);
    if (header->file_bytes != (uint64_t)status.st_size)
        player_damaged(player, "the file is truncated");
    check_table(player, header->thread_table, header->threads, sizeof(struct program_thread));
    check_table(player, header->window_table, header->windows, sizeof(struct program_window));
    check_table(player, header->policy_table, header->policies, sizeof(struct program_policy));
    if (header->slots > UINT32_MAX || header->windows > UINT32_MAX - 2)
        player_damaged(player, "it has an invalid header");
}

static void read_windows(struct player *player)
{
    uint64_t windows = player->header.windows;
    struct program_window piece[TABLE_PIECE];
    player->remaining = player_memory((windows + 1) * sizeof *player->remaining);
    for (uint64_t at = 0; at < windows; at += TABLE_PIECE) {
        uint64_t count = windows - at < TABLE_PIECE ? windows - at : TABLE_PIECE;
        player_read(player, piece, count * sizeof *piece,
                    player->header.window_table + at * sizeof *piece);
        for (uint64_t number = 0; number < count; number++)
            atomic_init(&player->remaining[at + number], piece[number].threads);
    }
    atomic_init(&player->remaining[windows], 1); // never finished
}

void player_open(struct player *player, const struct player_options *options)
{
    *player = (struct player){.options = *options};
    player->file = open(options->path, O_RDONLY | O_CLOEXEC);
    if (player->file < 0)
        player_fail("cannot open %s: %s", options->path, strerror(errno));
    player->status_file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (player->status_file < 0)
        player_fail("cannot open /proc/self/statm: %s", strerror(errno));
    read_header(player);
    const struct program_header *header = &player->header;
    read_windows(player);
    player->policies = player_memory(header->policies * sizeof *player->policies);
    player_read(player, player->policies, header->policies * sizeof *player->policies,
                header->policy_table);
    player->slots = player_memory(header->slots * sizeof *player->slots);
    player->threads = player_memory(header->threads * sizeof *player->threads);
    player->progress = player_memory(header->threads * sizeof *player->progress);
    player->scratch = player_memory(header->threads * (uint64_t)SCRATCH_BYTES);
    if (options->samples) {
        player->sample_step = (header->windows + options->samples - 1) / options->samples;
        player->samples =
            player_memory((header->windows / player->sample_step + 2) * sizeof *player->samples);
    }
    player->sites = header->policies ? sites_make(player) : NULL;
}

void player_close(struct player *player)
{
    const struct program_header *header = &player->header;
    if (player->sites)
        sites_end(player);
    close(player->file);
    close(player->status_file);
    munmap(player->remaining, (header->windows + 1) * sizeof *player->remaining);
    munmap(player->slots, header->slots ? header->slots * sizeof *player->slots : 1);
    munmap(player->threads, header->threads ? header->threads * sizeof *player->threads : 1);
    munmap(player->progress, header->threads ? header->threads * sizeof *player->progress : 1);
    munmap(player->scratch, header->threads ? header->threads * (size_t)SCRATCH_BYTES : 1);
    munmap(player->policies, header->policies ? header->policies * sizeof *player->policies : 1);
    if (player->samples)
        munmap(player->samples,
               (header->windows / player->sample_step + 2) * sizeof *player->samples);
}
