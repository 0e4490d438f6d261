/* Where the persistent heap lies in memory, and how it grows.
 *
 * Address space of the whole capacity is reserved once, so that the heap grows in place; the file's
 * data are mapped at its start, privately. A new heap's address is drawn from a range that Linux
 * leaves free on x86-64 and aarch64, so that it is free the next time, too; with ThreadSanitizer,
 * which has its own ideas of where a program's memory lies, the kernel chooses.
 *
 * Growth: the file first, durable, then the header, which promises that length, then the mapping.
 * So a file that is shorter than its header says was cut by something else.
 */
#include "base/atomic.h"
#include "os/os.h"
#include "region/persist_heap.h"

#include <errno.h>

enum { SPACE_TRIES = 16, SPACE_STEP_BITS = 36 };

/* 16 TiB and up, by 64 GiB: 48 TiB of them. */
static uintptr_t draw_address(void)
{
    return ((uintptr_t)1 << 44) + ((os_entropy() % 768) << SPACE_STEP_BITS);
}

static void *reserve_somewhere(size_t size_bytes)
{
    for (int i = 0; i < SPACE_TRIES && !config_tsan; i++) {
        void *drawn = (void *)draw_address();
        if (os_reserve_at(drawn, size_bytes))
            return drawn;
    }
    return os_reserve(size_bytes);
}

int space_reserve(struct cairn_persist *heap, uintptr_t wanted, bool demanded)
{
    void *found = NULL;
    if (wanted != 0 && os_reserve_at((void *)wanted, heap->capacity_bytes))
        found = (void *)wanted;
    if (found == NULL && demanded)
        return -EADDRNOTAVAIL;
    if (found == NULL)
        found = reserve_somewhere(heap->capacity_bytes);
    if (found == NULL)
        return -ENOMEM;
    heap->base = found;
    heap->moved = wanted != 0 && (uintptr_t)found != wanted;
    return 0;
}

int space_map(struct cairn_persist *heap, size_t data_bytes)
{
    size_t from = heap->mapped_bytes;
    int error = os_file_map(heap->file, PERSIST_DATA_OFFSET + from, heap->base + from,
                            data_bytes - from, OS_WRITE);
    if (error != 0)
        return error;
    store_relaxed(&heap->mapped_bytes, data_bytes); /* the handler of SIGSEGV reads it */
    if (heap->flags & CAIRN_PERSIST_READ_ONLY)
        return 0;
    error = dirty_watch(heap, from, data_bytes);
    if (error != 0)
        store_relaxed(&heap->mapped_bytes, from);
    return error;
}

static int extend_file(struct cairn_persist *heap, size_t data_bytes)
{
    int error = os_file_truncate(heap->file, PERSIST_DATA_OFFSET + data_bytes);
    if (error != 0)
        return error;
    struct persist_header header = heap->header;
    header.data_bytes = data_bytes;
    error = os_file_sync(heap->file);
    if (error == 0)
        error = header_write(heap->file, &header);
    heap->file_error = error;
    if (error == 0)
        heap->header = header;
    return error;
}

int space_extend(struct cairn_persist *heap, size_t data_bytes)
{
    if (data_bytes > heap->capacity_bytes)
        return -ENOMEM;
    fork_lock_acquire(&heap->header_lock);
    int error = heap->file_error;
    if (error == 0 && data_bytes > heap->header.data_bytes)
        error = extend_file(heap, data_bytes);
    fork_lock_release(&heap->header_lock);
    return error != 0 ? error : space_map(heap, data_bytes);
}
