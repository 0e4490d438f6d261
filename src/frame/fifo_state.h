/* The FIFO's structure, and the functions that its files share. cairn/fifo.h describes what a FIFO
 * does.
 *
 * Files, from the bottom: fifo_state.c (messages of misuse); fifo_pages.c (memory: groups,
 * segments, runs of pages, large objects); fifo.c (objects, frees by other threads, the public
 * functions).
 *
 * Head. Position, limit and owner of the public head are 0 while the FIFO is checked or closed.
 * Then the inline functions take their slow paths, and the private fields hold the values. After
 * the end of the FIFO they are 0 too, and so is the private owner in the free descriptor, so a use
 * ends the process.
 *
 * Live counts. The live count of the page being filled has a bias, so that no free finds it at 0.
 * When the page is left, `made` replaces the bias. So allocation counts in the FIFO's own cache
 * line, and free has one test.
 *
 * Segments. Objects of up to 16 KiB fill one segment after the other and stay within one; a page
 * may have many. Objects of up to 1 MiB are runs of pages. Each begins a page and shares no page
 * with another object. An object continues in the next segments of its group as far as it needs,
 * and the next run begins behind it. So an object may reach into a segment of runs from the one
 * before. Larger objects have a mapping of their own.
 *
 *   state     meaning                           becomes
 *   EMPTY     free, without memory              CURRENT (segment_take), RUN (segment_take_run)
 *   SPARE     free, with memory, except for     CURRENT, RUN in the same way; EMPTY when its
 *             pages returned before             memory is returned
 *             (`returned`)
 *   CURRENT   being filled by small objects     RETIRED when full; SPARE when it has no object
 *   RETIRED   full of small objects             SPARE with its last object
 *   RUN       has runs; the FIFO's `run` is     SPARE with its last object, but not while it is
 *             the one being filled              the FIFO's `run`
 *
 * Invariants (fifo_verify):
 *   a segment in use: live_pages == number of its pages with live > 0 (without the page being
 *       filled) + 1 when a live run reaches in; not 0 unless the segment is being filled
 *   a free segment: all counts are 0
 *   group->busy == number of its segments that are not free
 *   fifo->busy == sum of group->busy + number of large objects
 *   free_mask and spare_mask agree with the states
 *   a group is in the list by_run of its longest run of each kind, if it has one
 *
 * Frees by other threads. All fields belong to the owner thread, except `remote`, which is used
 * with any_thread_free. At most one thread at a time is the drainer, and only the drainer touches
 * the other fields: the owner until close, then the thread that ends objects. `remote` has these
 * states:
 *
 *   remote         state                              changed by
 *   NULL           drained: there is a drainer, no    push (to an object); the drainer that leaves
 *                  object waits                       (to REMOTE_IDLE), by compare and swap
 *   an object      waiting: there is a drainer, and   push (to an object); the drainer that takes
 *                  a list, linked by first words      all (to NULL), by exchange
 *   REMOTE_IDLE    closed, without a drainer          push (to an object): the pushing thread is
 *                                                     the drainer now
 *
 * A new FIFO is drained, and its owner is the drainer; close makes the owner leave. A push is one
 * compare and swap, and the last access of a freeing thread to the FIFO, unless it found
 * REMOTE_IDLE. Before the push the thread's own object, which no other thread ends, keeps the FIFO
 * alive. A drainer ends the objects that it took and tries to leave, until no object came in
 * between; it waits for no thread. When nothing is busy it ends the FIFO instead: then no object
 * remains, so no other thread can push. All changes acquire and release. So a drainer sees
 * everything that the drainer before it did, and that freeing threads did with their objects.
 *
 * The free of an object stores its link in the object's first word, which is free for this use. The
 * list is only emptied as a whole, so a compare and swap cannot mistake one list for another.
 *
 * Fork: an object that another thread had not pushed yet stays alive in the child. So do the
 * objects that another thread was draining, and with them the FIFO if it was closed.
 *
 * Threads: the owner, or the drainer after the close; fifo_free_remotely: any.
 */
#ifndef CAIRN_FRAME_FIFO_STATE_H
#define CAIRN_FRAME_FIFO_STATE_H

#include "cairn/fifo.h"
#include "frame/frame.h"

enum {
    GROUP_BYTES = CAIRN_FIFO_GROUP_BYTES,
    SEGMENT_BYTES = 64 << 10,
    SEGMENT_PAGES = SEGMENT_BYTES >> PAGE_SHIFT,
    GROUP_SEGMENTS = GROUP_BYTES / SEGMENT_BYTES,
    FIFO_GRANULE = 8,
    SMALL_OBJECT_BYTES = 16 << 10, /* the maximum of small objects; larger ones are runs of pages */
    RUN_OBJECT_BYTES = 1 << 20,    /* the maximum of runs; larger objects have a mapping */
    RUN_SEGMENTS = RUN_OBJECT_BYTES / SEGMENT_BYTES,
    CURRENT_BIAS = 1 << 30,
    CANDIDATES = 4,
};

