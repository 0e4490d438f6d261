/* Arenas: reserved stretches of address space, committed from the start up to a frontier.
 *
 * An arena is reserved without permissions (PROT_NONE), so that it costs no commit charge, and in
 * steps that grow with the heap, so that it lives under `ulimit -v`; when a step is refused,
 * smaller ones are tried. Behind the frontier all pages belong to spans; one bit a page says
 * whether it may hold something else than zeros.
 *
 * Threading: the list and the frontiers belong to the page lock; arenas are never given back.
 * arena_find may be called without the lock: the list only grows, and a reader sees a count and
 * entries published before it.
 */
#ifndef CAIRN_PAGE_ARENA_H
#define CAIRN_PAGE_ARENA_H

#include "page/span.h"

struct arena {
    char *base;      /* const after init */
    size_t pages;    /* const after init: reserved */
    size_t frontier; /* page lock: pages in use or in the bins; committed */
    uint64_t *dirty; /* page lock: bit a page, set when it may not read zero */
};

/* Which of the arenas holds an address; NULL if none. Page lock. */
struct arena *arena_find(const void *address);

/* The arena with room for `pages` more behind its frontier; NULL if none. Page lock. */
struct arena *arena_with_room(size_t pages);

/* Reserves a new arena of at least `pages` and adds it to the list. Not under the page lock. 0 or a
 * negative errno. */
int arena_add(size_t pages);

/* Commits pages behind an arena's frontier and moves it: they are the caller's, and zero. NULL with
 * a negative errno in *error: -ENOSPC when no arena has room, -EAGAIN while frozen for a fork.
 * Takes the page lock. */
char *arena_commit(size_t pages, int *error);

/* All arenas, by address. */
size_t arena_count(void);
struct arena *arena_at(size_t index);

inline_always size_t arena_page(const struct arena *arena, const void *address)
{
    return (size_t)((const char *)address - arena->base) >> PAGE_SHIFT;
}

#endif
