/* The commit protocol of the persistent heap: capture, flush, and who may.
 *
 * The promise: after a crash at any instant the heap opens in the state of commit k, where k is at
 * least the last acknowledged commit and at most the last one begun.
 *
 * The disk, as assumed: a write of the program reaches it some time later, in any order with others
 * and in parts of 512 bytes, each part as it was or as it becomes; fdatasync returns 0 only when
 * all writes to the file that returned before it began have reached it.
 *
 * The steps of commit n (log_append, persist_flush.c), and of a checkpoint up to commit c:
 *
 *     C1  append the chunks of n to the current segment, whose length ends with commit n - 1
 *     C2  fdatasync the segment; then n and all before it are acknowledged
 *     S   (between commits) the current segment is flushed (C2) and sealed; its last commit is c;
 *         the free segment becomes current, from its start
 *     K1  write the latest image of each page in the sealed segment to its place in the heap's file
 *     K2  fdatasync the file
 *     K3  write a header with checkpoint = c to the older of its two places, fdatasync
 *     K4  the sealed segment is free
 *
 * Recovery takes the newest sound header, of checkpoint h, finds the segment that begins with h + 1
 * if there is one, replays its whole commits in their order, and goes on in the other segment if
 * that begins with the number that follows.
 *
 * Why it holds. The file's data, with the images of commits h + 1 to k over them, are state k:
 *   (1) Data written by K1 belong to commits of the sealed segment. Until K3 is durable recovery
 *       begins with that segment's first commit or before, and its replay writes the latest image
 *       of each such page over whatever part of K1 has reached the disk. Nothing else writes data.
 *   (2) When K3 is durable, K2 was before it: the data hold the state c, and no part of K1 is in
 *       flight. If K3 is cut, the other header is intact, with the checkpoint before, and the
 *       sealed segment is not touched before K3 has returned (K4): (1) holds.
 *   (3) A segment is overwritten from its start, only once it is free, so when h is at least its
 *       last commit. What is left of it has numbers of at most h and is not replayed: its first
 *       chunk decides. The first chunk of the new commit has h + 1 or more: with more, the sealed
 *       segment holds h + 1 and was flushed before (S), and is replayed first.
 *   (4) The chunks of one segment follow each other without gap, so commit n, if it is found whole,
 *       is found behind n - 1; if n is acknowledged, C2 came after C1 of n and of all before it.
 *       So recovery reaches the last acknowledged commit. A commit that was cut fails its checksum
 *       (one accident in 2^64), and nothing behind it is looked at.
 *   (5) A commit that failed before its last chunk was written has no last chunk: it is not whole,
 *       and the next one, with the same number, overwrites it from its first chunk on.
 *
 *   (6) What was lost with a crash has numbers that are given out again. It is not taken for what
 *       follows the new commits, for the checksums begin with a number of the opening (log_seed).
 *   (7) Recovery judges what the disk holds: it settles log and headers before it looks, so that
 *       nothing it writes rests on a commit, or a header, that a power loss could still take.
 *
 * When an fdatasync fails the kernel may have dropped what was to be written, and forgotten that it
 * did. Then nothing is known about the segment, so `error` refuses all commits until recovery has
 * looked at what the disk holds.
 *
 * Group commit: capture (C1) under the lock, C2 in persist_flush.c for all that wait.
 */
#include "os/os.h"
#include "region/persist_heap.h"

#include <errno.h>

enum {
    CHECKPOINT_PACE = 4,        /* pages moved for each one that a commit logged */
    CHECKPOINT_LEAST_PAGES = 8, /* but at least */
    RELEASE_PACE = 8,           /* copies given back for each page that a commit logged, at most */
    LOG_STEP_BYTES = 1 << 16,
    LOG_GROWTH_BYTES = 1 << 20,
    FILLED_COMMIT_BYTES = 1 << 17, /* commits of at most that find a log with zeros in it */
    FILL_BYTES = 1 << 17,
};

/* Zeros where small commits will go: otherwise the file system has to note for each of them that
 * the file holds something there from now on, with a write of its own. In pieces, because a file is
 * held in memory as it was written, and small pieces are looked through faster. An error is none:
 * it costs time. */
static void fill(struct cairn_persist *heap, uint64_t from, uint64_t end)
{
    __builtin_memset(heap->buffer, 0, FILL_BYTES);
    int error = 0;
    for (uint64_t at = from; error == 0 && at < end; at += FILL_BYTES)
        error = os_file_write(heap->segments[heap->current].file, heap->buffer,
                              smaller_of(end - at, FILL_BYTES), at);
}

/* Room for so many bytes behind the current segment's end: and some more, or exactly that much if
 * the disk is nearly full. */
