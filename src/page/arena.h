/* Arenas: reserved stretches of address space, committed from the start up to a frontier.
 *
 * An arena is reserved without permissions (PROT_NONE), so that it costs no commit charge, and in
 * steps that grow with the heap, so that it lives under `ulimit -v` and under mlockall, which
 * counts reservations too; when a step is refused, smaller ones are tried. It stands between
 * fences. Behind the frontier all pages belong to spans, are on their way there, or are holes; one
 * bit a page says whether it may hold something else than zeros.
 *
 * Whoever needs more pages claims them first: the frontier moves, or a hole closes. Then the system
 * is asked, without the lock: so it is asked once for each page, by one thread, before anybody uses
 * it. When it refuses, they become a hole, or the frontier moves back.
 *
 * A large and dense heap asks for huge pages for what it grows by (advice.h). The frontier stands
 * at the end of a huge page then, so that the kernel can give each one whole, and the free space
 * before it is filled from its start: at most one huge page is resident and not needed yet.
 *
 * Threading: the sorted list, frontiers and holes belong to the page lock; arenas are never given
 * back. arena_at and arena_of may be called without the lock: they read a second list, in the order
 * of addition, where an entry is stored before the count that admits it.
 */
#ifndef CAIRN_PAGE_ARENA_H
#define CAIRN_PAGE_ARENA_H

#include "page/span.h"

enum { ARENA_LIMIT = 4096 };

struct arena {
    char *base;        /* const after init */
    size_t pages;      /* const after init: reserved */
    size_t frontier;   /* page lock; read without it as a hint: all pages before it are claimed */
    size_t hole_pages; /* page lock: set bits of `holes` */
    uint64_t *dirty;   /* page lock: bit a page, set when it may not read zero */
    uint64_t *holes;   /* page lock: bit a page, set when nobody has it and it is not committed */
    uint64_t *whole;   /* atomic: bit a huge page of the addresses, set when it was asked for, and
                        * no part of it went since */
    uint64_t asked;    /* atomic: bit a 64th, set where huge pages may be asked for */
    uint64_t begun;    /* atomic: likewise, where one may be resident beyond what was handed out */
    uint64_t trimmed;  /* page lock: of `begun`, what a trim looks at */
};

/* Which of the arenas holds an address; NULL if none. The first with the page lock, fast; the
 * second without. */
struct arena *arena_find(const void *address);
struct arena *arena_of(const void *address);

/* The arena with room for `pages` more behind its frontier; NULL if none. Page lock. */
struct arena *arena_with_room(size_t pages);

/* Reserves a new arena of at least `pages` and adds it to the list. Not under the page lock. 0 or a
 * negative errno. */
int arena_add(size_t pages);

/* Claims pages and commits them: they are the caller's, and zero. The rest of an arena, at least
 * `least`, where none has room for all. With `huge` they may become more, so that they end where a
 * huge page does, and huge pages are asked for. NULL with a negative errno in *error: -ENOSPC when
 * no arena has room, -EAGAIN while frozen for a fork. Takes the page lock. */
char *arena_commit(size_t *pages, size_t least, bool huge, int *error);

/* Memory that goes back is asked for in huge pages no more: before the system is told. It would put
 * what is left together again, and so bring back what went (khugepaged). A huge page that loses its
 * first part becomes small pages, else the system would keep its memory. Returns how many did. Any
 * thread, no lock held. */
size_t arena_withdraw_advice(const char *start, size_t size_bytes);

/* A huge page is resident whole once a part of it was handed out. Between the first and the last
 * call, which a trim makes before it looks and after it has purged: whether that may be so within a
 * range, asked for or withdrawn since. After the last one only where it is asked for still. Page
 * lock. */
bool arenas_begin_trim(void); /* whether there is any such range */
bool arena_may_hold_rests(const struct arena *arena, const char *start, size_t size_bytes);
void arenas_end_trim(void);

/* All arenas, in the order of their addition. No lock needed. */
extern hidden_data struct arena *arenas_added[ARENA_LIMIT]; /* page lock writes: below the count */
extern hidden_data size_t arenas_count;                     /* atomic, page lock writes */
size_t arena_count(void);
struct arena *arena_at(size_t index);

inline_always size_t arena_page(const struct arena *arena, const void *address)
{
    return (size_t)((const char *)address - arena->base) >> PAGE_SHIFT;
}

#endif
