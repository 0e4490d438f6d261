/* Persistent heap: a heap in a file whose state survives the program, a kill and a power loss.
 *
 * The program allocates and writes with plain stores. A commit makes the heap's state durable as a
 * whole: after a crash at any instant the heap opens in the state of the last commit that was
 * acknowledged, or of a later one that was under way, whole; never anything between.
 *
 *     cairn_persist_options options = {.flags = CAIRN_PERSIST_CREATE};
 *     cairn_persist *heap = cairn_persist_open("visits.heap", &options);
 *     struct visits *visits = cairn_persist_get_root(heap, "visits");
 *     if (visits == NULL) {
 *         visits = cairn_allocator_alloc(cairn_persist_allocator(heap), sizeof *visits, 8);
 *         visits->count = 0;
 *         cairn_persist_set_root(heap, "visits", visits);
 *     }
 *     visits->count++;
 *     if (cairn_persist_commit(heap) != 0)
 *         …
 *     cairn_persist_close(heap);
 *
 * How: the file is mapped privately, so what is written are copied pages, which the kernel knows. A
 * commit appends the pages written since the last one to a log beside the heap and waits for one
 * fdatasync; later the logged pages go to their places in the file. docs/PERSISTENT.md says more.
 *
 * Files: PATH, and while it is open or after a crash PATH.log0 and PATH.log1. They belong together.
 * A heap that was closed is one file. It can be opened by one process that writes or any number
 * that read; one more is refused with EBUSY.
 *
 * Addresses: the address of the last time is tried first, so plain pointers into the heap usually
 * survive; CAIRN_PERSIST_FIXED demands it. cairn_offset always works.
 *
 * Threads: alloc, resize, free and roots by any thread at any time. A commit holds all that
 * happened before it began. What other threads write into blocks while cairn_persist_commit or
 * cairn_persist_commit_async runs is in this commit or in the next, possibly in part: who wants
 * whole transactions keeps others from writing meanwhile. cairn_persist_wait needs nothing of that.
 * During abort and trim, and with CAIRN_PERSIST_WRITERS_PAUSE during commits, no other thread may
 * write to the heap's memory: what it writes is lost.
 *
 * fork: the child has a copy of the heap of its own; its commits, aborts and growth are refused
 * (EPERM). As long as it lives it keeps the file's lock.
 *
 * Functions return 0 or an error number. No function may be called by a signal handler.
 */
#ifndef CAIRN_PERSIST_H
#define CAIRN_PERSIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cairn/allocator.h>
#include <cairn/api.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cairn_persist cairn_persist;

/* ---- open and close ----------------------------------------------------------------------- */

enum {
    CAIRN_PERSIST_CREATE = 1 << 0,    /* make the heap if there is no such file */
    CAIRN_PERSIST_READ_ONLY = 1 << 1, /* no write, not even to the file system */
    CAIRN_PERSIST_FIXED = 1 << 2,     /* at the address of the last time, or fail: EADDRNOTAVAIL */
    /* No other thread writes to the heap's memory during a commit. Commits then also give back the
     * memory of copied pages whose contents have reached the file. */
    CAIRN_PERSIST_WRITERS_PAUSE = 1 << 3,
    CAIRN_PERSIST_CHECK = 1 << 4, /* walk everything first, as cairn_persist_check: EBADMSG */
};

/* How the pages that were written are found. A way that the kernel has not is ENOTSUP. */
enum cairn_persist_tracking {
    CAIRN_PERSIST_AUTO,      /* the first of the following that works here */
    CAIRN_PERSIST_USERFAULT, /* PAGEMAP_SCAN and userfaultfd: Linux 6.7 */
    CAIRN_PERSIST_SCAN,      /* PAGEMAP_SCAN alone; compares copied pages with the last commit */
    CAIRN_PERSIST_PAGEMAP,   /* the same by /proc/self/pagemap: any Linux */
    CAIRN_PERSIST_PROTECT,   /* mprotect and SIGSEGV: slow; system calls cannot write to the heap */
};

