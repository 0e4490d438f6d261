/* The persistent heap while it is open: its structure, and the functions that its files share.
 *
 * Files, each of which calls only earlier ones:
 *   persist_log.c        headers, mark, heads of the logs, chunks, and making the log durable
 *   persist_dirty.c      finds the pages that were written since the last commit
 *   persist_allocator.c  address space, mapping, growth, blocks and roots; checks and statistics
 *   persist_commit.c     commit, abort and trim; the protocol, and the argument why it is right;
 *                        checkpoints: from the log to the heap's file
 *   persist_open.c       files, recovery, open and close
 *
 * A segment is one of the two files of the log:
 *
 *     FREE    --a commit begins to use it-->      CURRENT      (segment_begin)
 *     CURRENT --it is full, and durable-->        SEALED       (segment_seal)
 *     SEALED  --all of it is in the heap's file-> FREE         (persist_segment_end)
 *
 * One segment is CURRENT while the heap is open for writing. Equations:
 *     durable <= written; checkpoint of the header <= durable; acknowledged of the mark <= durable
 *     SEALED.last + 1 == CURRENT.first, once CURRENT has commits
 *
 * Locking: `lock`, then `header_lock`. Unlike other locks, `lock` is held over system calls by
 *     commit (capture), abort, growth and trim: they must exclude allocation, and they wait for the
 *     disk anyway. A thread that waits for an fdatasync of the log, or that moves pages in a
 *     checkpoint, holds no lock but sets a mark (`flushing`, `checkpointing`). Other threads wait
 *     for its end by waiting for a change of `generation`.
 */
#ifndef CAIRN_REGION_PERSIST_HEAP_H
#define CAIRN_REGION_PERSIST_HEAP_H

#include "base/atomic.h"
#include "page/page.h"
#include "region/persist_format.h"

struct cairn_tlsf;

enum { PERSIST_PATH_MAX = 4096 };

enum segment_state { SEGMENT_FREE, SEGMENT_CURRENT, SEGMENT_SEALED };

/* A file of the log. Fields with `lock` belong to the lock of the heap. */
struct segment {
    int file;                 /* const after open; -1: none */
    enum segment_state state; /* lock: lock */
    uint64_t length;          /* lock; const while sealed: the end of its last commit */
    uint64_t room;            /* lock: the size of the file */
    uint64_t last;            /* lock; const while sealed: its last commit */
    /* lock; const while sealed: by page, the offset of its image; 0: none */
    uint64_t *where;
    uint64_t *logged; /* lock; const while sealed: bitmap of where != 0 */
};

/* The state of persist_dirty.c, which describes the ways. */
struct tracker {
    enum cairn_persist_tracking way; /* const after open */
    int userfault;                   /* const after open; -1: none */
    int pagemap;                     /* const after open; -1: none */
    uint64_t *armed;                 /* lock: bitmap of stretches: see persist_dirty.c */
    /* lock: trap_lock: bitmap of pages, set by the handler of SIGSEGV */
    uint64_t *faulted;
    uint32_t trap_lock; /* atomic: 1 while the handler or a capture holds it */
};

struct cairn_persist {
    uint64_t magic;        /* const after open; 0 once closed */
    char *base;            /* const after open: address of the data */
    size_t capacity_bytes; /* const after open: the address space reserved at base */
    size_t page_bytes;     /* const after open */
    unsigned flags;        /* const after open */
    /* const after open: the process that opened the heap, and may commit */
    uint32_t process;
    bool moved;         /* const after open: base is not the address of the last time */
    int file;           /* const after open */
    uint64_t log_limit; /* const after open: the length from which on a segment is full */
    /* const after open: number of commits that recovery found in the log */
    uint64_t recovered;
    char path[PERSIST_PATH_MAX]; /* const after open: of the heap's file, absolute */
    void *own_memory;            /* const after open: the mapping of bitmaps, tables and buffers */
    size_t own_bytes;            /* const after open */

