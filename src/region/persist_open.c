/* Opening and closing the persistent heap: the steps, in order, and their way back.
 *
 * Open, for writing: the file with its lock; the header; address space and the tables for it; the
 * logs; recovery to the file; the way of finding what is written; the mapping; a look at the state,
 * or a new one; then the header says where the heap lies and that the logs belong to it. For
 * reading only: recovery goes to memory, which then is made read-only, and nothing is written.
 *
 * Close does not commit. It brings the log to the file and says in the header that the log is not
 * needed; if that fails the logs stay, and the next open recovers. A fork's child lets go of its
 * copy, no more.
 */
#include "base/check.h"
#include "os/os.h"
#include "region/persist_files.h"

#include <errno.h>

enum {
    CAPACITY_SHARE = 4,
    UNIT_BYTES = 65536,
    BUFFER_BYTES = PERSIST_CHUNK_MOST_BYTES + 65536,
    LEAST_LOG_BYTES = 1 << 16,
};
static const size_t default_capacity = (size_t)16 << 30;
static const size_t default_size = (size_t)1 << 20;
static const size_t default_log = (size_t)64 << 20;
static const size_t largest_capacity = (size_t)1 << 39; /* TLSF's largest block is twice that */

/* Address space: what is asked for, or else less when there is less. */
static int reserve(struct cairn_persist *heap, const struct cairn_persist_options *options)
{
    size_t data = heap->header.data_bytes;
    size_t wanted = options->capacity_bytes;
    if (wanted == 0)
        wanted = larger_of(default_capacity, data * CAPACITY_SHARE);
    wanted = align_up(larger_of(smaller_of(wanted, largest_capacity), data), UNIT_BYTES);
    uintptr_t address = heap->header.address;
    bool demanded = (options->flags & CAIRN_PERSIST_FIXED) && address != 0;
    if (address == 0)
        address = (uintptr_t)options->address;
    for (;;) {
        heap->capacity_bytes = wanted;
        int error = space_reserve(heap, address, demanded);
        if (error != -ENOMEM || options->capacity_bytes != 0 || wanted <= data)
            return error;
        wanted = align_up(larger_of(wanted / 2, data), UNIT_BYTES);
    }
}

/* Bitmaps, tables and buffers in one mapping, which is touched as it is used. */
static int take_tables(struct cairn_persist *heap)
{
    size_t pages = heap->capacity_bytes / heap->page_bytes;
    size_t bitmap = align_up((pages + 63) / 64 * 8, 64);
    size_t table = align_up(pages * 8, 64);
    size_t run = CHECKPOINT_RUN_PAGES * heap->page_bytes;
    heap->own_bytes = align_up(7 * bitmap + 2 * table + BUFFER_BYTES + run, heap->page_bytes);
    char *at = os_map(heap->own_bytes);
    heap->own_memory = at;
    if (at == NULL)
        return -ENOMEM;
    os_name(at, heap->own_bytes, "cairn persist");
    uint64_t **bitmaps[] = {&heap->dirty,
                            &heap->dead,
                            &heap->kept,
                            &heap->tracker.trapped,
                            &heap->tracker.armed,
                            &heap->segments[0].logged,
                            &heap->segments[1].logged};
    for (unsigned i = 0; i < countof(bitmaps); i++, at += bitmap)
        *bitmaps[i] = (uint64_t *)(void *)at;
    for (unsigned i = 0; i < 2; i++, at += table)
        heap->segments[i].where = (uint64_t *)(void *)at;
    heap->buffer = at;
    heap->checkpoint_buffer = at + BUFFER_BYTES;
    return 0;
}

/* A heap without any commit yet has no state, either. */
static bool is_new(const struct cairn_persist *heap)
{
    return heap->written == 0 && persist_state_of(heap)->magic == 0;
}

static int check_or_set_up(struct cairn_persist *heap, const char **why)
{
    if (is_new(heap))
        return heap->flags & CAIRN_PERSIST_READ_ONLY ? -ENODATA : persist_set_up(heap);
    *why = persist_check_state(heap);
    if (*why == NULL && (heap->flags & CAIRN_PERSIST_CHECK))
        *why = cairn_persist_check(heap);
    return *why ? -EBADMSG : 0;
}

static int announce(struct cairn_persist *heap)
{
    heap->header.log_use = PERSIST_LOGGING;
    heap->header.address = (uintptr_t)heap->base;
    heap->header.session = os_entropy();
    return header_write(heap->file, &heap->header);
}

static int open_for_writing(struct cairn_persist *heap, const struct cairn_persist_options *options,
                            const char **why)
{
    int error = 0;
    heap->written = heap->durable = heap->header.checkpoint;
    if (heap->header.log_use == PERSIST_LOGGING)
        error = recover_to_file(heap, why);
    segment_begin(heap, 0);
    if (error == 0)
        error = dirty_start(heap, options->tracking);
    if (error == 0)
        error = space_map(heap, heap->header.data_bytes);
    if (error == 0)
        error = check_or_set_up(heap, why);
    if (error == 0)
        error = announce(heap);
    if (error == 0)
        error = fork_lock_watch(&heap->lock);
    return error;
}

