/* The persistent heap's commit, abort and trim, and the protocol of commits.
 *
 * The promise: after a crash at any instant the heap opens in the state of commit k, where k is at
 * least the last acknowledged commit and at most the last commit that was begun.
 *
 * The assumption about the disk: a write of the program reaches it some time later, in any order
 * with other writes and in parts of 512 bytes. Each part has either its old or its new contents.
 * fdatasync returns 0 only when all writes to the file that returned before it began have reached
 * the disk.
 *
 * The steps of commit n (log_append, persist_log.c), and of a checkpoint up to commit c:
 *
 *     C1  append the chunks of n to the current segment, whose length ends with commit n - 1
 *     C2  fdatasync the segment
 *     C3  write the mark with n, without an fdatasync; then n and all before it are acknowledged
 *     S   (between commits) the current segment is flushed (C2, C3) and sealed; its last is c;
 *         the free segment becomes current, from its start
 *     K1  write the latest image of each page in the sealed segment to its place in the heap's file
 *     K2  fdatasync the file
 *     K3  write a header with checkpoint = c to the older of its two places, fdatasync
 *     K4  the sealed segment is free
 *
 * Recovery takes the newest sound header, of checkpoint h. Recovery finds the segment that begins
 * with h + 1, if there is one, and replays its whole commits in their order. It continues in the
 * other segment if that begins with the next number. Then it does the following steps; the open of
 * a heap that was closed begins with O2:
 *
 *     O1  fdatasync the file; a header with the commit that was reached, which asks for no log
 *     O2  empty both segments, write their heads with the new session, fdatasync each
 *     O3  a header with that session, which asks for the log; commits may begin
 *
 * Each header is written to the older of the two places, and an fdatasync follows.
 *
 * Why it is right. The file's data, with the images of commits h + 1 to k over them, are state k:
 *   (1) Data written by K1 belong to commits of the sealed segment. Until K3 is durable recovery
 *       begins with that segment's first commit or before, and its replay writes the latest image
 *       of each such page over the part of K1 that has reached the disk. Nothing else
 *       writes data; a trim only makes holes in free memory of a durable commit.
 *   (2) When K3 is durable, K2 was before it: the data hold the state c, and no part of K1 is in
 *       flight. If K3 is cut, the other header is intact, with the checkpoint before, and the
 *       sealed segment is not touched before K3 has returned (K4): (1) holds.
 *   (3) A segment is overwritten from its start, and only when it is free, so when h is at least
 *       its last commit. Its remaining old chunks have numbers of at most h and are not replayed:
 *       the first chunk decides. The first chunk of the new commit has h + 1 or more. If it has
 *       more, the sealed segment holds h + 1, was flushed before (S), and is replayed first.
 *   (4) The chunks of one segment follow each other without gap, so commit n, if it is found whole,
 *       is found behind n - 1. If n is acknowledged, C2 was after C1 of n and of all before it.
 *       So recovery reaches the last acknowledged commit. A commit that was cut fails its checksum
 *       (one accident in 2^64), and nothing behind it is read.
 *   (5) A commit that failed before its last chunk was written has no last chunk, so it is not
 *       whole. The next commit, with the same number, overwrites it from its first chunk on.
 *   (6) The numbers of commits that a crash lost are used again. A lost commit is not taken for the
 *       successor of a new one, because the checksums begin with a number of the opening
 *       (log_seed).
 *   (7) Recovery judges the contents of the disk: it settles log and headers before it reads them.
 *       So nothing that it writes rests on a commit or a header that a power loss could still take.
 *
 * Why no crash leaves files that an open refuses (persist_open.c lists the reasons to refuse):
 *   (8) C3 is after C2, so a mark that is found, on the disk or not, is of a commit that is on the
 *       disk, and by (4) found.
 *   (9) O2 is durable before O3 is written, so a header that asks for the log finds both heads with
 *       its session. No commit is written before O3 is durable. So a log of a later opening than
 *       that of a header which asks for no log holds no commit.
 *
 * When an fdatasync fails, the kernel may have dropped the data and forgotten about it. Then
 * nothing is known about the segment, so `error` refuses all commits until recovery has read the
 * disk.
 *
 * Group commit: capture (C1) holds the lock; C2 in persist_log.c serves all waiting threads.
 *
 * Abort: the last committed image of a dirty page is in the log, or else in the file. In the second
 * case it suffices to drop the private copy. An image from the log is copied into the page, which
 * the kernel regards as another write; so abort makes all pages clean at its end.
 *
 * Release: a private copy may be dropped when the file has the same contents. This is so when the
 * page was committed, is not dirty, and no segment of the log has it. A write between this check
 * and the drop would be lost. So release happens only where the interface says that no thread
 * writes.
 */
