/* The persistent heap while it is open: its parts, and which file owns which.
 *
 * Files, each calling only earlier ones: persist_header.c (the twin headers), persist_log.c (chunks
 * written, read and judged), persist_space.c (addresses and mapping), persist_dirty.c (which pages
 * were written), persist_flush.c (making the log durable), persist_checkpoint.c (from the log to
 * the file), persist_commit.c (the protocol; the argument why it is right stands there),
 * persist_abort.c, persist_recover.c, persist_allocator.c, persist_roots.c, persist_inspect.c,
 * persist_open.c.
 *
 * Locks, in their order: `lock`, then `header_lock`. Unlike elsewhere `lock` is held over system
 * calls, by commit (capture), abort, growth and trim: what they do has to exclude allocation, and
 * they wait for the disk anyway. Waiting for an fdatasync of the log or for a checkpoint holds no
 * lock but marks itself busy; who waits for its end waits for `generation` to change.
 *
 * A segment of the log:
 *
 *     FREE    --commit begins to use it-->   CURRENT      (segment_begin)
 *     CURRENT --it is full, and durable-->   SEALED       (segment_seal)
 *     SEALED  --all of it is in the file-->  FREE         (segment_end)
 *
 * One segment is CURRENT while the heap is open for writing. Equations:
 *     durable <= written; checkpoint of the header <= durable
 *     SEALED.last + 1 == CURRENT.first, once CURRENT has commits
 */
#ifndef CAIRN_REGION_PERSIST_HEAP_H
#define CAIRN_REGION_PERSIST_HEAP_H

#include "base/atomic.h"
#include "page/page.h"
#include "region/persist_format.h"

struct cairn_tlsf;

enum { PERSIST_PATH_MOST = 4096 };

enum segment_state { SEGMENT_FREE, SEGMENT_CURRENT, SEGMENT_SEALED };

struct segment {
    int file;                 /* const after open */
    enum segment_state state; /* lock: lock */
    uint64_t length;          /* lock: lock; const while sealed: of the whole commits in it */
    uint64_t room;            /* lock: lock: the file's size */
    uint64_t last;            /* lock: lock: its last commit */
    uint64_t *where;          /* lock: lock; const while sealed: by page, its image; 0: none */
    uint64_t *logged;         /* lock: lock; const while sealed: bitmap of where != 0 */
};

/* The way of persist_dirty.c. */
struct tracker {
    enum cairn_persist_tracking way; /* const after open */
    int userfault;                   /* const after open; -1 */
    int pagemap;                     /* const after open; -1 */
    uint64_t *armed;                 /* lock: lock: bitmap by stretches: see persist_dirty.c */
    uint64_t *trapped;               /* atomic: bitmap, set by the handler of SIGSEGV */
    uint32_t trap_lock;              /* atomic: 1 while the handler or a capture is at work */
};

struct cairn_persist {
    uint64_t magic;               /* const until closed */
    char *base;                   /* const after open: the data */
    size_t capacity_bytes;        /* const after open: reserved at base */
    size_t page_bytes;            /* const after open */
    unsigned flags;               /* const after open */
    uint32_t process;             /* const after open: who may commit */
    bool moved;                   /* const after open */
    int file;                     /* const after open */
    uint64_t log_limit;           /* const after open: a segment is full from here on */
    uint64_t recovered;           /* const after open: commits found in the log */
    char path[PERSIST_PATH_MOST]; /* const after open: of the heap's file, absolute */
    void *own_memory;             /* const after open: of bitmaps, tables and buffers */
    size_t own_bytes;             /* const after open */

    struct fork_lock lock;
    size_t mapped_bytes; /* lock: lock: of the file at base; a multiple of the page size */
    struct segment segments[2];
    unsigned current;    /* lock: lock: the current segment */
    uint64_t written;    /* lock: lock: the last commit in the log */
    uint64_t durable;    /* lock: lock: the last commit known to be durable */
    int error;           /* lock: lock: of an fdatasync; refuses all commits from then on */
    bool flushing;       /* lock: lock: a thread is within the log's fdatasync */
    bool checkpointing;  /* lock: lock: a thread moves the sealed segment to the file */
    uint32_t generation; /* atomic: changes whenever one of these ends */
    uint64_t *dirty;     /* lock: lock: bitmap, written and not committed, as far as found */
    uint64_t *dead;      /* lock: lock: bitmap, pages that hold nothing but free memory */
    uint64_t *kept;      /* lock: lock: bitmap, pages that may have a private copy */
    char *buffer;        /* lock: lock: the chunk that is built, or a page to compare with */
    struct tracker tracker;

    struct fork_lock header_lock; /* of no concern to fork: the child writes no header */
    struct persist_header header; /* lock: header_lock */
    int file_error;               /* lock: header_lock: of an fdatasync of the heap's file */

