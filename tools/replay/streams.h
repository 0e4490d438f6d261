// The file of a replay program while it is written: a stream of records for each thread, cut into
// windows and chunks. Chunks go to the file as they are full, and at each window's end. One thread.
#ifndef REPLAY_STREAMS_H
#define REPLAY_STREAMS_H

#include "program.h"

#include <stddef.h>

struct stream {
    uint64_t *words;     // of the chunk being filled; NULL outside of a window with records
    uint32_t used;       // words
    uint32_t window;     // that the words belong to
    uint64_t records;    // all
    uint64_t last_chunk; // its place in the file; 0: none
};

struct streams {
    int file;
    const char *path;
    uint64_t place; // where the next chunk goes
    struct program_header header;
    struct stream *threads;
    struct program_thread *table; // of `header.threads`
    uint64_t thread_capacity;
    struct program_window *windows; // of `header.windows`, and the one being filled
    uint64_t window_capacity;
    uint32_t *active; // the threads with words
    uint64_t active_count, active_capacity;
};

// Begins the file, which is written under its own name; exits with a sentence when it cannot.
void streams_start(struct streams *streams, const char *path);

// The number of a new thread.
uint32_t streams_add_thread(struct streams *streams);

// Adds a record of `count` words to the thread's stream and the current window.
void streams_put(struct streams *streams, uint32_t thread, const uint64_t *words, size_t count);

// The window being filled, and its end.
uint32_t streams_window(const struct streams *streams);
struct program_window *streams_current(struct streams *streams);
void streams_end_window(struct streams *streams);

// Writes what is left, the tables and the header.
void streams_finish(struct streams *streams, const struct program_policy *policies);

#endif