#include "os/file.h"
#include "os/memory.h"
#include "os/process.h"
#include "region/persist_heap.h"
#include "region/tlsf.h"

#include <errno.h>

/* Restores the last committed image of a page.
 * Locking: lock held. */
static int persist_restore_page(struct cairn_persist *heap, size_t page)
{
    char *start = heap->base + page * heap->page_bytes;
    bool logged =
        bit_is_set(heap->segments[0].logged, page) || bit_is_set(heap->segments[1].logged, page);
    if (!logged)
        return os_purge(start, heap->page_bytes);
    int error = log_read_image(heap, page, heap->buffer);
    if (error == 0)
        __builtin_memcpy(start, heap->buffer, heap->page_bytes);
    return error;
}

int persist_restore_all(struct cairn_persist *heap)
{
    size_t end = persist_pages(heap);
    /* Memory that is free now may have been in use at the last commit. */
    size_t bytes = (end + 63) / 64 * sizeof *heap->dead;
    __builtin_memset(heap->dead, 0, bytes);
    __builtin_memset(heap->freed, 0, bytes);
    int error = dirty_find(heap);
    for (size_t page = bit_find(heap->dirty, 0, end); error == 0 && page < end;
         page = bit_find(heap->dirty, page + 1, end))
        error = persist_restore_page(heap, page);
    return error == 0 ? dirty_forget(heap) : error;
}

/* The pages of one word of the bitmap whose private copies may be dropped. */
static uint64_t persist_releasable(const struct cairn_persist *heap, size_t word)
{
    return heap->kept[word] & ~heap->dirty[word] & ~heap->segments[0].logged[word] &
           ~heap->segments[1].logged[word];
}

int persist_release_clean(struct cairn_persist *heap, size_t most)
{
    size_t words = (persist_pages(heap) + 63) / 64;
    size_t released = 0;
    for (size_t i = 0; i < words && released < most; i++) {
        uint64_t pages = persist_releasable(heap, i);
        while (pages != 0) {
            unsigned first = lowest_bit(pages);
            uint64_t rest = ~(pages >> first);
            unsigned count = rest == 0 ? 64 : lowest_bit(rest);
            int error = os_purge(heap->base + (i * 64 + first) * heap->page_bytes,
                                 count * heap->page_bytes);
            if (error != 0)
                return error;
            bitmap_clear(heap->kept, i * 64 + first, count);
            released += count;
            pages = first + count == 64 ? 0 : pages & ~(uint64_t)0 << (first + count);
        }
    }
    return 0;
}

/* Drops all private copies.
 * Locking: lock held.
 * Returns: 0; -EBUSY when there are uncommitted writes; or another negative errno. */
static int persist_release_all(struct cairn_persist *heap)
{
    size_t end = persist_pages(heap);
    int error = -persist_refusal(heap);
    if (error == 0)
        error = dirty_find(heap);
    if (error == 0 && persist_next_to_log(heap, 0) < end)
        error = -EBUSY;
    if (error != 0)
        return error;
    /* the other dirty pages hold free memory, and their committed images suit it, too */
    for (size_t i = 0; i < (end + 63) / 64; i++) {
        heap->kept[i] |= heap->dirty[i];
        heap->dirty[i] = 0;
    }
    return persist_release_clean(heap, SIZE_MAX);
}