static int make_room(struct cairn_persist *heap, uint64_t bytes)
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
        fill(heap, needed, wanted);
    segment->room = wanted;
    return 0;
}

/* The pages that are to be logged; *skipped: that hold free memory only. */
static size_t count_live(const struct cairn_persist *heap, size_t *skipped)
{
    size_t words = (persist_pages(heap) + 63) / 64;
    size_t live = 0;
    *skipped = 0;
    for (size_t i = 0; i < words; i++) {
        live += count_bits(heap->dirty[i] & ~heap->dead[i]);
        *skipped += count_bits(heap->dirty[i] & heap->dead[i]);
    }
    return live;
}

static uint64_t bytes_for(const struct cairn_persist *heap, size_t pages)
{
    uint32_t most = chunk_pages_written(heap->page_bytes);
    uint64_t full = pages / most * chunk_room(most, heap->page_bytes);
    uint32_t rest = (uint32_t)(pages % most);
    return full + (rest != 0 ? chunk_room(rest, heap->page_bytes) : 0);
}

static void note_committed(struct cairn_persist *heap, size_t pages, uint64_t bytes)
{
    size_t words = (persist_pages(heap) + 63) / 64;
    for (size_t i = 0; i < words; i++) {
        heap->kept[i] |= heap->dirty[i];
        heap->dirty[i] = 0;
    }
    heap->logged_pages += pages;
    heap->logged_bytes += bytes;
}

/* Moves on to the other segment when the current one is full and the other is free. */
static int turn_over(struct cairn_persist *heap)
{
    bool possible = heap->segments[heap->current ^ 1].state == SEGMENT_FREE && !heap->flushing;
    if (!possible || heap->segments[heap->current].length < heap->log_limit)
        return 0;
    int error = persist_flush(heap);
    if (error == 0)
        segment_seal(heap);
    return error;
}

/* C1. With the lock. The number of pages logged, or a negative errno. */
static int64_t capture(struct cairn_persist *heap)
{
    int error = -persist_refusal(heap);
    if (error == 0)
        error = turn_over(heap);
    if (error == 0)
        error = dirty_find(heap);
    if (error != 0)
        return error;
    size_t skipped;
    size_t pages = count_live(heap, &skipped);
    uint64_t bytes = 0;
    if (pages > 0) {
        error = make_room(heap, bytes_for(heap, pages));
        if (error == 0)
            error = log_append(heap, heap->written + 1, pages, &bytes);
        if (error != 0)
            return error;
        heap->written++;
    }
    heap->skipped_pages += skipped;
    note_committed(heap, pages, bytes);
    if (heap->flags & CAIRN_PERSIST_WRITERS_PAUSE)
        (void)persist_release_clean(
            heap, larger_of(pages * RELEASE_PACE, CHECKPOINT_LEAST_PAGES * RELEASE_PACE));
    return (int64_t)pages;
}

/* The log must not grow without bound when checkpoints do not keep up. */
static int keep_bounded(struct cairn_persist *heap)
{
    fork_lock_acquire(&heap->lock);
    bool full = persist_refusal(heap) == 0 &&
                heap->segments[heap->current].length >= heap->log_limit &&
                heap->segments[heap->current ^ 1].state == SEGMENT_SEALED;
    fork_lock_release(&heap->lock);
    return full ? checkpoint_sealed(heap) : 0;
}

static int64_t commit_async(struct cairn_persist *heap, uint64_t *ticket)
{
    (void)keep_bounded(heap); /* a full disk: the log goes on as long as it can */
    fork_lock_acquire(&heap->lock);
    int64_t pages = capture(heap);
    *ticket = heap->written;
    fork_lock_release(&heap->lock);
    return pages;
}

static int may_commit(struct cairn_persist *heap)
{
    fork_lock_acquire(&heap->lock);
    int error = persist_refusal(heap);
    fork_lock_release(&heap->lock);
    return error;
}

api int cairn_persist_commit_async(struct cairn_persist *heap, cairn_persist_ticket *ticket)
{
    int error = may_commit(heap);
    int64_t pages = error == 0 ? commit_async(heap, ticket) : 0;
    if (error == 0 && pages > 0)
        (void)checkpoint_some(heap,
                              larger_of((size_t)pages * CHECKPOINT_PACE, CHECKPOINT_LEAST_PAGES));
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
    int error = may_commit(heap);
    if (error != 0)
        return error;
    uint64_t ticket;
    int64_t pages = commit_async(heap, &ticket);
    if (pages < 0)
        return (int)-pages;
    error = persist_wait_durable(heap, ticket);
    if (error == 0 && pages > 0) /* an error of this comes up again, and the commit is durable */
        (void)checkpoint_some(heap,
                              larger_of((size_t)pages * CHECKPOINT_PACE, CHECKPOINT_LEAST_PAGES));
    return error;
}
