/* Persistent heap: a heap in a file whose contents survive the end of the program, a kill and a
 * power loss.
 *
 * The program allocates blocks and writes to them with plain stores. A commit makes the state of
 * the whole heap durable. After a crash at any instant, the heap opens in the state of the last
 * acknowledged commit, or of a later one that was in progress; it never opens in a state in
 * between.
 *
 * Use a persistent heap for data structures that should still exist at the next start, without a
 * format of files to write and parse. Do not use a persistent heap for many small independent
 * transactions by many threads: a commit covers the whole heap and writes whole pages. A database
 * does that better. For a heap that need not survive, use cairn/private_heap.h.
 *
 * Example:
 *
 *     #include <cairn/persist.h>
 *
 *     struct visits {
 *         unsigned long count;
 *     };
 *
 *     int count_visit(const char *path)
 *     {
 *         cairn_persist_options options = {.flags = CAIRN_PERSIST_CREATE};
 *         cairn_persist *heap = cairn_persist_open(path, &options);
 *         if (heap == NULL)
 *             return -1;
 *         int error = 0;
 *         struct visits *visits = cairn_persist_get_root(heap, "visits");
 *         if (visits == NULL) { // the first start
 *             cairn_allocator from = cairn_persist_allocator(heap);
 *             visits = cairn_allocator_alloc_zero(from, sizeof *visits, 8);
 *             error = visits == NULL ? -1 : cairn_persist_set_root(heap, "visits", visits);
 *         }
 *         if (error == 0) {
 *             visits->count++;
 *             error = cairn_persist_commit(heap);
 *         }
 *         int closed = cairn_persist_close(heap);
 *         return error != 0 ? error : closed;
 *     }
 *
 * Method: the file is mapped privately, so the kernel copies each page that is written and knows
 * these pages. A commit appends the pages written since the previous commit to a log next to the
 * heap and waits for one fdatasync. Later the logged pages are written to their places in the file.
 * docs/PERSISTENT.md explains more.
 *
 * Files: PATH; and PATH.log0 and PATH.log1 while the heap is open or after a crash. They belong
 * together. A closed heap is one file. One process that writes, or any number of processes that
 * read, can open it; others get EBUSY.
 *
 * Addresses: an open first tries the address of the previous time, so plain pointers into the heap
 * usually stay valid. With CAIRN_PERSIST_FIXED the open fails otherwise. A cairn_offset is valid at
 * every address.
 *
 * Threads: any thread may allocate, resize, free and use roots at any time. A commit contains
 * everything that happened before it began. A write by another thread during cairn_persist_commit
 * or cairn_persist_commit_async is part of this commit or of the next one, possibly in parts: to
 * commit whole transactions, keep other threads from writing meanwhile.
 *
 * Failure: functions that return int return 0 or a number of errno.
 *
 * Cost: reads and writes cost as much as in other memory, except the first write to each page after
 * a commit, which the kernel handles. A commit writes each changed page and waits for one
 * fdatasync.
 *
 * Caveats:
 *  - No signal handler may call a function of this header.
 *  - During abort and trim, and with CAIRN_PERSIST_WRITERS_PAUSE during commits, no other thread
 *    may write to the heap's memory: its writes would be lost.
 *  - A child of fork has a copy of the pages that were written before the fork. In other pages it
 *    may see later commits of its parent. Its own commits, aborts and growth fail with EPERM, and
 *    it holds the lock of the file as long as it lives.
 *  - After an error of fdatasync the heap accepts no more commits until it is opened again.
 *  - With CAIRN_PERSIST_PROTECT, system calls cannot write to the heap.
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

/* An open persistent heap. */
typedef struct cairn_persist cairn_persist;

/* ---- open and close ----------------------------------------------------------------------- */

/* Flags of cairn_persist_open. */
enum {
    CAIRN_PERSIST_CREATE = 1 << 0,    /* create the heap if the file does not exist */
    CAIRN_PERSIST_READ_ONLY = 1 << 1, /* write neither to the heap nor to the file system */
    CAIRN_PERSIST_FIXED = 1 << 2,     /* at the previous address, or fail: EADDRNOTAVAIL */
    /* The program promises that no other thread writes to the heap during a commit. Commits then
     * also return the memory of copied pages whose contents have reached the file. */
    CAIRN_PERSIST_WRITERS_PAUSE = 1 << 3,
    CAIRN_PERSIST_CHECK = 1 << 4, /* check everything first, as cairn_persist_check does: EBADMSG */
};

/* Ways to find the pages that were written. A way that the kernel does not have fails with
 * ENOTSUP. */
enum cairn_persist_tracking {
    CAIRN_PERSIST_AUTO,      /* the first of the following that works here */
    CAIRN_PERSIST_USERFAULT, /* PAGEMAP_SCAN and userfaultfd: Linux 6.7 */
    CAIRN_PERSIST_SCAN,      /* PAGEMAP_SCAN alone; compares copied pages with the last commit */
    CAIRN_PERSIST_PAGEMAP,   /* as SCAN, by /proc/self/pagemap: any Linux */
    CAIRN_PERSIST_PROTECT,   /* mprotect and SIGSEGV: slow; system calls cannot write to the heap */
};