struct punching {
    struct cairn_persist *heap;
    int error;
};

/* Makes a hole in the file for the inner pages of a free block. TLSF uses parts of the first and of
 * the last page. */
static bool persist_punch_block(void *block, size_t size_bytes, bool used, void *context)
{
    struct punching *punching = context;
    struct cairn_persist *heap = punching->heap;
    size_t start = (size_t)((char *)block - heap->base);
    size_t first = align_up(start + sizeof(struct block) - BLOCK_WORD_BYTES, heap->page_bytes);
    size_t end = align_down(start + size_bytes - BLOCK_WORD_BYTES, heap->page_bytes);
    if (used || first >= end)
        return true;
    bitmap_clear(heap->reserved, first / heap->page_bytes, (end - first) / heap->page_bytes);
    int error = os_file_punch(heap->file, PERSIST_DATA_OFFSET + first, end - first);
    punching->error = error == -EOPNOTSUPP ? 0 : error;
    return error == 0;
}

/* Makes holes in the file for free memory, also for memory that an earlier run of the program
 * freed. Everything is committed, so free memory holds no committed block.
 * Locking: lock held. */
static int persist_punch_free(struct cairn_persist *heap)
{
    struct punching punching = {heap, 0};
    cairn_tlsf_walk(persist_tlsf_of(heap), persist_punch_block, &punching);
    return punching.error;
}

api int cairn_persist_trim(struct cairn_persist *heap)
{
    int error = cairn_persist_checkpoint(heap);
    if (error != 0)
        return error;
    fork_lock_acquire(&heap->lock);
    error = heap->durable == heap->written ? persist_release_all(heap) : -EBUSY;
    if (error == 0)
        error = persist_punch_free(heap);
    fork_lock_release(&heap->lock);
    return -error;
}

enum {
    CHECKPOINT_PACE = 4,      /* pages that are moved for each page that a commit logged */
    CHECKPOINT_MIN_PAGES = 8, /* the minimum of pages that are moved for a commit */
    /* the maximum of private copies that are dropped for each page that a commit logged */
    RELEASE_PACE = 8,
    LOG_STEP_BYTES = 1 << 16,
    LOG_GROWTH_BYTES = 1 << 20,
    /* the maximum size of commits for which the log is filled with zeros */
    FILLED_COMMIT_BYTES = 1 << 17,
    FILL_BYTES = 1 << 17,
};

/* Fills the current segment with zeros where small commits will be written. Without it the file
 * system would note for each commit, with a write of its own, that the file has data there. The
 * pieces are small because the page cache keeps a file in the pieces in which it was written, and
 * searches small ones faster. An error only costs time. */
static void persist_fill(struct cairn_persist *heap, uint64_t from, uint64_t end)
{
    __builtin_memset(heap->buffer, 0, FILL_BYTES);
    int error = 0;
    for (uint64_t at = from; error == 0 && at < end; at += FILL_BYTES)
        error = os_file_write(heap->segments[heap->current].file, heap->buffer,
                              smaller_of(end - at, FILL_BYTES), at);
}

/* Extends the current segment's file by at least `bytes` behind its end. It gets more, or exactly
 * this size when the disk is nearly full.
 * Locking: lock held.
 * Returns: 0 or a negative errno. */
static int persist_make_room(struct cairn_persist *heap, uint64_t bytes)
{
    struct segment *segment = &heap->segments[heap->current];
    uint64_t needed = segment->length + bytes;
    if (needed <= segment->room)
        return 0;
    uint64_t wanted = smaller_of(segment->room + LOG_GROWTH_BYTES, heap->log_limit);
    wanted = larger_of(wanted, align_up(needed, LOG_STEP_BYTES));
    int error = os_file_extend(segment->file, wanted);
    if (error != 0)
        error = os_file_extend(segment->file, wanted = needed);
    if (error != 0)
        return error;
    if (bytes <= FILLED_COMMIT_BYTES)
        persist_fill(heap, needed, wanted);
    segment->room = wanted;
    return 0;
}

