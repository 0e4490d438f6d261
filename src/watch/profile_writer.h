/* Buffered text to a file, by system calls alone. One writer, whose it is. */
#ifndef CAIRN_WATCH_PROFILE_WRITER_H
#define CAIRN_WATCH_PROFILE_WRITER_H

#include "base/compiler.h"

enum { PROFILE_BUFFER_BYTES = 2048, PROFILE_PIECE_MOST = 512 };

struct profile_writer {
    int file;
    int error;       /* the first; nothing is written after it */
    size_t held;     /* bytes in the buffer */
    uint64_t offset; /* of the file, where the buffer goes */
    char text[PROFILE_BUFFER_BYTES];
};

/* A piece of at most PROFILE_PIECE_MOST bytes, as format_text has it; longer ones are cut. */
void profile_write(struct profile_writer *writer, const char *format, ...) print_like(2, 3);
void profile_write_text(struct profile_writer *writer, const char *text, size_t length_bytes);
int profile_write_out(struct profile_writer *writer); /* what is held; 0 or the first error */

#endif
