/* Making the log durable, for all who wait for it; and who may commit at all.
 *
 * One thread is flushing, without the lock, and covers all commits that were written when it began;
 * the others wait for its end, then for their turn. So many commits share one fdatasync.
 *
 * The kernel reports a failed write-back of a file to one fdatasync only. So no two of one file may
 * run at a time, or the one that succeeds would call durable what the other one lost: the log's are
 * guarded by the mark `flushing`, those of the heap's file by header_lock and file_error.
 */
#include "base/atomic.h"
#include "base/host.h"
#include "os/os.h"
#include "region/persist_heap.h"

#include <errno.h>

int persist_refusal(const struct cairn_persist *heap)
{
    if (heap->flags & CAIRN_PERSIST_READ_ONLY)
        return EROFS;
    if (os_process_id() != heap->process)
        return EPERM;
    return heap->error;
}

int persist_flush(struct cairn_persist *heap)
{
    if (heap->durable == heap->written)
        return 0;
    int error = os_file_sync(heap->segments[heap->current].file);
    heap->syncs++;
    if (error == 0)
        heap->durable = heap->written;
    else
        heap->error = -error;
    return error;
}

void persist_end_busy(struct cairn_persist *heap, bool *mark)
{
    *mark = false;
    fetch_add_acq_rel(&heap->generation, 1u); /* pairs with persist_wait_busy */
    host_wake(&heap->generation, UINT32_MAX);
}

void persist_wait_busy(struct cairn_persist *heap)
{
    uint32_t seen = load_acquire(&heap->generation); /* pairs with persist_end_busy */
    fork_lock_release(&heap->lock);
    host_wait(&heap->generation, seen);
    fork_lock_acquire(&heap->lock);
}

static void flush_unlocked(struct cairn_persist *heap)
{
    heap->flushing = true;
    uint64_t covered = heap->written;
    int file = heap->segments[heap->current].file;
    fork_lock_release(&heap->lock);
    int error = os_file_sync(file);
    fork_lock_acquire(&heap->lock);
    heap->syncs++;
    if (error != 0 && heap->error == 0)
        heap->error = -error;
    if (error == 0 && heap->durable < covered)
        heap->durable = covered;
    persist_end_busy(heap, &heap->flushing);
}

int persist_wait_durable(struct cairn_persist *heap, uint64_t sequence)
{
    fork_lock_acquire(&heap->lock);
    while (heap->error == 0 && heap->durable < sequence) {
        if (heap->flushing)
            persist_wait_busy(heap);
        else
            flush_unlocked(heap);
    }
    int error = heap->durable >= sequence ? 0 : heap->error;
    fork_lock_release(&heap->lock);
    return error;
}
