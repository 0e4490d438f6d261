/* Which files the process's code is mapped from, for the reader of a dump. */
#ifndef CAIRN_WATCH_PROFILE_MAPS_H
#define CAIRN_WATCH_PROFILE_MAPS_H

#include "watch/profile_writer.h"

enum { PROFILE_MAPS_BYTES = 16 << 10, PROFILE_PATH_MOST = 4096 };

/* What the reading needs beside the stack, which may be small. */
struct profile_maps {
    char text[PROFILE_MAPS_BYTES];
    char path[PROFILE_PATH_MOST]; /* of the file whose mapping of offset 0 was seen last */
    size_t path_bytes;
    uint64_t start;
    unsigned char notes[1024];
};

/* A line for each executable mapping of a file, as profile_dump.c says; none where /proc is not to
 * be read. Memory is read through /proc/self/mem, which cannot fault when another thread unmaps it.
 */
void profile_write_maps(struct profile_writer *writer, struct profile_maps *maps);

#endif