typedef struct cairn_persist_options {
    unsigned flags;
    enum cairn_persist_tracking tracking;
    void *address;         /* of a new heap, a multiple of 64 KiB; NULL: chosen */
    size_t size_bytes;     /* of a new heap; it grows by itself. 0: 1 MiB */
    size_t capacity_bytes; /* address space to grow into. 0: 16 GiB, or four times the file */
    size_t log_bytes;      /* bounds the log and with it the time of recovery. 0: 64 MiB */
    const char **why;      /* if not NULL: where a sentence goes that says why the open failed */
} cairn_persist_options;

/* NULL with errno: EBUSY in use, ENOENT no such heap, ENODATA nothing was ever committed to it (for
 * reading only), EBADMSG damaged, ENOTSUP another version or page size or not a heap,
 * EADDRNOTAVAIL, or what the file system says. `options` NULL: all 0.
 * Recovers first when the last user crashed; the file is changed only once all that was found is
 * sound. */
CAIRN_API CAIRN_NODISCARD cairn_persist *
cairn_persist_open(const char *path, const cairn_persist_options *options) CAIRN_NOEXCEPT;

/* Ends the use. What is not committed is lost. NULL is ignored. An error says that the log could
 * not be brought to the heap's file: the next open does so, nothing is lost. No thread may be
 * within a call. */
CAIRN_API int cairn_persist_close(cairn_persist *heap) CAIRN_NOEXCEPT;

/* ---- blocks and roots --------------------------------------------------------------------- */

/* See cairn/allocator.h. Any thread. A heap opened for reading only gives no blocks. */
CAIRN_API cairn_allocator cairn_persist_allocator(cairn_persist *heap) CAIRN_NOEXCEPT;

/* A root is a name under which a block is found again: 1 to 255 bytes. Set replaces, and needs
 * memory for a new name: ENOMEM. NULL: no such root, or one set to NULL. Remove: ENOENT. They are
 * part of the state that a commit makes durable. Cost: in proportion to the number of roots. */
CAIRN_API int cairn_persist_set_root(cairn_persist *heap, const char *name,
                                     void *block) CAIRN_NOEXCEPT;
CAIRN_API void *cairn_persist_get_root(cairn_persist *heap, const char *name) CAIRN_NOEXCEPT;
CAIRN_API int cairn_persist_remove_root(cairn_persist *heap, const char *name) CAIRN_NOEXCEPT;

/* Calls `visit` for all roots, newest name first, until it says false. It may not change roots. */
typedef bool cairn_persist_visit(const char *name, void *block, void *context);
CAIRN_API void cairn_persist_walk_roots(cairn_persist *heap, cairn_persist_visit *visit,
                                        void *context);

/* ---- commit and abort --------------------------------------------------------------------- */

/* Makes the heap's state durable. On an error it is not committed, the program's memory stays as
 * it is, and commit may be tried again (ENOSPC, EFBIG), unless the error is that of an fdatasync:
 * then it is not known whether the state is durable, and the heap takes no more commits until it is
 * opened again. EROFS, EPERM: not by this process. */
CAIRN_API CAIRN_NODISCARD int cairn_persist_commit(cairn_persist *heap) CAIRN_NOEXCEPT;

/* The same in two steps, so that many commits share one fdatasync: commit_async fixes what is
 * committed and appends it to the log; wait returns when that commit, and with it every earlier
 * one, is durable. Any thread may wait. A ticket that was never waited for is as good as a commit
 * under way. */
typedef uint64_t cairn_persist_ticket;
CAIRN_API CAIRN_NODISCARD int
cairn_persist_commit_async(cairn_persist *heap, cairn_persist_ticket *ticket) CAIRN_NOEXCEPT;
CAIRN_API CAIRN_NODISCARD int cairn_persist_wait(cairn_persist *heap,
                                                 cairn_persist_ticket ticket) CAIRN_NOEXCEPT;