    struct fork_lock lock;
    /* lock to write, atomic to read without it: mapped bytes of the data, a multiple of the
     * page size */
    size_t mapped_bytes;
    struct segment segments[2];
    unsigned current; /* lock: the index of the current segment */
    uint64_t written; /* lock: the number of the last commit in the log */
    uint64_t durable; /* lock: the number of the last commit known to be durable */
    /* lock: errno of a failed fdatasync or checkpoint; refuses all later commits */
    int error;
    bool flushing;       /* lock: a thread without the lock runs fdatasync of the log */
    bool checkpointing;  /* lock: a thread moves the sealed segment to the file */
    uint32_t generation; /* atomic: changes whenever `flushing` or `checkpointing` ends */
    uint64_t *dirty;     /* lock: bitmap, pages found written and not committed */
    uint64_t *dead;      /* lock: bitmap, pages that hold free memory only */
    uint64_t *freed;     /* lock: bitmap, pages with the header of a block that was freed since they
                            were logged */
    uint64_t *bare;      /* lock: bitmap, pages whose last committed image has no block in use */
    uint64_t *kept;      /* lock: bitmap, committed pages that may have a private copy */
    uint64_t *reserved;  /* lock: bitmap, pages that surely have disk space in the file */
    char *buffer;        /* lock: the chunk under construction, or a page for comparison */
    struct tracker tracker;

    struct fork_lock header_lock; /* unknown to fork, because a child writes no header */
    struct persist_header header; /* lock: header_lock */
    int file_error;               /* lock: header_lock: of a failed fdatasync of the heap's file */

    /* the thread that set `checkpointing`; set to 0 with the lock when a segment is sealed: the
     * next page to be moved */
    uint64_t cursor;
    char *checkpoint_buffer; /* the thread that set `checkpointing`: CHECKPOINT_RUN_PAGES pages */

    /* lock: for cairn_persist_stats */
    uint64_t logged_pages, logged_bytes, skipped_pages, syncs;
};

#define PERSIST_HEAP_MAGIC 0x7061656874737250u

enum { CHECKPOINT_RUN_PAGES = 64 }; /* the maximum number of adjacent pages that one write moves */

inline_always struct persist_state *persist_state_of(const struct cairn_persist *heap)
{
    return (struct persist_state *)(void *)heap->base;
}
inline_always struct cairn_tlsf *persist_tlsf_of(const struct cairn_persist *heap)
{
    return (struct cairn_tlsf *)(void *)(heap->base + PERSIST_STATE_BYTES);
}
inline_always size_t persist_pages(const struct cairn_persist *heap)
{
    /* a checkpoint reads it without the lock */
    return load_relaxed(&heap->mapped_bytes) / heap->page_bytes;
}
/* The pages of one word of the bitmaps that a commit has to log if they are dirty: all but the dead
 * ones. A dead page is logged once if the committed image still has a block in use that was freed:
 * the image may become memory again, and a second free of the block has to be found. */
inline_always uint64_t persist_to_log(const struct cairn_persist *heap, size_t word)
{
    return ~heap->dead[word] | (heap->freed[word] & ~heap->bare[word]);
}
inline_always bool bit_is_set(const uint64_t *words, size_t bit)
{
    return (words[bit / 64] >> bit % 64 & 1) != 0;
}

/* Whether a commit has to log a page if it is dirty. */
inline_always bool persist_is_to_log(const struct cairn_persist *heap, size_t page)
{
    return (persist_to_log(heap, page / 64) >> page % 64 & 1) != 0;
}

/* Searches a bitmap from bit `from` on.
 * Returns: the first bit that is set; `end` when there is none before it. */
size_t bit_find(const uint64_t *words, size_t from, size_t end);

/* Reads the sound header with the higher turn. *why says what is wrong.
 * Returns: 0 or a negative errno. */
int header_read(int file, struct persist_header *header, const char **why);

/* Writes a header with the next turn to the older place, and makes it durable.
 * Returns: 0 or a negative errno. */
int header_write(int file, struct persist_header *header);

/* Formats a sentence with numbers for `why`. The 16th call after this one overwrites it. */
const char *persist_sentence(const char *format, ...) print_like(1, 2);

/* Reads the mark.
 * Returns: the number of the last commit that recovery must reach. */
uint64_t mark_read(const struct cairn_persist *heap);

/* Writes the mark. The caller is flushing: it has set `flushing`, or holds the lock while
 * `flushing` is not set. An error leaves an older mark, or none on a full disk. Both are valid. */
void mark_write(int file, uint64_t identity, uint64_t acknowledged);

/* Makes a log empty and writes its head, durable.
 * Returns: 0 or a negative errno. */
int log_head_write(const struct cairn_persist *heap, unsigned index);

/* Reads the head of a log.
 * Returns: 1 when *head is sound; 0 when the log has no sound head; or a negative errno. */
