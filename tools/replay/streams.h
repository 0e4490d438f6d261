// The file of a replay program while it is written: a stream of records for each thread, divided
// into windows and chunks. A chunk is written when it is full, and at the end of each window.
//
// Threads: one.
#ifndef REPLAY_STREAMS_H
#define REPLAY_STREAMS_H

#include "program.h"

#include <stddef.h>

struct stream {
    uint64_t *words;     // of the current chunk; NULL without records in the window
    uint32_t used;       // number of words
    uint32_t window;     // window of the words
    uint64_t records;    // number of all records
    uint64_t last_chunk; // place in the file; 0: none
};

struct streams {
    int file;
    const char *path;
    uint64_t place; // place of the next chunk
    struct program_header header;
    struct stream *threads;
    struct program_thread *table; // `header.threads` elements
    uint64_t thread_capacity;
    struct program_window *windows; // `header.windows` elements, and the current window
    uint64_t window_capacity;
    uint32_t *active; // threads with words
    uint64_t active_count, active_capacity;
};

// Creates the file under its final name. Ends the program with a sentence on failure.
void streams_start(struct streams *streams, const char *path);

// Returns: the number of a new thread.
uint32_t streams_add_thread(struct streams *streams);

// Adds a record of `count` words to the thread's stream and the current window.
void streams_put(struct streams *streams, uint32_t thread, const uint64_t *words, size_t count);

// Returns: the number of the current window.
uint32_t streams_window(const struct streams *streams);
// Returns: the current window.
struct program_window *streams_current(struct streams *streams);
// Writes the chunks of the current window and begins the next one.
void streams_end_window(struct streams *streams);

// Writes the tables and the header, and closes the file.
void streams_finish(struct streams *streams, const struct program_policy *policies);

#endif