/* Allocates disk space in the heap's file for all pages of the next commit that may lack it. So a
 * log that has filled the disk can be moved to the file, by a checkpoint or by recovery.
 * Locking: lock held.
 * Returns: 0 or a negative errno. */
static int persist_reserve_file(struct cairn_persist *heap)
{
    size_t words = (persist_pages(heap) + 63) / 64;
    for (size_t i = 0; i < words; i++) {
        uint64_t pages = heap->dirty[i] & persist_to_log(heap, i) & ~heap->reserved[i];
        while (pages != 0) {
            unsigned first = lowest_bit(pages);
            uint64_t rest = ~(pages >> first);
            unsigned count = rest == 0 ? 64 : lowest_bit(rest);
            int error = os_file_reserve(heap->file,
                                        PERSIST_DATA_OFFSET + (i * 64 + first) * heap->page_bytes,
                                        count * heap->page_bytes);
            if (error != 0)
                return error;
            bitmap_set(heap->reserved, i * 64 + first, count);
            pages = first + count == 64 ? 0 : pages & ~(uint64_t)0 << (first + count);
        }
    }
    return 0;
}

/* The number of pages to be logged. Sets *skipped to the number of dirty pages that hold free
 * memory only.
 * Locking: lock held. */
static size_t persist_count_live(const struct cairn_persist *heap, size_t *skipped)
{
    size_t words = (persist_pages(heap) + 63) / 64;
    size_t live = 0;
    *skipped = 0;
    for (size_t i = 0; i < words; i++) {
        live += count_bits(heap->dirty[i] & persist_to_log(heap, i));
        *skipped += count_bits(heap->dirty[i] & ~persist_to_log(heap, i));
    }
    return live;
}

/* The size of a commit of `pages` pages in the log. */
static uint64_t persist_bytes_for(const struct cairn_persist *heap, size_t pages)
{
    uint32_t most = chunk_pages_written(heap->page_bytes);
    uint64_t full = pages / most * chunk_room(most, heap->page_bytes);
    uint32_t rest = (uint32_t)(pages % most);
    return full + (rest != 0 ? chunk_room(rest, heap->page_bytes) : 0);
}

/* Makes all dirty pages clean after their commit is in the log.
 * Locking: lock held. */
static void persist_note_committed(struct cairn_persist *heap, size_t pages, uint64_t bytes)
{
    size_t words = (persist_pages(heap) + 63) / 64;
    for (size_t i = 0; i < words; i++) {
        uint64_t logged = heap->dirty[i] & persist_to_log(heap, i);
        heap->freed[i] &= ~logged;
        heap->bare[i] = (heap->bare[i] & ~logged) | (logged & heap->dead[i]);
        heap->kept[i] |= heap->dirty[i];
        heap->dirty[i] = 0;
    }
    heap->logged_pages += pages;
    heap->logged_bytes += bytes;
}

/* Continues in the other segment when the current one is full and the other one is free.
 * Locking: lock held.
 * Returns: 0 or a negative errno. */
static int persist_turn_over(struct cairn_persist *heap)
{
    bool possible = heap->segments[heap->current ^ 1].state == SEGMENT_FREE && !heap->flushing;
    if (!possible || heap->segments[heap->current].length < heap->log_limit)
        return 0;
    int error = persist_flush(heap);
    if (error == 0)
        segment_seal(heap);
    return error;
}

/* Step C1 of a commit. Space for its pages in the heap's file comes first.
 * Locking: lock held.
 * Returns: the number of pages that were logged, or a negative errno. */