int log_head_read(const struct cairn_persist *heap, unsigned index, struct persist_log_head *head);

/* Whether a head is of the heap and of the opening that the header names. */
bool log_head_fits(const struct cairn_persist *heap, unsigned index,
                   const struct persist_log_head *head);

/* The result of log_walk on a segment: the row of whole commits from its start on. */
struct log_end {
    uint64_t first;  /* number of the first commit; 0: no whole chunk at the start */
    uint64_t last;   /* number of the last whole commit of the row; first - 1: none */
    uint64_t length; /* offset of the end of that commit; PERSIST_LOG_START: none */
    uint64_t pages;  /* the smallest size of the heap, in pages, that has all images of the row */
    uint64_t later;  /* the greatest `durable` of any whole chunk behind the row; 0 after a visit */
};

/* A visitor for an image of a page, in memory and at an offset of the log's file.
 * Returns: 0, or a negative errno that ends the walk. */
typedef int log_visit(void *context, uint64_t page, const char *image, uint64_t offset);

/* Walks the whole commits of a segment from its start on, at most `most_bytes`. `visit` may be
 * NULL; then it also looks behind the row for `later`. `buffer` has PERSIST_CHUNK_MAX_BYTES.
 * Returns: 0, or a negative errno of a read or of the visitor. */
int log_walk(int file, uint64_t seed, size_t page_bytes, char *buffer, uint64_t most_bytes,
             struct log_end *end, log_visit *visit, void *context);

/* The first dirty page from `from` on that a commit has to log; the number of pages if none. */
size_t persist_next_to_log(const struct cairn_persist *heap, size_t from);

/* Appends the dirty pages of persist_to_log to the current segment as commit `sequence`, and sets
 * *bytes to its length. `pages` is their number.
 * Locking: lock held.
 * Returns: 0 or a negative errno. */
int log_append(struct cairn_persist *heap, uint64_t sequence, size_t pages, uint64_t *bytes);

/* Copies a page that other threads may be writing to. */
void page_copy(void *to, const void *page, size_t page_bytes);

/* Compares an image with a page that other threads may be writing to. */
bool page_differs(const void *image, const void *page, size_t page_bytes);

/* Reads the last committed image of a page from the log or the heap's file.
 * Locking: lock held.
 * Returns: 0 or a negative errno. */
int log_read_image(const struct cairn_persist *heap, size_t page, char *to);

/* Reserves address space of capacity_bytes, at `wanted` if that is free, and sets base. If it is
 * not free, `demanded` fails with -EADDRNOTAVAIL.
 * Returns: 0 or a negative errno. */
int space_reserve(struct cairn_persist *heap, uintptr_t wanted, bool demanded);

/* Maps the file's data up to data_bytes, and watches the new part for writes.
 * Locking: lock held, except during open.
 * Returns: 0 or a negative errno. */
int space_map(struct cairn_persist *heap, size_t data_bytes);

/* Extends the file, the header and the mapping to data_bytes.
 * Locking: lock held.
 * Returns: 0 or a negative errno. */
int space_extend(struct cairn_persist *heap, size_t data_bytes);

/* Starts the given way of finding written pages; CAIRN_PERSIST_AUTO: the first that works.
 * Returns: 0 or a negative errno. */
int dirty_start(struct cairn_persist *heap, enum cairn_persist_tracking way);

/* Releases what dirty_start took. Also after a dirty_start that failed. */
void dirty_end(struct cairn_persist *heap);

/* Watches newly mapped data for writes.
 * Returns: 0 or a negative errno. */
int dirty_watch(struct cairn_persist *heap, size_t from_bytes, size_t to_bytes);

/* Adds the pages that were written since the last call to heap->dirty.
 * Locking: lock held.
 * Returns: 0 or a negative errno. */
int dirty_find(struct cairn_persist *heap);

/* Makes all pages clean, whether found or not.
 * Locking: lock held.
 * Returns: 0 or a negative errno. */
int dirty_forget(struct cairn_persist *heap);

/* The reason why this process may not commit: the heap is read-only, or another process opened it,
 * or `error`.
 * Locking: lock held.
 * Returns: 0 or a positive errno. */
int persist_refusal(const struct cairn_persist *heap);

/* Makes all written commits durable, and writes the mark.
 * Locking: lock held, also during the fdatasync; `flushing` is not set.
 * Returns: 0 or a negative errno. */
