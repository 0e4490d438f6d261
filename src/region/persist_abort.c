/* Back to the last commit in place, and private copies given back.
 *
 * A dirty page's last committed image lies in the log, or else in the file: then dropping the
 * private copy is enough. Reading the image from the log dirties the page once more in the kernel's
 * eyes, so at the end all that was written until then is forgotten.
 *
 * A private copy may be dropped when the file holds the same: the page was committed, is not dirty,
 * and no segment of the log has it. A write between the look and the drop would be lost: so it is
 * done only where the interface says that nobody writes.
 */
#include "os/os.h"
#include "region/persist_heap.h"
#include "region/tlsf_block.h"

#include <errno.h>

static int restore_page(struct cairn_persist *heap, size_t page)
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

static int restore_all(struct cairn_persist *heap)
{
    size_t end = persist_pages(heap);
    /* What is free now may have been in use at the last commit. */
    __builtin_memset(heap->dead, 0, (end + 63) / 64 * sizeof *heap->dead);
    int error = dirty_find(heap);
    for (size_t page = bit_find(heap->dirty, 0, end); error == 0 && page < end;
         page = bit_find(heap->dirty, page + 1, end))
        error = restore_page(heap, page);
    return error;
}

api int cairn_persist_abort(struct cairn_persist *heap)
{
    fork_lock_acquire(&heap->lock);
    int error = -persist_refusal(heap);
    if (error == 0)
        error = restore_all(heap);
    if (error == 0)
        error = dirty_forget(heap);
    fork_lock_release(&heap->lock);
    return -error;
}

/* Pages of one word of the bitmap that may go. */
static uint64_t releasable(const struct cairn_persist *heap, size_t word)
{
    return heap->kept[word] & ~heap->dirty[word] & ~heap->segments[0].logged[word] &
           ~heap->segments[1].logged[word];
}

int persist_release_clean(struct cairn_persist *heap, size_t most)
{
    size_t words = (persist_pages(heap) + 63) / 64;
    size_t released = 0;
    for (size_t i = 0; i < words && released < most; i++) {
        uint64_t pages = releasable(heap, i);
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

static int release_all(struct cairn_persist *heap)
{
    size_t end = persist_pages(heap);
    int error = -persist_refusal(heap);
    if (error == 0)
        error = dirty_find(heap);
    size_t page = bit_find(heap->dirty, 0, end);
    while (page < end && bit_is_set(heap->dead, page))
        page = bit_find(heap->dirty, page + 1, end);
    if (error == 0 && page < end)
        error = -EBUSY;
    if (error != 0)
        return error;
    for (size_t i = 0; i < (end + 63) / 64; i++) { /* dead ones: free memory, any content does */
        heap->kept[i] |= heap->dirty[i];
        heap->dirty[i] = 0;
    }
    return persist_release_clean(heap, SIZE_MAX);
}

struct punching {
    struct cairn_persist *heap;
    int error;
};

/* What a free block has in its first and last page is TLSF's. */
static bool punch_block(void *block, size_t size_bytes, bool used, void *context)
{
    struct punching *punching = context;
    const struct cairn_persist *heap = punching->heap;
    size_t start = (size_t)((char *)block - heap->base);
    size_t first = align_up(start + sizeof(struct block) - BLOCK_WORD_BYTES, heap->page_bytes);
    size_t end = align_down(start + size_bytes - BLOCK_WORD_BYTES, heap->page_bytes);
    if (used || first >= end)
        return true;
    int error = os_file_punch(heap->file, PERSIST_DATA_OFFSET + first, end - first);
    punching->error = error == -EOPNOTSUPP ? 0 : error;
    return error == 0;
}

/* Holes in the file for what is free, in this run of the program or since an earlier one. All is
 * committed, so nothing that was committed lies there. */
static int punch_free(struct cairn_persist *heap)
{
    struct punching punching = {heap, 0};
    cairn_tlsf_walk(persist_tlsf_of(heap), punch_block, &punching);
    return punching.error;
}

api int cairn_persist_trim(struct cairn_persist *heap)
{
    int error = cairn_persist_checkpoint(heap);
    if (error != 0)
        return error;
    fork_lock_acquire(&heap->lock);
    error = heap->durable == heap->written ? release_all(heap) : -EBUSY;
    if (error == 0)
        error = punch_free(heap);
    fork_lock_release(&heap->lock);
    return -error;
}
