/* From the log to the heap's file: the lazy half of a commit.
 *
 * When the current segment is full it is sealed and the other one goes on; each commit then moves a
 * few pages of the sealed segment to their places, in the file's order, and has the kernel start to
 * write them, so that the fdatasync at the end finds little to do. Then the header says up to which
 * commit the file is complete, durable; and only then is the segment free to be overwritten. In
 * whatever part of this a crash comes, the log from the header's checkpoint on is intact, and
 * replaying it once more changes nothing.
 *
 * The images come from the log, not from memory, which may be newer. A page that is moved has a
 * private copy (persist_release_clean sees to it), so nobody reads the file's page meanwhile.
 *
 * Threading: one thread at a time is checkpointing, by the mark of that name; the sealed segment is
 * constant, so it holds no lock but to begin and to end.
 */
#include "os/os.h"
#include "region/persist_heap.h"

#include <errno.h>

void segment_begin(struct cairn_persist *heap, unsigned index)
{
    struct segment *segment = &heap->segments[index];
    heap->current = index;
    segment->state = SEGMENT_CURRENT;
    segment->length = 0;
}

void segment_seal(struct cairn_persist *heap)
{
    heap->segments[heap->current].state = SEGMENT_SEALED;
    heap->cursor = 0;
    segment_begin(heap, heap->current ^ 1);
}

/* What the segment remembers of its pages is forgotten. */
static void segment_end(struct cairn_persist *heap, struct segment *segment)
{
    size_t end = persist_pages(heap);
    for (size_t page = bit_find(segment->logged, 0, end); page < end;
         page = bit_find(segment->logged, page + 1, end))
        segment->where[page] = 0;
    __builtin_memset(segment->logged, 0, (end + 63) / 64 * sizeof *segment->logged);
    segment->length = 0;
    segment->state = SEGMENT_FREE;
}

/* The pages from `first` on that lie side by side, at most CHECKPOINT_RUN_PAGES. */
static int move_run(struct cairn_persist *heap, const struct segment *segment, size_t first,
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

/* K2 and K3. A failure of either, also of growth's fdatasync, leaves it open what the file holds.
 */
static int make_durable(struct cairn_persist *heap, uint64_t checkpoint)
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

static int conclude(struct cairn_persist *heap, struct segment *segment)
{
    int error = make_durable(heap, segment->last);
    fork_lock_acquire(&heap->lock);
    if (error == 0)
        segment_end(heap, segment);
    else if (heap->error == 0)
        heap->error = -error;
    fork_lock_release(&heap->lock);
    return error;
}

static int move_some(struct cairn_persist *heap, struct segment *segment, size_t pages_most)
{
    size_t end = segment->state == SEGMENT_SEALED ? persist_pages(heap) : 0;
    size_t first = bit_find(segment->logged, heap->cursor, end);
    size_t page = first;
    for (; pages_most > 0 && page < end; page = bit_find(segment->logged, heap->cursor, end)) {
        size_t pages;
        int error = move_run(heap, segment, page, &pages);
        if (error != 0)
            return error; /* ENOSPC, EIO: the log keeps it, and the next commit tries again */
        heap->cursor = page + pages;
        pages_most -= smaller_of(pages, pages_most);
    }
    if (page >= end)
        return conclude(heap, segment);
    if (page > first) /* in one call: the kernel hands them on together */
        os_file_start_writing(heap->file, PERSIST_DATA_OFFSET + first * heap->page_bytes,
                              (page - first) * heap->page_bytes);
    return 0;
}

/* The sealed segment, which the caller may work at from now on; NULL: none, or others are. */
static struct segment *begin(struct cairn_persist *heap)
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
    struct segment *segment = begin(heap);
    fork_lock_release(&heap->lock);
    if (segment == NULL)
        return 0;
    int error = move_some(heap, segment, pages_most);
    fork_lock_acquire(&heap->lock);
    persist_end_busy(heap, &heap->checkpointing);
    fork_lock_release(&heap->lock);
    return error;
}

/* With the lock, which is let go in between. */
static int finish_sealed(struct cairn_persist *heap)
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
    int error = finish_sealed(heap);
    fork_lock_release(&heap->lock);
    return error;
}

/* Seals the current segment. False when commits or another seal were faster. */
static bool try_seal(struct cairn_persist *heap)
{
    bool free = heap->segments[heap->current ^ 1].state == SEGMENT_FREE;
    if (!free || heap->flushing || heap->durable != heap->written)
        return false;
    if (heap->segments[heap->current].length > 0)
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
            error = -finish_sealed(heap);
        if (error == 0 && heap->flushing)
            persist_wait_busy(heap);
        sealed = error == 0 && try_seal(heap);
    }
    if (error == 0)
        error = -finish_sealed(heap);
    fork_lock_release(&heap->lock);
    return error;
}