static int64_t persist_capture(struct cairn_persist *heap)
{
    int error = -persist_refusal(heap);
    if (error == 0)
        error = persist_turn_over(heap);
    if (error == 0)
        error = dirty_find(heap);
    if (error != 0)
        return error;
    size_t skipped;
    size_t pages = persist_count_live(heap, &skipped);
    uint64_t bytes = 0;
    if (pages > 0) {
        error = persist_reserve_file(heap);
        if (error == 0)
            error = persist_make_room(heap, persist_bytes_for(heap, pages));
        if (error == 0)
            error = log_append(heap, heap->written + 1, pages, &bytes);
        if (error != 0)
            return error;
        heap->written++;
    }
    heap->skipped_pages += skipped;
    persist_note_committed(heap, pages, bytes);
    if (heap->flags & CAIRN_PERSIST_WRITERS_PAUSE)
        (void)persist_release_clean(
            heap, larger_of(pages * RELEASE_PACE, CHECKPOINT_MIN_PAGES * RELEASE_PACE));
    return (int64_t)pages;
}

/* Finishes the checkpoint of the sealed segment when both segments are full. Otherwise the log
 * would grow without limit if checkpoints are slower than commits.
 * Locking: lock not held. */
static int persist_keep_bounded(struct cairn_persist *heap)
{
    fork_lock_acquire(&heap->lock);
    bool full = persist_refusal(heap) == 0 &&
                heap->segments[heap->current].length >= heap->log_limit &&
                heap->segments[heap->current ^ 1].state == SEGMENT_SEALED;
    fork_lock_release(&heap->lock);
    return full ? checkpoint_sealed(heap) : 0;
}

static int64_t persist_commit_async(struct cairn_persist *heap, uint64_t *ticket)
{
    /* an error may mean a full disk; the log continues as long as it can */
    (void)persist_keep_bounded(heap);
    fork_lock_acquire(&heap->lock);
    int64_t pages = persist_capture(heap);
    *ticket = heap->written;
    fork_lock_release(&heap->lock);
    return pages;
}

static int persist_may_commit(struct cairn_persist *heap)
{
    fork_lock_acquire(&heap->lock);
    int error = persist_refusal(heap);
    fork_lock_release(&heap->lock);
    return error;
}

api int cairn_persist_commit_async(struct cairn_persist *heap, cairn_persist_ticket *ticket)
{
    int error = persist_may_commit(heap);
    int64_t pages = error == 0 ? persist_commit_async(heap, ticket) : 0;
    if (error == 0 && pages > 0)
        (void)checkpoint_some(heap,
                              larger_of((size_t)pages * CHECKPOINT_PACE, CHECKPOINT_MIN_PAGES));
    return pages < 0 ? (int)-pages : error;
}

api int cairn_persist_wait(struct cairn_persist *heap, cairn_persist_ticket ticket)
{
    if (heap->flags & CAIRN_PERSIST_READ_ONLY)
        return EROFS;
    if (os_process_id() != heap->process)
        return EPERM;
    return persist_wait_durable(heap, ticket);
}

api int cairn_persist_commit(struct cairn_persist *heap)
{
    int error = persist_may_commit(heap);
    if (error != 0)
        return error;
    uint64_t ticket;
    int64_t pages = persist_commit_async(heap, &ticket);
    if (pages < 0)
        return (int)-pages;
    error = persist_wait_durable(heap, ticket);
    /* the commit is durable; the next checkpoint reports an error again */
    if (error == 0 && pages > 0)
        (void)checkpoint_some(heap,
                              larger_of((size_t)pages * CHECKPOINT_PACE, CHECKPOINT_MIN_PAGES));
    return error;
}