#define REMOTE_IDLE ((void *)1) /* no object, because those are multiples of 8 */

enum segment_state { SEGMENT_EMPTY, SEGMENT_SPARE, SEGMENT_CURRENT, SEGMENT_RETIRED, SEGMENT_RUN };

/* The kinds of runs of adjacent free segments: all with memory; or with and without. */
enum run_kind { RUN_SPARE, RUN_FREE, RUN_KINDS };

struct fifo_segment {
    struct fifo_segment *next; /* owner: list of its state, towards the coldest */
    struct fifo_segment *prev;
    uint8_t state;      /* owner: enum segment_state */
    uint8_t live_pages; /* owner: see the invariants above */
    bool returned;      /* owner: its dead pages were returned since it was taken */
};

struct group_listing {
    struct fifo_group *next; /* owner: list of the groups with this longest run */
    struct fifo_group *prev;
    unsigned longest; /* owner: in segments, at most RUN_SEGMENTS; 0: in no list */
};

struct fifo_group {
    struct cairn_fifo_group head;
    /* owner: by page, distance in pages to the start of the object that reaches in; 0: none */
    uint8_t back[CAIRN_FIFO_PAGES];
    struct fifo_group *next; /* owner: all groups of the FIFO */
    struct fifo_group *prev;
    size_t reserved;     /* const while in use: bytes of address space */
    size_t committed;    /* owner: accessible bytes, from the start */
    uintptr_t large;     /* const while in use: the one large object; 0: the group has segments */
    uint32_t free_mask;  /* owner: bitmap, spare or empty segments */
    uint32_t spare_mask; /* owner: bitmap, spare segments */
    uint32_t busy;       /* owner: number of segments that are not free */
    struct group_listing listings[RUN_KINDS]; /* owner: by kind of run */
    struct fifo_segment segments[GROUP_SEGMENTS];
};

static_check(sizeof(struct fifo_group) <= PAGE_BYTES, "a group's header is its first page");
static_check(GROUP_SEGMENTS == 32, "segments fit a mask");

struct segment_list {
    struct fifo_segment *hottest; /* owner: next to be used */
    struct fifo_segment *coldest;
    size_t count;
};

struct fifo {
    cairn_fifo head;              /* the part that inline functions use; must be the first field */
    void *owner;                  /* atomic, written by the owner: its thread pointer */
    struct fifo_segment *current; /* owner: the segment being filled; NULL: none */
    uintptr_t held_position;      /* owner: position and limit while the head has zeros */
    uintptr_t held_limit;
    struct fifo_group *groups;                   /* owner: all groups, newest first */
    struct segment_list spare;                   /* owner: free segments with memory */
    struct segment_list empty;                   /* owner: free segments without memory */
    struct fifo_segment *candidates[CANDIDATES]; /* owner: nearly dead segments, newest first */
    struct fifo_segment *run; /* owner: the segment last filled with runs; NULL: none */
    uintptr_t run_at;         /* owner: where the next run may begin, in `run` or at its end */
    struct fifo_group *by_run[RUN_KINDS][RUN_SEGMENTS]; /* owner: groups by their longest run */
    size_t group_count;                                 /* owner: number of groups */
    /* owner: number of segments that are not free and of large objects */
    size_t busy;
    size_t busy_bytes;          /* owner: their size */
    size_t spare_low;           /* owner: minimum of spare segments since the interval began */
    size_t max_bytes;           /* const after init */
    uint64_t interval_start_ms; /* owner */
    void *remote;               /* atomic: see the table above */
    bool (*out_of_memory)(void *, size_t); /* const after init; NULL: none */
    void *out_of_memory_context;           /* const after init */
    bool any_thread_free;                  /* const after init */
    bool checked;                          /* const after init */
    bool closed;                           /* owner */
    char name[FRAME_NAME_BYTES];           /* const after init */
};

static_check(sizeof(struct fifo) <= DESCRIPTOR_FIFO_BYTES_MAX, "a FIFO is one descriptor");

inline_always struct fifo_group *group_at(uintptr_t address)
{
    return (struct fifo_group *)(address & ~(CAIRN_FIFO_GROUP_BYTES - 1));
}

inline_always struct fifo_group *group_of(const struct fifo_segment *segment)
{
    return group_at((uintptr_t)segment);
}

inline_always size_t segment_index(const struct fifo_segment *segment)
{
    return (size_t)(segment - group_of(segment)->segments);
}

inline_always uintptr_t segment_end(const struct fifo_segment *segment)
{
    return (uintptr_t)group_of(segment) + (segment_index(segment) + 1) * SEGMENT_BYTES;
}