/* Options of cairn_persist_open. All zero: open an existing heap, choose everything. */
typedef struct cairn_persist_options {
    unsigned flags;
    enum cairn_persist_tracking tracking;
    void *address;         /* of a new heap, a multiple of 64 KiB; NULL: any */
    size_t size_bytes;     /* first size of a new heap, which grows as needed. 0: 1 MiB */
    size_t capacity_bytes; /* address space to grow into. 0: 16 GiB, or four times the file */
    size_t log_bytes;      /* bound of the log and so of the time of a recovery. 0: 64 MiB */
    /* If not NULL, receives a sentence with the reason of a failed open. The sentence is valid
     * until 15 further opens of this process have failed. */
    const char **why;
} cairn_persist_options;

/* Opens the heap in the file `path`, and recovers it first if its last user crashed. A recovery
 * changes the file only after it has checked everything that it found. `options` may be NULL.
 * Returns: the heap, or NULL with errno:
 *  - EBUSY: the heap is in use;
 *  - ENOENT: no such file;
 *  - ENODATA: it was opened for reading only, and nothing was ever committed to it;
 *  - EBADMSG: it is damaged, or its files do not lead to the last acknowledged commit;
 *  - ENOTSUP: it has another version or page size, or is no heap, or the kernel lacks the requested
 *    way of tracking;
 *  - EADDRNOTAVAIL: its address is not available;
 *  - EINVAL: an unknown flag or way of tracking;
 *  - other errors come from the file system. */
CAIRN_API CAIRN_NODISCARD cairn_persist *
cairn_persist_open(const char *path, const cairn_persist_options *options) CAIRN_NOEXCEPT;

/* Closes the heap. Changes since the last commit are lost. NULL is ignored.
 * Returns: 0, or an error if the log could not be written to the file of the heap. Nothing is lost
 * then: the next open does it.
 * Threads: no thread may be inside a call for this heap. */
CAIRN_API int cairn_persist_close(cairn_persist *heap) CAIRN_NOEXCEPT;

/* ---- blocks and roots --------------------------------------------------------------------- */

/* Makes a cairn_allocator (cairn/allocator.h) that allocates blocks of the heap. The
 * cairn_allocator is valid until the close. A heap that is open for reading only gives no blocks.
 * Threads: any thread. */
CAIRN_API cairn_allocator cairn_persist_allocator(cairn_persist *heap) CAIRN_NOEXCEPT;

/* Sets the root `name`, 1 to 255 bytes, to `block`, or changes it. A root is a name under which the
 * program finds a block again; a commit makes it durable.
 * Returns: 0; ENOMEM if there is no memory for a new name; EINVAL for a wrong name or a block
 * outside the heap; EROFS if the heap is open for reading only.
 * Cost: proportional to the number of roots. */
CAIRN_API int cairn_persist_set_root(cairn_persist *heap, const char *name,
                                     void *block) CAIRN_NOEXCEPT;

/* Finds the block of the root `name`.
 * Returns: the block; NULL if there is no such root or it is set to NULL.
 * Cost: proportional to the number of roots. */
CAIRN_API void *cairn_persist_get_root(cairn_persist *heap, const char *name) CAIRN_NOEXCEPT;

/* Removes the root `name`, but not its block.
 * Returns: 0; ENOENT if there is no such root; EROFS if the heap is open for reading only.
 * Cost: proportional to the number of roots. */
CAIRN_API int cairn_persist_remove_root(cairn_persist *heap, const char *name) CAIRN_NOEXCEPT;

/* A function that cairn_persist_walk_roots calls for one root. The function returns false to end
 * the walk. */
typedef bool cairn_persist_visit(const char *name, void *block, void *context);

/* Calls `visit` with `context` for all roots, the newest name first, until it returns false.
 * `visit` must not call a function of this heap. */
CAIRN_API void cairn_persist_walk_roots(cairn_persist *heap, cairn_persist_visit *visit,
                                        void *context);

/* ---- commit and abort --------------------------------------------------------------------- */

/* Makes the state of the heap durable.
 * Returns: 0; EROFS or EPERM if this process may not commit; else an error, and the state is not
 * committed. After ENOSPC, EFBIG and most others the program's memory is unchanged and the commit
 * may be tried again. After an error of fdatasync it is unknown whether the state is durable, and
 * the heap accepts no more commits until it is opened again.
 * Cost: writes the changed pages and waits for one fdatasync. */
CAIRN_API CAIRN_NODISCARD int cairn_persist_commit(cairn_persist *heap) CAIRN_NOEXCEPT;

/* The number of a commit, for cairn_persist_wait. */
typedef uint64_t cairn_persist_ticket;

