// Writes a replay program. streams.h describes the functions, program.h the format.
#include "streams.h"

#include "live.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Noreturn void fail(const struct streams *streams)
{
    fprintf(stderr, "cairn-replay-prepare: cannot write %s: %s\n", streams->path, strerror(errno));
    exit(1);
}

static void write_at(const struct streams *streams, const void *data, size_t bytes, uint64_t place)
{
    const char *from = data;
    while (bytes) {
        ssize_t written = pwrite(streams->file, from, bytes, (off_t)place);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            fail(streams);
        from += written;
        bytes -= (size_t)written;
        place += (size_t)written;
    }
}

void streams_start(struct streams *streams, const char *path)
{
    *streams = (struct streams){.path = path, .place = sizeof(struct program_header)};
    streams->file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (streams->file < 0)
        fail(streams);
    memcpy(streams->header.magic, program_magic, sizeof program_magic);
    streams->header.version = PROGRAM_VERSION;
    streams_current(streams);
}

uint32_t streams_add_thread(struct streams *streams)
{
    uint32_t thread = streams->header.threads++;
    if (thread >= streams->thread_capacity) {
        uint64_t capacity = streams->thread_capacity ? streams->thread_capacity * 2 : 16;
        streams->threads = resize_array(streams->threads, capacity, sizeof *streams->threads);
        streams->table = resize_array(streams->table, capacity, sizeof *streams->table);
        streams->thread_capacity = capacity;
    }
    streams->threads[thread] = (struct stream){0};
    streams->table[thread] = (struct program_thread){0};
    return thread;
}

uint32_t streams_window(const struct streams *streams) { return (uint32_t)streams->header.windows; }

struct program_window *streams_current(struct streams *streams)
{
    uint64_t at = streams->header.windows;
    if (at >= streams->window_capacity) {
        uint64_t capacity = streams->window_capacity ? streams->window_capacity * 2 : 64;
        streams->windows = resize_array(streams->windows, capacity, sizeof *streams->windows);
        memset(streams->windows + streams->window_capacity, 0,
               (capacity - streams->window_capacity) * sizeof *streams->windows);
        streams->window_capacity = capacity;
    }
    return &streams->windows[at];
}

static void write_chunk(struct streams *streams, uint32_t thread)
{
    struct stream *stream = &streams->threads[thread];
    struct program_chunk chunk = {
        .window = stream->window, .words = stream->used, .thread = thread};
    uint64_t place = streams->place;
    write_at(streams, &chunk, sizeof chunk, place);
    write_at(streams, stream->words, stream->used * sizeof *stream->words, place + sizeof chunk);
    streams->place += sizeof chunk + stream->used * sizeof *stream->words;
    if (stream->last_chunk)
        write_at(streams, &place, sizeof place,
                 stream->last_chunk + offsetof(struct program_chunk, next));
    else
        streams->table[thread].first_chunk = place;
    stream->last_chunk = place;
    stream->used = 0;
}

static void activate(struct streams *streams, uint32_t thread)
{
    struct stream *stream = &streams->threads[thread];
    stream->words = resize_array(NULL, CHUNK_WORDS, sizeof *stream->words);
    stream->window = streams_window(streams);
    if (streams->active_count == streams->active_capacity) {
        streams->active_capacity = streams->active_capacity ? streams->active_capacity * 2 : 16;
        streams->active =
            resize_array(streams->active, streams->active_capacity, sizeof *streams->active);
    }
    streams->active[streams->active_count++] = thread;
    streams_current(streams)->threads++;
}

void streams_put(struct streams *streams, uint32_t thread, const uint64_t *words, size_t count)
{
    struct stream *stream = &streams->threads[thread];
    if (!stream->words)
        activate(streams, thread);
    if (stream->used + count > CHUNK_WORDS)
        write_chunk(streams, thread);
    memcpy(stream->words + stream->used, words, count * sizeof *words);
    stream->used += (uint32_t)count;
    stream->records++;
    streams->header.records++;
}

void streams_end_window(struct streams *streams)
{
    for (uint64_t at = 0; at < streams->active_count; at++) {
        struct stream *stream = &streams->threads[streams->active[at]];
        write_chunk(streams, streams->active[at]);
        free(stream->words);
        stream->words = NULL;
    }
    streams->active_count = 0;
    streams->header.windows++;
    streams_current(streams);
}

void streams_finish(struct streams *streams, const struct program_policy *policies)
{
    struct program_header *header = &streams->header;
    uint64_t place = (streams->place + 7) / 8 * 8;
    header->thread_table = place;
    place += header->threads * sizeof *streams->table;
    header->window_table = place;
    place += header->windows * sizeof *streams->windows;
    header->policy_table = place;
    place += header->policies * sizeof *policies;
    header->file_bytes = place;
    write_at(streams, streams->table, header->threads * sizeof *streams->table,
             header->thread_table);
    write_at(streams, streams->windows, header->windows * sizeof *streams->windows,
             header->window_table);
    write_at(streams, policies, header->policies * sizeof *policies, header->policy_table);
    if (ftruncate(streams->file, (off_t)place) != 0)
        fail(streams);
    write_at(streams, header, sizeof *header, 0);
    if (close(streams->file) != 0)
        fail(streams);
    free(streams->threads);
    free(streams->table);
    free(streams->windows);
    free(streams->active);
}