/* The start of a segment's memory. The first segment begins behind the group's header. */
inline_always uintptr_t segment_start(const struct fifo_segment *segment)
{
    uintptr_t start = (uintptr_t)group_of(segment) + segment_index(segment) * SEGMENT_BYTES;
    return segment_index(segment) == 0 ? start + PAGE_BYTES : start;
}

inline_always size_t page_index(uintptr_t address)
{
    return address >> PAGE_SHIFT & (CAIRN_FIFO_PAGES - 1);
}

inline_always struct fifo_segment *segment_at(uintptr_t address)
{
    return &group_at(address)->segments[page_index(address) / SEGMENT_PAGES];
}

inline_always bool group_is_of(const struct fifo_group *group, const struct fifo *fifo)
{
    return group->head.tag == ((uintptr_t)fifo ^ (uintptr_t)group);
}

/* Ends the process: a pointer was freed that is no object of the FIFO. */
no_return void fifo_die_foreign(const struct fifo *fifo, const void *pointer) cold;

/* Ends the process: more objects of a page were freed than it has. A page with many objects does
 * not show which of them was freed twice. */
no_return void fifo_die_surplus(const struct fifo *fifo, const void *pointer) cold;

/* Ends the process: the calling thread does not own the FIFO, or the FIFO has ended. */
no_return void fifo_die_not_owned(const struct fifo *fifo) cold;

inline_always struct fifo *fifo_of(const cairn_fifo *head)
{
    return (struct fifo *)(uintptr_t)head;
}

inline_always void fifo_check_owner(const struct fifo *fifo)
{
    if (unlikely(load_relaxed(&fifo->owner) != __builtin_thread_pointer()))
        fifo_die_not_owned(fifo);
}

/* Ends the process unless the caller owns the FIFO and it is open. After the close only frees are
 * allowed, and an adoption so that its new owner can free. */
inline_always void fifo_check_open(const struct fifo *fifo, const char *operation)
{
    fifo_check_owner(fifo);
    if (unlikely(fifo->closed))
        die("fifo \"%s\": %s after close", fifo->name, operation);
}

/* Whether the head has zeros, so that inline functions take their slow paths. */
inline_always bool fifo_disarmed(const struct fifo *fifo) { return fifo->checked || fifo->closed; }

inline_always uintptr_t fifo_position(const struct fifo *fifo)
{
    return fifo_disarmed(fifo) ? fifo->held_position : fifo->head.position;
}

inline_always void fifo_set_position(struct fifo *fifo, uintptr_t at, uintptr_t limit)
{
    fifo->held_position = at;
    fifo->held_limit = limit;
    fifo->head.position = fifo_disarmed(fifo) ? 0 : at;
    fifo->head.limit = fifo_disarmed(fifo) ? 0 : limit;
}

/* Reserves address space at a multiple of GROUP_BYTES, and commits its first page.
 * Returns: the group; NULL when out of memory. */
struct fifo_group *group_map(struct fifo *fifo, size_t size_bytes);

/* Makes a group accessible up to `end` bytes from its start.
 * Returns: false when out of memory. */
bool group_commit(struct fifo_group *group, size_t end);

/* Unmaps a group that has no segments in lists. */
void group_unlink(struct fifo *fifo, struct fifo_group *group);

/* Updates the lists of groups by longest runs after a change of the group's masks. */
void group_list_by_runs(struct fifo *fifo, struct fifo_group *group);

/* Removes a group from the lists by longest runs. */
void group_unlist(struct fifo *fifo, struct fifo_group *group);

/* Returns a group with the longest run of all, if that has `count` segments; else NULL. This leaves
 * the most space behind the next run. In first in, first out, the longest run is where the oldest
 * objects have died. */
struct fifo_group *group_with_run(const struct fifo *fifo, enum run_kind kind, size_t count);

/* The number of segments of the longest run in a mask, at most RUN_SEGMENTS. The group's first
 * segment does not count, because it is shorter. */
unsigned longest_run(uint32_t mask);

/* The first segment of the longest run in a mask. */
struct fifo_segment *longest_run_of(struct fifo_group *group, uint32_t mask);

inline_always uint32_t bits_of(size_t first, size_t count)
{
    return (uint32_t)((((uint64_t)1 << count) - 1) << first);
}

/* Takes a free segment for small objects.
 * Returns: NULL when out of memory, or when the maximum is reached. */
struct fifo_segment *segment_take(struct fifo *fifo);

/* Takes `count` adjacent free segments for runs.
 * Returns: the first; NULL when out of memory, or when the maximum is reached. */
struct fifo_segment *segment_take_run(struct fifo *fifo, size_t count);

/* Takes the `count` segments behind `last` for runs.
 * Returns: false when they are not free, when out of memory, or when the maximum is reached. */
