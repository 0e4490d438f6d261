/* Arenas: reserved stretches of address space, committed from the start up to a frontier.
 *
 * An arena is reserved without permissions (PROT_NONE), so that it costs no commit charge. The
 * reservations grow with the heap, so that the heap works under `ulimit -v` and under mlockall,
 * which counts reservations too. When the system refuses a reservation, smaller ones are tried. An
 * arena is between fences (meta.h). Each page before the frontier belongs to a span, is on its way
 * to one, or is a hole.
 *
 * A thread that needs more pages first claims them: it moves the frontier, or takes a hole. Then it
 * commits them without the lock. So each page is committed by one thread, before any thread uses
 * it. When the system refuses, the pages become a hole, or the frontier moves back. Where the
 * system counts committed pages, resident or not (RLIMIT_DATA, vm.overcommit_memory=2), free runs
 * become holes, too (grow_make_room).
 *
 * The kernel uses a huge page only where all of it is accessible at the first touch. So an arena of
 * some MiB begins at the start of a huge page, and a heap of 2 MiB or more grows by whole huge
 * pages and to the end of one. A large and dense heap asks the system for them (grow.h). The free
 * space before the frontier is filled from its start, so at most one huge page is resident before
 * it is needed.
 * Threads: an arena belongs to a shard (state.h), whose lock protects its list of arenas, the
 * frontiers and the holes. Arenas are never given back. arena_of and span_arena need no
 * lock: they read a list where an entry is stored before the count or the pointer that admits it.
 * Locking: shard's lock held, for functions without another tag; arena_page needs none. */
#ifndef CAIRN_PAGE_ARENA_H
#define CAIRN_PAGE_ARENA_H

#include "page/span.h"

struct page_shard;

enum { ARENA_LIMIT = 4096 };

/* An arena, in metadata memory. */
struct arena {
    char *base;        /* const after init: first byte */
    size_t pages;      /* const after init: number of reserved pages */
    size_t frontier;   /* shard's lock, atomic: all pages before it are claimed */
    size_t hole_pages; /* shard's lock: number of set bits in `holes` */
    uint64_t *dirty;   /* shard's lock: a bit for each page, set when it may not read zero */
    uint64_t
        *purged;     /* shard's lock: a bit for each page, set when it was ever purged while free */
    uint64_t *holes; /* shard's lock: a bit for each page, set in holes */
    uint64_t *whole; /* atomic: a bit for each huge page, set when it was requested and no part of
                        it was purged since */
    uint64_t asked;  /* atomic: a bit for each 64th, set where huge pages may have been requested */
    uint64_t begun;  /* atomic: a bit for each 64th, set where huge pages were ever requested: one
                        may be resident that was not handed out whole */
    struct page_shard *shard; /* const after init: whose arena it is */
    struct arena *next;       /* const once it is in the list of the shard: an older one */
};

/* Finds the arena of the span's run among those of its shard; NULL if it is in none. Takes few
 * steps, because each arena is longer than the one before.
 * Threads: the owner of the span, or shard's lock held. */
struct arena *span_arena(const struct span *span);

/* Finds the arena that contains an address, or NULL, by a linear search without a lock.
 * Threads: any. */
struct arena *arena_of(const void *address);

/* The fullest arena of the shard with at least `pages` pages behind its frontier, or NULL. */
struct arena *arena_with_room(const struct page_shard *shard, size_t pages);

/* Reserves a new arena of at least `pages` pages for the shard and adds it to the lists.
 * Locking: none held.
 * Returns: 0 or a negative errno: -ENOSPC when out of addresses or of metadata, -EAGAIN while the
 * lock is frozen for a fork. */
int arena_add(struct page_shard *shard, size_t pages);

/* How much arena_commit claims. */
enum arena_step {
    ARENA_EXACTLY,       /* the given number of pages */
    ARENA_TO_HUGE_END,   /* more pages where possible, so that they end at the end of a huge page */
    ARENA_IN_HUGE_PAGES, /* like ARENA_TO_HUGE_END, with a request to the system for huge pages */
    ARENA_IN_SMALL_PAGES, /* like ARENA_TO_HUGE_END; the system must use no huge pages */
};

/* Claims `*pages` pages of the shard and commits them; they belong to the caller, read zero and are
 * not counted yet (`committed_pages`). A hole of at least `least` serves first; if no arena has
 * that many behind its frontier, the rest of one that has `least`. `*pages` gets the number.
 * Locking: takes the shard's lock.
 * Returns: NULL with a negative errno in `*error`: -ENOSPC when no arena has enough pages, -EAGAIN
 * while the lock is frozen for a fork. */
char *arena_commit(struct page_shard *shard, size_t *pages, size_t least, enum arena_step step,
                   int *error);

/* Marks a range as clean and as purged. */
void arena_mark_clean(struct arena *arena, const char *start, size_t pages);

/* Makes pages that belong to the caller a hole, whole system pages, so that the system may commit
 * as many others. Their memory is lost.
 * Returns: false when the system refuses; then the pages still belong to the caller. */
bool arena_uncommit(struct arena *arena, char *start, size_t pages);

/* Prepares the purge of a range: withdraws the request for huge pages there, because the kernel
 * (khugepaged) would otherwise bring the purged memory back, and divides each huge page that loses
 * its first part, because the system would otherwise keep all of its memory.
 * Locking: none needed.
 * Returns: the number of huge pages that were divided. */
size_t arena_withdraw_advice(const char *start, size_t size_bytes);

/* Marks those clean pages of a part of a huge page as dirty that may be resident because another
 * part of it was handed out: huge pages were requested there, and the pages were never purged.
 * Pages that were holes count as purged, so a rest among them stays. */
void arena_mark_rests(struct arena *arena, uintptr_t from, uintptr_t to);

/* All arenas in the order of their addition. The first arenas_count entries are const and may be
 * read without a lock. */
extern hidden_data struct arena *arenas_added[ARENA_LIMIT]; /* page lock to write */
extern hidden_data size_t arenas_count;                     /* atomic, page lock to write */

/* The number of arenas. Threads: any. */
size_t arena_count(void);

/* The whole system pages within a range, counted in map pages; `*whole` gets their first byte. */
size_t arena_whole_pages(char *start, size_t pages, char **whole);

inline_always size_t arena_page(const struct arena *arena, const void *address)
{
    return (size_t)((const char *)address - arena->base) >> PAGE_SHIFT;
}

#endif