    uint64_t cursor;         /* whoever is checkpointing: the next page to be moved */
    char *checkpoint_buffer; /* whoever is checkpointing */

    uint64_t logged_pages, logged_bytes, skipped_pages, syncs; /* lock: lock */
};

#define PERSIST_HEAP_MAGIC 0x7061656874737250u

enum { CHECKPOINT_RUN_PAGES = 64 }; /* at most so many neighbours are moved by one write */

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
    return load_relaxed(&heap->mapped_bytes) / heap->page_bytes; /* a checkpoint asks unlocked */
}
inline_always bool bit_is_set(const uint64_t *words, size_t bit)
{
    return (words[bit / 64] >> bit % 64 & 1) != 0;
}

/* The first set bit from `from` on, `end` when there is none. */
size_t bit_find(const uint64_t *words, size_t from, size_t end);

/* persist_header.c. 0 or a negative errno; *why says what is wrong. */
int header_read(int file, struct persist_header *header, const char **why);
int header_write(int file, struct persist_header *header); /* counts its turn, durable */

/* persist_log.c */
struct log_end {
    uint64_t first;  /* sequence of the first whole chunk, 0: none */
    uint64_t last;   /* of the last whole commit of the row from `first` on, or first - 1 */
    uint64_t length; /* up to its end */
    uint64_t later;  /* beyond it: the greatest `durable` of any whole chunk */
};
typedef int log_visit(void *context, uint64_t page, const char *image, uint64_t offset);
/* Walks the commits from the start on. 0 or a negative errno (of reading or of the visitor). */
int log_walk(int file, uint64_t seed, size_t page_bytes, char *buffer, uint64_t most_bytes,
             struct log_end *end, log_visit *visit, void *context);
/* Appends the dirty live pages to the current segment as commit `sequence`; *bytes long. */
int log_append(struct cairn_persist *heap, uint64_t sequence, size_t pages, uint64_t *bytes);
/* Of pages that other threads may be writing to. */
void page_copy(void *to, const void *page, size_t page_bytes);
bool page_differs(const void *image, const void *page, size_t page_bytes);
/* The last committed image of a page, into `to`. */
int log_read_image(const struct cairn_persist *heap, size_t page, char *to);

/* persist_space.c */
int space_reserve(struct cairn_persist *heap, uintptr_t wanted, bool demanded);
int space_map(struct cairn_persist *heap, size_t data_bytes);    /* up to there, after open */
int space_extend(struct cairn_persist *heap, size_t data_bytes); /* lock held: file and mapping */

/* persist_dirty.c */
int dirty_start(struct cairn_persist *heap, enum cairn_persist_tracking way);
void dirty_end(struct cairn_persist *heap);
int dirty_watch(struct cairn_persist *heap, size_t from_bytes, size_t to_bytes); /* newly mapped */
int dirty_find(struct cairn_persist *heap);   /* adds to heap->dirty */
int dirty_forget(struct cairn_persist *heap); /* what was written until now counts as clean */

/* persist_flush.c */
int persist_refusal(const struct cairn_persist *heap); /* why this process may not; positive */
int persist_flush(struct cairn_persist *heap); /* lock held, over the fdatasync, too; !flushing */
int persist_wait_durable(struct cairn_persist *heap, uint64_t sequence); /* positive */
void persist_wait_busy(struct cairn_persist *heap); /* lock held, but not while waiting */
void persist_end_busy(struct cairn_persist *heap, bool *mark); /* lock held */

/* persist_checkpoint.c */
int checkpoint_some(struct cairn_persist *heap, size_t pages_most); /* 0 also when there is none */
int checkpoint_sealed(struct cairn_persist *heap);                  /* to its end */
void segment_begin(struct cairn_persist *heap, unsigned index);     /* lock held */
void segment_seal(struct cairn_persist *heap);                      /* lock held, durable */

/* persist_recover.c */
int recover_to_file(struct cairn_persist *heap, const char **why);
int recover_to_memory(struct cairn_persist *heap, const char **why);

/* persist_abort.c */
int persist_release_clean(struct cairn_persist *heap, size_t most); /* lock held: copies go */

/* persist_allocator.c */
int persist_set_up(struct cairn_persist *heap); /* a new heap's state and blocks */
void *persist_allocate(struct cairn_persist *heap, size_t size, size_t align); /* lock held */
void persist_free(struct cairn_persist *heap, void *block);                    /* lock held */

/* persist_roots.c */
const char *persist_check_roots(const struct cairn_persist *heap);

/* persist_inspect.c */
const char *persist_check_state(const struct cairn_persist *heap); /* what open looks at */

#endif
