/* The text of a dump: buffered writes to a file, the executable mappings of the process, and the
 * libraries that samples came from. All of it uses system calls of os/ alone.
 *
 * Libraries: the table of struct profile_modules is for frames of libraries that are unloaded
 * before a dump. By then the kernel's list of mappings has nothing at their addresses. A library is
 * noted when a new stack has a frame in it, as long as there is room. The library is loaded at that
 * moment, because the stack is that of the calling thread. Entries stay for ever: two libraries
 * that were at one address, one after the other, have two entries. Two threads that note one
 * library at the same time make two equal entries.
 *
 * Threads: a writer and a struct profile_maps are used by one thread at a time; profile_modules_see
 * and profile_write_modules by any, without a lock; async-signal-safe. */
#ifndef CAIRN_WATCH_PROFILE_WRITER_H
#define CAIRN_WATCH_PROFILE_WRITER_H

#include "base/compiler.h"

enum { PROFILE_BUFFER_BYTES = 2048, PROFILE_PIECE_MAX = 512 };

/* A buffered file. Threads: one at a time. */
struct profile_writer {
    int file;
    int error;       /* the first error; nothing is written after it */
    size_t held;     /* bytes in the buffer */
    uint64_t offset; /* offset in the file at which the buffer is written */
    char text[PROFILE_BUFFER_BYTES];
};

/* Writes text with the formats of format_text, at most PROFILE_PIECE_MAX bytes. Longer text is
 * cut. */
void profile_write(struct profile_writer *writer, const char *format, ...) print_like(2, 3);

/* Writes text of any length. */
void profile_write_text(struct profile_writer *writer, const char *text, size_t length_bytes);

/* Writes the buffer to the file.
 *
 * Returns: 0 or the first error of the writer. */
int profile_write_out(struct profile_writer *writer);

enum { PROFILE_MAPS_BYTES = 16 << 10, PROFILE_PATH_MAX = 4096 };

/* Memory to read the mappings with, because the stack may be small. */
struct profile_maps {
    char text[PROFILE_MAPS_BYTES];
    char path[PROFILE_PATH_MAX]; /* file of the mapping that was read last */
    size_t path_bytes;
    uint64_t start; /* address of that file's mapping of offset 0; 0: it has none */
    unsigned char notes[1024];
};

/* Writes a line for each executable mapping of a file, as docs/dev/PROFILE-FORMAT.md describes;
 * none if /proc cannot be read. Memory is read through /proc/self/mem, which cannot fault when
 * another thread unmaps it. */
void profile_write_maps(struct profile_writer *writer, struct profile_maps *maps);

enum { PROFILE_MODULES = 128, PROFILE_MODULE_TEXT = 16 << 10 };

struct profile_module {
    uintptr_t start, end;   /* const once ready: range of its mappings */
    uintptr_t base;         /* const once ready: address in the process - address in its file */
    uint32_t path;          /* const once ready: offset of its path in the text */
    uint32_t path_bytes;    /* const once ready */
    uint32_t build_id;      /* const once ready: offset of its build id in the text */
    uint16_t build_id_size; /* const once ready; 0: it has none */
    uint16_t ready;         /* atomic: 1 after the other fields were written */
};

struct profile_modules {
    struct profile_module modules[PROFILE_MODULES];
    char text[PROFILE_MODULE_TEXT]; /* paths and build ids, without terminators */
    uint32_t module_count;          /* atomic: entries taken; may exceed PROFILE_MODULES */
    uint32_t text_bytes;            /* atomic: text taken; may exceed PROFILE_MODULE_TEXT */
};

/* Notes the libraries of a stack's return addresses. */
void profile_modules_see(struct profile_modules *modules, const uintptr_t *frames, unsigned depth);

/* Writes a line for each library, as docs/dev/PROFILE-FORMAT.md describes. */
void profile_write_modules(struct profile_writer *writer, const struct profile_modules *modules);

#endif