int persist_flush(struct cairn_persist *heap);

/* Waits until commit `sequence` is durable. The calling thread flushes if no other thread does.
 * Locking: lock not held.
 * Returns: 0 or a positive errno. */
int persist_wait_durable(struct cairn_persist *heap, uint64_t sequence);

/* Waits for the end of a flush or of a checkpoint, or returns earlier. The caller checks again.
 * Locking: lock held, and released during the wait. */
void persist_wait_busy(struct cairn_persist *heap);

/* Clears `flushing` or `checkpointing` and wakes the waiting threads.
 * Locking: lock held. */
void persist_end_busy(struct cairn_persist *heap, bool *mark);

/* Moves about `pages_most` pages of the sealed segment to the heap's file. Does nothing when there
 * is no sealed segment, or when another thread is moving it.
 * Locking: lock not held.
 * Returns: 0 or a negative errno. */
int checkpoint_some(struct cairn_persist *heap, size_t pages_most);

/* Moves the rest of the sealed segment to the heap's file. Waits for another thread that is moving
 * it.
 * Locking: lock not held.
 * Returns: 0 or a negative errno. */
int checkpoint_sealed(struct cairn_persist *heap);

/* Makes a segment the current one, without any commit.
 * Locking: lock held, except during open. */
void segment_begin(struct cairn_persist *heap, unsigned index);

/* Seals the current segment, which is durable, and begins the other one, which is free.
 * Locking: lock held. */
void segment_seal(struct cairn_persist *heap);

/* Replays the log to the heap's file and writes a header with the new checkpoint. *why says what is
 * wrong.
 * Returns: 0 or a negative errno. */
int recover_to_file(struct cairn_persist *heap, const char **why);

/* Replays the log to the private pages in memory. *why says what is wrong.
 * Returns: 0 or a negative errno. */
int recover_to_memory(struct cairn_persist *heap, const char **why);

/* Drops private copies of clean pages whose contents the heap's file holds, about `most` of them.
 * Locking: lock held. No thread may write to the heap.
 * Returns: 0 or a negative errno. */
int persist_release_clean(struct cairn_persist *heap, size_t most);

/* Restores the last committed image of all dirty pages, which are clean then.
 * Locking: lock held. No thread may write to the heap.
 * Returns: 0 or a negative errno. */
int persist_restore_all(struct cairn_persist *heap);

/* Whether the heap has no commit and so no state yet. */
bool persist_is_new(const struct cairn_persist *heap);

/* Creates the state and the blocks of a new heap.
 * Returns: 0 or a negative errno. */
int persist_set_up(struct cairn_persist *heap);

/* Allocates a block; the heap grows if necessary.
 * Locking: lock held.
 * Returns: NULL, with errno set, when out of memory or when `align` is invalid. */
void *persist_allocate(struct cairn_persist *heap, size_t size, size_t align);

/* Frees a block, and notes the pages that now hold free memory only.
 * Locking: lock held. */
void persist_free(struct cairn_persist *heap, void *block);

/* Checks the list of roots.
 * Locking: lock held.
 * Returns: NULL, or what is wrong. */
const char *persist_check_roots(const struct cairn_persist *heap);

/* The check of every open: the state, and TLSF's structure.
 * Returns: NULL, or what is wrong. */
const char *persist_check_state(const struct cairn_persist *heap);

/* The files of the persistent heap, which persist_open.c opens and closes. */

/* Opens the heap's file and locks it. If there is none and the options allow it, a new one with
 * `data_bytes` of data is made. *why says what is wrong.
 * Returns: a file descriptor or a negative errno. */
int files_open(const char *path, const struct cairn_persist_options *options, size_t data_bytes,
               const char **why);

/* Opens the log's files that exist, and refuses those that do not belong to the heap, as their
 * heads show. *why says what is wrong.
 * Returns: 0 or a negative errno. */
int files_open_logs(struct cairn_persist *heap, const char **why);

/* Makes both log's files empty logs of the header's session, durable.
 * Returns: 0 or a negative errno. */
int files_begin_logs(struct cairn_persist *heap);

/* Removes the log's files. The header says that the heap does not need them. */
void files_remove_logs(const struct cairn_persist *heap);

/* Closes all files of the heap, which also unlocks it. */
void files_close(struct cairn_persist *heap);

#endif