/* Checkpoints: from the log to the heap's file. This is the lazy half of a commit.
 *
 * When the current segment is full it is sealed, and commits continue in the other one. Each commit
 * then moves a few pages of the sealed segment to their places, in the file's order. The move also
 * makes the kernel begin to write them, so the fdatasync at the end finds little to do. Then a
 * header says, durable, up to which commit the file is complete. Only then is the segment free to
 * be overwritten. After a crash in any part of this the log from the header's checkpoint on is
 * intact, and a second replay changes nothing.
 *
 * The images are read from the log, because memory may be newer. A page that is moved has a private
 * copy, which persist_release_clean does not drop, so no thread reads the file's page at that time.
 *
 * Threads: one at a time, which has set `checkpointing`. The sealed segment is constant, so the
 *     thread takes the lock only to begin and to end.
 */

void segment_begin(struct cairn_persist *heap, unsigned index)
{
    struct segment *segment = &heap->segments[index];
    heap->current = index;
    segment->state = SEGMENT_CURRENT;
    segment->length = PERSIST_LOG_START;
}

void segment_seal(struct cairn_persist *heap)
{
    heap->segments[heap->current].state = SEGMENT_SEALED;
    heap->cursor = 0;
    segment_begin(heap, heap->current ^ 1);
}

/* Makes a segment free, and clears its table of images.
 * Locking: lock held. */
static void persist_segment_end(struct cairn_persist *heap, struct segment *segment)
{
    size_t end = persist_pages(heap);
    for (size_t page = bit_find(segment->logged, 0, end); page < end;
         page = bit_find(segment->logged, page + 1, end))
        segment->where[page] = 0;
    __builtin_memset(segment->logged, 0, (end + 63) / 64 * sizeof *segment->logged);
    segment->length = 0;
    segment->state = SEGMENT_FREE;
}

/* Moves a run of adjacent pages of a segment, from `first` on, to the file, and sets *pages to
 * their number, at most CHECKPOINT_RUN_PAGES.
 * Returns: 0 or a negative errno. */
static int persist_move_run(struct cairn_persist *heap, const struct segment *segment, size_t first,
                            size_t *pages)
{
    size_t size = heap->page_bytes;
    size_t count = 0;
    while (count < CHECKPOINT_RUN_PAGES && first + count < persist_pages(heap) &&
           bit_is_set(segment->logged, first + count)) {
        int error = os_file_read(segment->file, heap->checkpoint_buffer + count * size, size,
                                 segment->where[first + count]);
        if (error != 0)
            return error;
        count++;
    }
    *pages = count;
    return os_file_write(heap->file, heap->checkpoint_buffer, count * size,
                         PERSIST_DATA_OFFSET + first * size);
}

/* Steps K2 and K3 of persist_commit.c. After a failure of either, or of the fdatasync of a growth,
 * the contents of the file are unknown, so it fails from then on.
 * Returns: 0 or a negative errno. */
static int persist_make_durable(struct cairn_persist *heap, uint64_t checkpoint)
{
    fork_lock_acquire(&heap->header_lock);
    int error = heap->file_error;
    if (error == 0)
        error = os_file_sync(heap->file);
    if (error == 0) {
        heap->header.checkpoint = checkpoint;
        error = header_write(heap->file, &heap->header);
    }
    heap->file_error = error;
    fork_lock_release(&heap->header_lock);
    return error;
}

/* Ends the checkpoint of a segment whose pages are all moved (K2 to K4). A failure refuses all
 * later commits.
 * Returns: 0 or a negative errno. */
static int persist_conclude(struct cairn_persist *heap, struct segment *segment)
{
    int error = persist_make_durable(heap, segment->last);
    fork_lock_acquire(&heap->lock);
    if (error == 0)
        persist_segment_end(heap, segment);
    else if (heap->error == 0)
        heap->error = -error;
    fork_lock_release(&heap->lock);
    return error;
}

/* Moves about `pages_most` pages of the segment (K1), and ends the checkpoint after the last page.
 * Returns: 0 or a negative errno. */