static int open_for_reading(struct cairn_persist *heap, const char **why)
{
    heap->written = heap->durable = heap->header.checkpoint;
    int error = space_map(heap, heap->header.data_bytes);
    if (error == 0 && heap->header.log_use == PERSIST_LOGGING)
        error = recover_to_memory(heap, why);
    if (error == 0)
        error = check_or_set_up(heap, why);
    if (error == 0)
        error = os_protect(heap->base, heap->mapped_bytes, OS_READ);
    if (error == 0)
        error = fork_lock_watch(&heap->lock);
    return error;
}

/* The names of the logs come from the file's own: by a link they would be others. */
static int find_path(struct cairn_persist *heap, const char *path, const char **why)
{
    int length = os_file_path(heap->file, heap->path, sizeof heap->path);
    if (length == -ENOENT)
        length = os_path_absolute(path, heap->path, sizeof heap->path);
    if (length == -ELOOP)
        *why = "a heap is opened by a symbolic link only where /proc is mounted";
    return length < 0 ? length : 0;
}

static int open_heap(struct cairn_persist *heap, const char *path,
                     const struct cairn_persist_options *options, const char **why)
{
    size_t size = options->size_bytes != 0 ? options->size_bytes : default_size;
    size = align_up(larger_of(smaller_of(size, largest_capacity), 2 * UNIT_BYTES), UNIT_BYTES);
    heap->file = files_open(path, options, size);
    if (heap->file < 0)
        return heap->file;
    int error = find_path(heap, path, why);
    if (error == 0)
        error = header_read(heap->file, &heap->header, why);
    uint64_t data_bytes = heap->header.data_bytes;
    if (error == 0 && (data_bytes == 0 || data_bytes % UNIT_BYTES != 0)) {
        *why = "the heap's header makes no sense";
        error = -EBADMSG;
    }
    if (error == 0)
        error = reserve(heap, options);
    if (error == 0)
        error = take_tables(heap);
    if (error == 0)
        error = files_open_logs(heap, why);
    if (error != 0)
        return error;
    return heap->flags & CAIRN_PERSIST_READ_ONLY ? open_for_reading(heap, why)
                                                 : open_for_writing(heap, options, why);
}

static void let_go(struct cairn_persist *heap)
{
    dirty_end(heap);
    files_close(heap);
    if (heap->base != NULL)
        (void)os_unmap(heap->base, heap->capacity_bytes);
    if (heap->own_memory != NULL)
        (void)os_unmap(heap->own_memory, heap->own_bytes);
    heap->magic = 0;
    (void)os_unmap(heap, align_up(sizeof *heap, os_page_size()));
}

static const char *sentence_for(int error)
{
    switch (error) {
    case ENOENT:
        return "there is no such heap";
    case EBUSY:
        return "the heap is in use";
    case EADDRNOTAVAIL:
        return "the heap's address is taken";
    case ENOMEM:
        return "there is not enough memory or address space";
    case ENODATA:
        return "nothing was ever committed to the heap";
    case EROFS:
        return "the file system is read-only";
    case EACCES:
        return "there is no permission for it";
    case ENOSPC:
    case EDQUOT:
        return "the disk is full";
    case EFBIG:
        return "the limit on the size of files forbids it";
    case ENOTSUP:
        return "the system has no such way to find what was written";
    default:
        return "the system refused it";
    }
}

static const struct cairn_persist_options no_options;

static struct cairn_persist *fail(const struct cairn_persist_options *options, const char *why,
                                  int error)
{
    if (options->why != NULL)
        *options->why = why != NULL ? why : sentence_for(error);
    errno = error;
    return NULL;
}

api struct cairn_persist *cairn_persist_open(const char *path,
                                             const struct cairn_persist_options *options)
{
    os_init();
    int saved = errno;
    if (options == NULL)
        options = &no_options;
    struct cairn_persist *heap = os_map(align_up(sizeof *heap, os_page_size()));
    if (heap == NULL)
        return fail(options, NULL, ENOMEM);
    size_t log = options->log_bytes != 0 ? options->log_bytes : default_log;
    heap->magic = PERSIST_HEAP_MAGIC;
    heap->page_bytes = os_page_size();
    heap->flags = options->flags;
    heap->process = os_process_id();
    heap->log_limit = larger_of(log, LEAST_LOG_BYTES) / 2;
    heap->file = heap->segments[0].file = heap->segments[1].file = -1;
    heap->tracker.userfault = heap->tracker.pagemap = -1;
    const char *why = NULL;
    int error = open_heap(heap, path, options, &why);
    if (error != 0) {
        let_go(heap);
        return fail(options, why, -error);
    }
    errno = saved;
    return heap;
}

/* All that is logged goes to the file, and the logs go. */
static int put_away(struct cairn_persist *heap)
{
    int error = cairn_persist_checkpoint(heap);
    if (error != 0)
        return error;
    heap->header.log_use = PERSIST_CLOSED;
    error = header_write(heap->file, &heap->header);
    if (error == 0)
        files_remove_logs(heap);
    return -error;
}

api int cairn_persist_close(struct cairn_persist *heap)
{
    if (heap == NULL)
        return 0;
    if (heap->magic != PERSIST_HEAP_MAGIC)
        die("persist close of %p, which is not an open heap", (void *)heap);
    int error = 0;
    fork_lock_unwatch(&heap->lock);
    if (!(heap->flags & CAIRN_PERSIST_READ_ONLY) && heap->process == os_process_id())
        error = put_away(heap);
    let_go(heap);
    return error;
}