/* Begins a commit: fixes the state that is committed, appends it to the log and stores its number
 * in *ticket. cairn_persist_wait completes it. Several commits can share one fdatasync. A commit
 * for which no thread waits may or may not be durable after a crash.
 * Returns: 0 or an error, as cairn_persist_commit does. */
CAIRN_API CAIRN_NODISCARD int
cairn_persist_commit_async(cairn_persist *heap, cairn_persist_ticket *ticket) CAIRN_NOEXCEPT;

/* Waits until the commit `ticket` and all earlier ones are durable.
 * Returns: 0 or an error, as cairn_persist_commit does.
 * Threads: any thread; other threads may write to the heap meanwhile. */
CAIRN_API CAIRN_NODISCARD int cairn_persist_wait(cairn_persist *heap,
                                                 cairn_persist_ticket ticket) CAIRN_NOEXCEPT;

/* Restores the state of the last commit or cairn_persist_commit_async, in place; before the first
 * one that of an empty heap. Blocks allocated since then no longer exist; blocks freed since then
 * exist again.
 * Returns: 0 or an error.
 * Threads: no other thread may write to the heap's memory meanwhile. */
CAIRN_API int cairn_persist_abort(cairn_persist *heap) CAIRN_NOEXCEPT;

/* Writes all logged pages to the file of the heap. Commits do a part of this work each; a thread of
 * the program can call this function to relieve them.
 * Returns: 0 or an error.
 * Threads: any thread, at the same time as every other function except close. */
CAIRN_API int cairn_persist_checkpoint(cairn_persist *heap) CAIRN_NOEXCEPT;

/* ---- size and inspection ------------------------------------------------------------------ */

/* Grows the heap to `size` bytes now, so that later allocations need not. A smaller size changes
 * nothing.
 * Returns: 0; ENOMEM beyond the capacity; else the error of the file system. */
CAIRN_API int cairn_persist_grow(cairn_persist *heap, size_t size) CAIRN_NOEXCEPT;

/* Writes the committed state to the file, then returns the memory of copied pages to the system,
 * and the disk space of pages without blocks in use to the file system.
 * Returns: 0; EBUSY if there are uncommitted changes.
 * Threads: no other thread may write to the heap's memory meanwhile.
 * Cost: visits all blocks. */
CAIRN_API int cairn_persist_trim(cairn_persist *heap) CAIRN_NOEXCEPT;

/* Checks the whole heap. The check follows no pointer that it has not checked.
 * Returns: NULL if everything is sound, else a sentence that names what is not. */
CAIRN_API const char *cairn_persist_check(cairn_persist *heap) CAIRN_NOEXCEPT;

/* Statistics of one heap. */
typedef struct cairn_persist_stats {
    void *address;                        /* start of the mapping */
    bool moved;                           /* it is not at its previous address */
    enum cairn_persist_tracking tracking; /* way in use */
    size_t size_bytes;                    /* size of the heap */
    size_t capacity_bytes;                /* largest size that it can grow to */
    size_t used_bytes;                    /* blocks in use, with their headers */
    size_t free_bytes;                    /* free blocks */
    size_t used_blocks;                   /* blocks in use, those of roots included */
    uint64_t last_commit;                 /* number of the last commit since the heap was made */
    uint64_t durable_commit;              /* number of the last durable commit */
    uint64_t recovered_commits;           /* commits that this open found in the log */
    uint64_t log_bytes;                   /* bytes in the log, not yet in the file */
    uint64_t logged_pages;                /* pages logged since the open */
    uint64_t logged_bytes;                /* bytes logged for these pages */
    uint64_t skipped_pages;               /* pages not logged, having free blocks only */
    uint64_t syncs;                       /* fdatasyncs of the log since the open */
    int error;                            /* reason why commits fail, or 0 */
} cairn_persist_stats;

/* Fills *stats. */
CAIRN_API void cairn_persist_read_stats(cairn_persist *heap,
                                        cairn_persist_stats *stats) CAIRN_NOEXCEPT;

/* Stores the number of pages that a commit would find now in *pages.
 * Returns: 0 or an error.
 * Cost: that of finding them in a commit. The call is too expensive to poll. */
CAIRN_API int cairn_persist_count_dirty(cairn_persist *heap, size_t *pages) CAIRN_NOEXCEPT;

/* ---- pointers that move with the heap ----------------------------------------------------- */

/* A pointer that stays valid when the heap is mapped at another address: the distance from itself
 * to its target; all zero is NULL. The offset is valid as long as both are in one heap. Do not copy
 * it as bytes: get the pointer, and set the other offset. */
typedef struct cairn_offset {
    uint64_t distance; /* bit 63 set: to itself; else sign-extended from bit 62 */
} cairn_offset;

/* Returns: the target, or NULL. */
static inline void *cairn_offset_get(const cairn_offset *from)
{
    uint64_t distance = (uint64_t)((int64_t)(from->distance << 1) >> 1);
    return from->distance == 0 ? NULL : (void *)((uintptr_t)from + (uintptr_t)distance);
}

/* Sets the target to `to`, which may be NULL. */
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