static int persist_move_some(struct cairn_persist *heap, struct segment *segment, size_t pages_most)
{
    size_t end = segment->state == SEGMENT_SEALED ? persist_pages(heap) : 0;
    size_t first = bit_find(segment->logged, heap->cursor, end);
    size_t page = first;
    for (; pages_most > 0 && page < end; page = bit_find(segment->logged, heap->cursor, end)) {
        size_t pages;
        int error = persist_move_run(heap, segment, page, &pages);
        if (error != 0)
            /* ENOSPC, EIO: the pages stay in the log, and the next commit tries again */
            return error;
        heap->cursor = page + pages;
        pages_most -= smaller_of(pages, pages_most);
    }
    if (page >= end)
        return persist_conclude(heap, segment);
    if (page > first) /* one call for all runs, so that the kernel writes them together */
        os_file_start_writing(heap->file, PERSIST_DATA_OFFSET + first * heap->page_bytes,
                              (page - first) * heap->page_bytes);
    return 0;
}

/* Sets `checkpointing`.
 * Locking: lock held.
 * Returns: the sealed segment; NULL when there is none, or another thread is moving it, or a commit
 *     would be refused. */
static struct segment *persist_begin(struct cairn_persist *heap)
{
    struct segment *segment = &heap->segments[heap->current ^ 1];
    if (segment->state != SEGMENT_SEALED || heap->checkpointing || heap->error != 0)
        return NULL;
    heap->checkpointing = true;
    return segment;
}

int checkpoint_some(struct cairn_persist *heap, size_t pages_most)
{
    fork_lock_acquire(&heap->lock);
    struct segment *segment = persist_begin(heap);
    fork_lock_release(&heap->lock);
    if (segment == NULL)
        return 0;
    int error = persist_move_some(heap, segment, pages_most);
    fork_lock_acquire(&heap->lock);
    persist_end_busy(heap, &heap->checkpointing);
    fork_lock_release(&heap->lock);
    return error;
}

/* Moves the whole sealed segment to the file.
 * Locking: lock held, and released during the work and the waits.
 * Returns: 0 or a negative errno. */
static int persist_finish_sealed(struct cairn_persist *heap)
{
    int error = 0;
    while (error == 0 && heap->segments[heap->current ^ 1].state == SEGMENT_SEALED) {
        error = -heap->error;
        if (error == 0 && heap->checkpointing) {
            persist_wait_busy(heap);
        } else if (error == 0) {
            fork_lock_release(&heap->lock);
            error = checkpoint_some(heap, SIZE_MAX);
            fork_lock_acquire(&heap->lock);
        }
    }
    return error;
}

int checkpoint_sealed(struct cairn_persist *heap)
{
    fork_lock_acquire(&heap->lock);
    int error = persist_finish_sealed(heap);
    fork_lock_release(&heap->lock);
    return error;
}

/* Seals the current segment, if it has commits.
 * Locking: lock held.
 * Returns: false when other commits or another seal were faster. */
static bool persist_try_seal(struct cairn_persist *heap)
{
    bool free = heap->segments[heap->current ^ 1].state == SEGMENT_FREE;
    if (!free || heap->flushing || heap->durable != heap->written)
        return false;
    if (heap->segments[heap->current].length > PERSIST_LOG_START)
        segment_seal(heap);
    return true;
}

api int cairn_persist_checkpoint(struct cairn_persist *heap)
{
    fork_lock_acquire(&heap->lock);
    int error = persist_refusal(heap);
    bool sealed = false;
    while (error == 0 && !sealed) {
        uint64_t written = heap->written;
        fork_lock_release(&heap->lock);
        error = persist_wait_durable(heap, written);
        fork_lock_acquire(&heap->lock);
        if (error == 0)
            error = -persist_finish_sealed(heap);
        if (error == 0 && heap->flushing)
            persist_wait_busy(heap);
        sealed = error == 0 && persist_try_seal(heap);
    }
    if (error == 0)
        error = -persist_finish_sealed(heap);
    fork_lock_release(&heap->lock);
    return error;
}