bool segment_extend_run(struct fifo *fifo, struct fifo_segment *last, size_t count);

/* Makes a segment spare in which no object lives. */
void segment_give(struct fifo *fifo, struct fifo_segment *segment);

/* Whether `count` adjacent spare segments exist. */
bool segment_has_spare_run(const struct fifo *fifo, size_t count);

/* Whether the `count` segments behind `last` are spare. */
bool segment_next_are_spare(const struct fifo_segment *last, size_t count);

/* Notes that a segment is no longer being filled. This may return dead pages to the system. */
void segment_was_filled(struct fifo *fifo, struct fifo_segment *segment);

/* Notes that pages of a segment died. The segment is not being filled. This may return dead pages
 * to the system. */
void segment_pages_died(struct fifo *fifo, struct fifo_segment *segment, size_t first, size_t end);

/* Makes an object above SMALL_OBJECT_BYTES, as a run of pages.
 * Returns: NULL when out of memory, or when the maximum is reached. */
void *run_object_make(struct fifo *fifo, size_t size);

/* Ends the run that begins in page `first` of the group. */
void run_object_end(struct fifo *fifo, struct fifo_group *group, size_t first);

/* Whether a live run holds the address, but does not begin in its page. */
bool run_object_holds(const struct fifo_group *group, uintptr_t address);

/* Ends the filling of `run`. */
void run_leave(struct fifo *fifo);

/* Makes an object with a mapping of its own.
 * Returns: NULL when out of memory, or when the maximum is reached. */
void *large_object_make(struct fifo *fifo, size_t size, size_t align);

/* Ends the large object of a group. */
void large_object_end(struct fifo *fifo, struct fifo_group *group);

/* The number of bytes in dead pages of segments in use that are returned now. */
size_t group_returned_bytes(const struct fifo_group *group);

/* Returns the spare segments that were not needed during an interval, when one has passed. */
void fifo_tick(struct fifo *fifo);

/* Returns spare segments except `keep_bytes`, and dead pages of segments in use.
 * Returns: the number of bytes. */
size_t fifo_give_back(struct fifo *fifo, size_t keep_bytes);

/* Unmaps all groups of a FIFO that ends. */
void fifo_free_groups(struct fifo *fifo);

/* Ends an object. `queued` says that another thread freed it.
 * Threads: the drainer only. */
void fifo_end_object(struct fifo *fifo, void *pointer, bool queued);

/* Searches the FIFO's groups for the one that holds an address. For pointers whose group must not
 * be read before it is known.
 * Returns: NULL when there is none. */
struct fifo_group *fifo_find_group(const struct fifo *fifo, uintptr_t address);

/* Ends the whole FIFO. */
void fifo_destroy(struct fifo *fifo);

/* Frees an object with any_thread_free. Frees by the owner before the close take another path.
 * Threads: any. */
void fifo_free_remotely(struct fifo *fifo, void *pointer);

/* Ends the objects that other threads freed. Before the close only. */
void fifo_collect(struct fifo *fifo);

/* Ends the objects that other threads freed until it can leave, or until no object remains and the
 * FIFO ends.
 * Threads: the drainer of a closed FIFO. */
void fifo_leave(struct fifo *fifo);

/* Resizes an object in place: the newest one within its page, or any one within the memory that it
 * has. */
bool fifo_resize_in_place(struct fifo *fifo, void *pointer, size_t old_size, size_t new_size);

/* Stops filling the current segment and `run`, so that they are free when no object in them
 * lives. */
void fifo_stop_filling(struct fifo *fifo);

/* A checked FIFO puts each object between a header and a canary, inside a plain object. */
enum { FIFO_HEADER_BYTES = 32, FIFO_CANARY_BYTES = 16 };

/* Writes header and canary into a plain object.
 * Returns: the object. */
void *fifo_checked_lay(void *plain, size_t size, size_t align);

/* Verifies an object that ends and fills it. `queued` says that another thread freed it.
 * Returns: the plain object. */
void *fifo_checked_end(struct fifo *fifo, void *pointer, bool queued);

/* Verifies a live object of the given size. */
void fifo_checked_verify(struct fifo *fifo, void *pointer, size_t size);

/* Marks an object as freed by another thread.
 * Returns: its link. */
void **fifo_checked_queue(struct fifo *fifo, void *pointer);

/* The link of an object that fifo_checked_queue marked. */
void **fifo_checked_link(void *pointer);

/* The maximum size of the plain object for an object. */
inline_always size_t fifo_checked_bytes(size_t size, size_t align)
{
    return larger_of(align, FIFO_HEADER_BYTES) + size + FIFO_CANARY_BYTES;
}

/* Debug builds: verifies the invariants. */
void fifo_verify(const struct fifo *fifo);

#endif
