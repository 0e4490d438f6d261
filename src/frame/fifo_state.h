/* The FIFO's inside: see cairn/fifo.h for what it does. Internal to frame/.
 *
 * Position, limit and owner of the public head are 0 while the FIFO is checked or closed: then the
 * inline functions take their slow paths, and the truth is in the private fields. After the end
 * they are 0, too, and so is the private owner, in the free descriptor: uses die of that.
 *
 * A page's live count is biased while the page is being filled, so that no free finds it at 0;
 * `made` replaces the bias when the page is left. So allocation counts in the FIFO's own cache
 * line, and free has one test.
 *
 * Segments. Objects of up to 16 KiB fill one segment after the other and stay within one; a page
 * may have many. Objects of up to 1 MiB are runs of pages: each begins a page, which has no other,
 * and goes on into the next segments of its group as far as it needs; the next one begins behind
 * it. So a segment of runs may have an object that reaches in from the one before. Larger ones have
 * a mapping of their own.
 */
/* clang-format off */
/*   state     is                               becomes
 *   EMPTY     free, without memory             CURRENT, RUN (segment_take, segment_take_run)
 *   SPARE     free, with memory, but for what  the same; EMPTY when it goes back
 *             went back before (`returned`)
 *   CURRENT   being filled by small objects    RETIRED when full; SPARE when nothing in it lives
 *   RETIRED   full of small objects            SPARE with its last object
 *   RUN       of runs; the FIFO's `run` is     the same, but not while it is `run`
 *             the one being filled
 */
/* clang-format on */
/* Invariants (fifo_verify): of a segment in use, live_pages is the number of its pages with live >
 * 0 (but of the one being filled), plus 1 when a live run reaches in; not 0 unless it is being
 * filled. Of a free one all counts are 0. group->busy is its number of segments that are not free;
 * the FIFO's `busy` is the sum of those plus its large objects. free_mask and spare_mask say what
 * the states say, and a group is listed in by_run under the longest run of each, if there is one.
 *
 * Threading: everything is the owner thread's but `remote`, which is for any_thread_free. At any
 * time at most one thread is the drainer, who alone may touch the FIFO's inside: the owner until
 * close, afterwards whoever is at it. The word says it:
 */
/* clang-format off */
/*   remote          state                               left by
 *   NULL            drained: there is a drainer,        push (-> an object); the drainer who leaves
 *                   nothing waits                       (-> REMOTE_IDLE), by compare and swap
 *   an object       waiting: there is a drainer, and    push (-> an object); the drainer who takes
 *                   a list, linked by first words       all (-> NULL), by exchange
 *   REMOTE_IDLE     closed, and nobody drains           push (-> an object): who did it is the
 *                                                       drainer now
 */
/* clang-format on */
/* A new FIFO is drained, and its owner the drainer; close makes the owner leave. A push is one
 * compare and swap and the last that a freeing thread does to the FIFO, unless it found
 * REMOTE_IDLE: till then its own object, which nobody else ends, keeps the FIFO alive. A drainer
 * ends what it took and tries to leave, again and again until nothing came meanwhile: it waits for
 * nobody. When nothing is busy it ends the FIFO instead: then no object is left, so nobody else can
 * come. All changes acquire and release, so a drainer sees what the one before did, and what
 * freeing threads did with their objects.
 *
 * Fork: an object whose push another thread had not done lives on in the child. So do those that
 * another thread was draining there, and with them the FIFO, when it was closed.
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
    SMALL_OBJECT_BYTES = 16 << 10, /* at most; larger ones take whole segments */
    RUN_OBJECT_BYTES = 1 << 20,    /* at most; larger ones take a mapping */
    RUN_SEGMENTS = RUN_OBJECT_BYTES / SEGMENT_BYTES,
    CURRENT_BIAS = 1 << 30,
    CANDIDATES = 4,
};

#define REMOTE_IDLE ((void *)1) /* no object: those are multiples of 8 */

enum segment_state { SEGMENT_EMPTY, SEGMENT_SPARE, SEGMENT_CURRENT, SEGMENT_RETIRED, SEGMENT_RUN };

/* Runs of free segments that adjoin: with memory, and with or without. */
enum run_kind { RUN_SPARE, RUN_FREE, RUN_KINDS };

