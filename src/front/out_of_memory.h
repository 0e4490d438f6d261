/* Who is asked when memory is out. */
#ifndef CAIRN_FRONT_OUT_OF_MEMORY_H
#define CAIRN_FRONT_OUT_OF_MEMORY_H

#include "base/compiler.h"

struct memory_asker {
    bool (*function)(void *context, size_t size_bytes); /* NULL: none */
    void *context;
};

enum { OUT_OF_MEMORY_TRIES = 16 };

/* Whether to try again: after the function has said so, not more often than that for one request,
 * which counts in `tries` from 0, and not within such a function. */
bool memory_asked(const struct memory_asker *asker, size_t size_bytes, int *tries) cold;

/* The same of the process's function. */
bool memory_asked_of_process(size_t size_bytes, int *tries) cold;

#endif
