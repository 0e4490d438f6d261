/* Recovery of the persistent heap: the log's whole commits, over what the last checkpoint left.
 *
 * Two passes: the first judges the segments and decides which commits count, the second replays
 * them in their order. The first changes nothing, so a heap that is refused is as it was. For
 * writing, the images go to the heap's file and a new checkpoint says so, just as K1 to K3 in
 * persist_commit.c: a crash in between repeats it. For reading only, they go to private pages in
 * memory. Time and memory: in proportion to the log.
 *
 * Refused: a segment that is missing, one that begins beyond what the other one and the heap's file
 * lead to, and a row that ends before a commit that was durable, as far as a later one tells.
 */
#include "os/os.h"
#include "region/persist_heap.h"

#include <errno.h>

struct plan {
    unsigned count;    /* of segments that are replayed */
    unsigned order[2]; /* which */
    uint64_t length[2];
    uint64_t last; /* the commit that is reached */
};

static int judge(const struct cairn_persist *heap, struct plan *plan, const char **why)
{
    struct log_end ends[2];
    for (unsigned i = 0; i < 2; i++) {
        int error = log_walk(heap->segments[i].file, log_seed(&heap->header), heap->page_bytes,
                             heap->buffer, UINT64_MAX, &ends[i], NULL, NULL);
        if (error != 0)
            return error;
    }
    *plan = (struct plan){.last = heap->header.checkpoint};
    for (unsigned i = 0; i < 4; i++) { /* each is asked again once the other one was taken */
        const struct log_end *end = &ends[i % 2];
        if (end->first != plan->last + 1 || end->last < end->first)
            continue;
        plan->order[plan->count] = i % 2;
        plan->length[plan->count++] = end->length;
        plan->last = end->last;
    }
    for (unsigned i = 0; i < 2; i++) {
        if (ends[i].first > plan->last + 1) {
            *why = "the log begins after the state that the heap's file holds";
            return -EBADMSG;
        }
        if (ends[i].later > plan->last) {
            *why = "the log is damaged before a commit that was durable";
            return -EBADMSG;
        }
    }
    return 0;
}

static int replay(struct cairn_persist *heap, const struct plan *plan, log_visit *visit)
{
    for (unsigned i = 0; i < plan->count; i++) {
        struct log_end end;
        int error = log_walk(heap->segments[plan->order[i]].file, log_seed(&heap->header),
                             heap->page_bytes, heap->buffer, plan->length[i], &end, visit, heap);
        if (error == 0 && end.length != plan->length[i])
            error = -EIO; /* it was sound a moment ago */
        if (error != 0)
            return error;
    }
    heap->recovered = plan->last - heap->header.checkpoint;
    heap->written = heap->durable = plan->last;
    return 0;
}

static int write_page(void *context, uint64_t page, const char *image, uint64_t offset)
{
    struct cairn_persist *heap = context;
    (void)offset;
    if (page >= heap->header.data_bytes / heap->page_bytes)
        return -EBADMSG;
    return os_file_write(heap->file, image, heap->page_bytes,
                         PERSIST_DATA_OFFSET + page * heap->page_bytes);
}

int recover_to_file(struct cairn_persist *heap, const char **why)
{
    struct plan plan;
    int error = judge(heap, &plan, why);
    if (error == 0)
        error = replay(heap, &plan, write_page);
    if (error != 0 || plan.count == 0)
        return error;
    error = os_file_sync(heap->file);
    if (error != 0)
        return error;
    heap->header.checkpoint = plan.last;
    return header_write(heap->file, &heap->header);
}

static int copy_page(void *context, uint64_t page, const char *image, uint64_t offset)
{
    struct cairn_persist *heap = context;
    (void)offset;
    if (page >= persist_pages(heap))
        return -EBADMSG;
    __builtin_memcpy(heap->base + page * heap->page_bytes, image, heap->page_bytes);
    return 0;
}

int recover_to_memory(struct cairn_persist *heap, const char **why)
{
    struct plan plan;
    int error = judge(heap, &plan, why);
    return error != 0 ? error : replay(heap, &plan, copy_page);
}