struct fifo_segment {
    struct fifo_segment *next; /* owner: towards the colder end of its list */
    struct fifo_segment *prev;
    uint8_t state;      /* owner */
    uint8_t live_pages; /* owner: see above */
    bool returned;      /* owner: its dead pages went back, since it was taken */
};

struct group_listing {
    struct fifo_group *next; /* owner */
    struct fifo_group *prev;
    unsigned longest; /* owner: segments, at most RUN_SEGMENTS; 0: not listed */
};

struct fifo_group {
    struct cairn_fifo_group head;
    uint8_t back[CAIRN_FIFO_PAGES]; /* owner: pages back to the start of the object that reaches in;
                                       0: none */
    struct fifo_group *next;        /* owner */
    struct fifo_group *prev;
    size_t reserved;     /* const while in use: bytes */
    size_t committed;    /* owner: bytes */
    uintptr_t large;     /* const while in use: the one large object; 0: segments */
    uint32_t free_mask;  /* owner: segments that are spare or empty */
    uint32_t spare_mask; /* owner: of these, those that are spare */
    uint32_t busy;       /* owner: segments that are neither */
    struct group_listing listings[RUN_KINDS]; /* owner: by the longest run */
    struct fifo_segment segments[GROUP_SEGMENTS];
};

static_check(sizeof(struct fifo_group) <= PAGE_BYTES, "a group's header is its first page");
static_check(GROUP_SEGMENTS == 32, "segments fit a mask");

struct segment_list {
    struct fifo_segment *hottest; /* owner */
    struct fifo_segment *coldest;
    size_t count;
};

struct fifo {
    cairn_fifo head;              /* first; what the inline functions know */
    void *owner;                  /* atomic, owner writes: thread pointer */
    struct fifo_segment *current; /* owner; NULL between segments */
    uintptr_t held_position;      /* owner: the position while disarmed */
    uintptr_t held_limit;
    struct fifo_group *groups;                   /* owner: newest first */
    struct segment_list spare;                   /* owner: free, with memory */
    struct segment_list empty;                   /* owner: free, without */
    struct fifo_segment *candidates[CANDIDATES]; /* owner: nearly dead, newest first */
    struct fifo_segment *run; /* owner: the last that was filled with runs; NULL: none */
    uintptr_t run_at;         /* owner: where the next run may begin, in `run` or at its end */
    struct fifo_group *by_run[RUN_KINDS][RUN_SEGMENTS]; /* owner: groups by their longest run */
    size_t group_count;                                 /* owner */
    size_t busy;                /* owner: segments and large objects that are not free */
    size_t busy_bytes;          /* owner */
    size_t spare_low;           /* owner: least spare segments since the interval began */
    size_t max_bytes;           /* const */
    uint64_t interval_start_ms; /* owner */
    void *remote;               /* atomic: see above */
    bool (*out_of_memory)(void *, size_t); /* const; NULL: none */
    void *out_of_memory_context;           /* const */
    bool any_thread_free;                  /* const */
    bool checked;                          /* const */
    bool closed;                           /* owner */
    char name[FRAME_NAME_BYTES];           /* const */
};

static_check(sizeof(struct fifo) <= CELL_FIFO_BYTES, "a FIFO is one descriptor");

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

/* The first segment is shorter by the group's header. */
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

no_return void fifo_die_foreign(const struct fifo *fifo, const void *pointer) cold;
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

/* All but frees, and an adoption that lets the owner do them, ends with the close. */
inline_always void fifo_check_open(const struct fifo *fifo, const char *operation)
{
    fifo_check_owner(fifo);
    if (unlikely(fifo->closed))
        die("fifo \"%s\": %s after close", fifo->name, operation);
}

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

/* Groups. Map reserves aligned address space whose first page is committed; NULL when memory is
 * out. Commit makes it usable up to `end` from its start. Unlink is for one without segments in
 * lists. */
struct fifo_group *group_map(struct fifo *fifo, size_t size_bytes);
bool group_commit(struct fifo_group *group, size_t end);
void group_unlink(struct fifo *fifo, struct fifo_group *group);

/* Lists the group by its longest runs, after any change of its masks; and no more. */
void group_list_by_runs(struct fifo *fifo, struct fifo_group *group);
void group_unlist(struct fifo *fifo, struct fifo_group *group);
/* One of those with the longest run of all, if that is long enough; else NULL. Taking from the
 * longest leaves the most room to go on behind what is taken; in first in, first out, that is where
 * the oldest objects have died. */
