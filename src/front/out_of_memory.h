/* The functions that a program sets for when memory is out: one for the process, and one for each
 * private heap.
 *
 * Threads: any. */
#ifndef CAIRN_FRONT_OUT_OF_MEMORY_H
#define CAIRN_FRONT_OUT_OF_MEMORY_H

#include "base/compiler.h"

/* A function of the program and its context. */
struct memory_asker {
    bool (*function)(void *context, size_t size_bytes); /* NULL: none */
    void *context;
};

enum { OUT_OF_MEMORY_TRIES = 16 };

/* Calls the out-of-memory function of the program, unless it was called OUT_OF_MEMORY_TRIES times
 * for this request, this thread is within such a function, or no block can have `size_bytes`.
 * `tries` counts the calls, from 0.
 *
 * Returns: whether to try the request again, as the function says. */
bool memory_asked(const struct memory_asker *asker, size_t size_bytes, int *tries) cold;

/* Calls the function of the process as memory_asked does.
 *
 * Returns: whether to try the request again. */
bool memory_asked_of_process(size_t size_bytes, int *tries) cold;

#endif