/* Back to the state of the last commit (or commit_async), in place. Blocks allocated since do not
 * exist any more, blocks freed since do again. */
CAIRN_API int cairn_persist_abort(cairn_persist *heap) CAIRN_NOEXCEPT;

/* Brings all that is logged to the heap's file, which commits do bit by bit. Any thread, beside
 * anything but close: for a thread of the program's own that takes this work off the commits. */
CAIRN_API int cairn_persist_checkpoint(cairn_persist *heap) CAIRN_NOEXCEPT;

/* ---- size, and looking at it -------------------------------------------------------------- */

/* Grows the heap to `size` bytes at once, so that allocations need not. ENOMEM beyond the capacity,
 * or what the file system says. A smaller size changes nothing. */
CAIRN_API int cairn_persist_grow(cairn_persist *heap, size_t size) CAIRN_NOEXCEPT;

/* After a checkpoint of what is committed: gives back the memory of copied pages, and the disk
 * space of pages that hold free blocks only. EBUSY when something is not committed. Cost: walks
 * all blocks. */
CAIRN_API int cairn_persist_trim(cairn_persist *heap) CAIRN_NOEXCEPT;

/* Walks everything: NULL when all is sound, else what is not. Never follows what it has not
 * checked. */
CAIRN_API const char *cairn_persist_check(cairn_persist *heap) CAIRN_NOEXCEPT;

typedef struct cairn_persist_stats {
    void *address;                        /* of the mapping */
    bool moved;                           /* not where it was the last time */
    enum cairn_persist_tracking tracking; /* the way in use */
    size_t size_bytes;                    /* of the heap */
    size_t capacity_bytes;                /* that it can grow to */
    size_t used_bytes;                    /* in blocks in use, headers included */
    size_t free_bytes;                    /* in free blocks */
    size_t used_blocks;                   /* roots' own included */
    uint64_t last_commit;                 /* number of the last commit since the heap was made */
    uint64_t durable_commit;              /* number of the last one known to be durable */
    uint64_t recovered_commits;           /* found in the log by this open */
    uint64_t log_bytes;                   /* in the log, not yet in the file */
    uint64_t logged_pages;                /* since the open */
    uint64_t logged_bytes;                /* the same with all that belongs to them */
    uint64_t skipped_pages;               /* written, but of free blocks only, and so not logged */
    uint64_t syncs;                       /* fdatasyncs of the log since the open */
    int error;                            /* why commits are refused, 0 */
} cairn_persist_stats;
CAIRN_API void cairn_persist_read_stats(cairn_persist *heap,
                                        cairn_persist_stats *stats) CAIRN_NOEXCEPT;

/* Writes the number of pages that a commit would find now, to *pages. Not for CAIRN_PERSIST_AUTO
 * loops: costs what finding them costs. */
CAIRN_API int cairn_persist_count_dirty(cairn_persist *heap, size_t *pages) CAIRN_NOEXCEPT;

/* ---- pointers that move with the heap ----------------------------------------------------- */

/* The distance from itself to what it points to; all zero is NULL. Valid as long as both lie in the
 * same heap. Not to be copied as bytes: get, and set the other. */
typedef struct cairn_offset {
    uint64_t distance; /* bit 63 set: to itself; else sign-extended from bit 62 */
} cairn_offset;

static inline void *cairn_offset_get(const cairn_offset *from)
{
    uint64_t distance = (uint64_t)((int64_t)(from->distance << 1) >> 1);
    return from->distance == 0 ? NULL : (void *)((uintptr_t)from + (uintptr_t)distance);
}

static inline void cairn_offset_set(cairn_offset *from, const void *to)
{
    uint64_t distance = (uint64_t)(uintptr_t)to - (uint64_t)(uintptr_t)from;
    if (to == NULL)
        from->distance = 0;
    else
        from->distance = distance == 0 ? (uint64_t)1 << 63 : distance & ~((uint64_t)1 << 63);
}

#ifdef __cplusplus
}
#endif
#endif