struct fifo_group *group_with_run(const struct fifo *fifo, enum run_kind kind, size_t count);
/* Of adjoining segments in the mask, but for the group's first, which is shorter by the header:
 * how many, at most RUN_SEGMENTS; and the first of them. */
unsigned longest_run(uint32_t mask);
struct fifo_segment *longest_run_of(struct fifo_group *group, uint32_t mask);

inline_always uint32_t bits_of(size_t first, size_t count)
{
    return (uint32_t)((((uint64_t)1 << count) - 1) << first);
}

/* Segments. Take gives one with memory, or `count` adjoining ones, or those behind a segment; NULL
 * or false when there are none, memory is out or the maximum reached. Give is for dead ones. */
struct fifo_segment *segment_take(struct fifo *fifo);
struct fifo_segment *segment_take_run(struct fifo *fifo, size_t count);
bool segment_extend_run(struct fifo *fifo, struct fifo_segment *last, size_t count);
void segment_give(struct fifo *fifo, struct fifo_segment *segment);
bool segment_has_spare_run(const struct fifo *fifo, size_t count);
bool segment_next_are_spare(const struct fifo_segment *last, size_t count);

/* A segment was filled; pages of one died that is not being filled. Both may give dead pages back.
 */
void segment_was_filled(struct fifo *fifo, struct fifo_segment *segment);
void segment_pages_died(struct fifo *fifo, struct fifo_segment *segment, size_t first, size_t end);

/* Objects above SMALL_OBJECT_BYTES, as runs of pages. NULL as above. */
void *run_object_make(struct fifo *fifo, size_t size);
void run_object_end(struct fifo *fifo, struct fifo_group *group, size_t first);
/* Whether a live one holds the address, but does not begin in its page. */
bool run_object_holds(const struct fifo_group *group, uintptr_t address);
void run_leave(struct fifo *fifo); /* ends the filling of `run` */

/* A mapping of its own. */
void *large_object_make(struct fifo *fifo, size_t size, size_t align);
void large_object_end(struct fifo *fifo, struct fifo_group *group);

/* Of the dead pages that went back, what a group's segments in use have now. */
size_t group_returned_bytes(const struct fifo_group *group);

void fifo_tick(struct fifo *fifo);
size_t fifo_give_back(struct fifo *fifo, size_t keep_bytes);
void fifo_free_groups(struct fifo *fifo);

/* Ends an object: on the owner's thread, or the drainer's; `queued` by another thread's free. */
void fifo_end_object(struct fifo *fifo, void *pointer, bool queued);
/* A group of this FIFO, by search: for pointers whose group must not be read before it is known. */
struct fifo_group *fifo_find_group(const struct fifo *fifo, uintptr_t address);
/* Ends the whole FIFO. */
void fifo_destroy(struct fifo *fifo);

/* any_thread_free. Frees of the owner's thread before the close are not remote. */
void fifo_free_remotely(struct fifo *fifo, void *pointer);
/* The owner, before the close: ends what others freed. */
void fifo_collect(struct fifo *fifo);
/* The drainer of a closed FIFO, first its owner: ends what others freed until it can leave, or
 * nothing is left and the FIFO ends. */
void fifo_leave(struct fifo *fifo);

/* In place: the newest object in its page, or into what its segments or mapping have anyway. */
bool fifo_resize_in_place(struct fifo *fifo, void *pointer, size_t old_size, size_t new_size);

/* Leaves the current segment, so that it is free when nothing in it lives. */
void fifo_stop_filling(struct fifo *fifo);

/* Checked FIFOs: an object between a header and a canary, inside a plain object. The plain object
 * of an end. */
enum { FIFO_HEADER_BYTES = 32, FIFO_CANARY_BYTES = 16 };
void *fifo_checked_lay(void *plain, size_t size, size_t align);
void *fifo_checked_end(struct fifo *fifo, void *pointer, bool queued);
void fifo_checked_verify(struct fifo *fifo, void *pointer, size_t size);
void **fifo_checked_queue(struct fifo *fifo, void *pointer); /* freed by another thread: its link */
void **fifo_checked_link(void *pointer);                     /* once more */
inline_always size_t fifo_checked_bytes(size_t size, size_t align)
{
    return larger_of(align, FIFO_HEADER_BYTES) + size + FIFO_CANARY_BYTES;
}

void fifo_verify(const struct fifo *fifo);

#endif
