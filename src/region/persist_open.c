/* The persistent heap's files, recovery, open and close.
 *
 * Files. A new heap's file is made under a temporary name, made durable, and renamed, but never
 * over another file. So a file with the heap's name is always a whole heap. Every open for writing
 * makes the logs, and close removes them. While the header says PERSIST_LOGGING they belong to the
 * heap, and each must be the one on which its head and the header agree (persist_log.c). Otherwise
 * they are not needed, but a log of a later opening than the header's can show that the heap's file
 * is an older one. The logs are made, judged and removed while the heap's
 * file is locked.
 *
 * Files that are opened for writing are settled first, so that headers and log are judged as the
 * disk has them. Otherwise data that a killed program left only in memory would count as durable.
 * Recovery would write parts of a commit into the data, and a power loss would then remove the
 * commit from the log.
 *
 * Recovery replays the log's whole commits over the data of the last checkpoint, in two passes. The
 * first pass judges the segments and decides which commits count; it changes nothing, so a heap
 * that is refused stays as it was. The second pass replays them in their order. For writing, the
 * images are written to the heap's file and a new header says so, as in K1 to K3 of
 * persist_commit.c; after a crash in between recovery begins again. For reading only, the images
 * are copied to private pages in memory. Time and memory are linear in the size of the log.
 *
 * Recovery refuses:
 *   - a segment that begins behind the last commit of the other one and of the heap's file
 *   - a row that ends before a commit that was durable, as a later chunk or the mark shows
 *   - pages behind the end of the heap's file
 *
 * Open for writing has these steps:
 *   1. the heap's file and its lock; the header; address space and tables; the logs
 *   2. recovery to the file, if the header asks for the logs; then a header that does not
 *   3. the way of finding written pages; the mapping; a check of the state, or a new state
 *   4. empty logs with new heads
 *   5. a header that has the heap's address and asks for the logs
 *
 * Open for reading only has step 1, the mapping, recovery to memory and the check. Then the memory
 * becomes read-only. Nothing is written.
 *
 * Close does not commit. Close moves the log to the file and says in the header that the log is not
 * needed. If that fails the logs remain, and the next open recovers. A child of fork only releases
 * its copy.
 */
#include "region/persist_heap.h"

#include "base/check.h"
#include "os/file.h"
#include "os/memory.h"
#include "os/process.h"

#include <errno.h>

enum { SUFFIX_MAX = 32 };

/* Writes path + suffix to `to`.
 * Returns: false when it is too long. */
static bool persist_join(char *to, const char *path, const char *suffix)
{
    size_t length = format_text(to, PERSIST_PATH_MAX + SUFFIX_MAX, "%s%s", path, suffix);
    return length < PERSIST_PATH_MAX;
}

static void persist_number_suffix(char *suffix, unsigned index)
{
    (void)format_text(suffix, SUFFIX_MAX, ".log%u", index);
}

/* Writes the whole contents of a new heap's file: two headers, a mark, and data of zeros. */
static int persist_fill_new(int file, size_t data_bytes)
{
    struct persist_header header = {.magic = PERSIST_MAGIC,
                                    .version = PERSIST_VERSION,
                                    .page_bytes = (uint32_t)os_page_size(),
                                    .byte_order = PERSIST_BYTE_ORDER,
                                    .identity = os_entropy(),
                                    .data_bytes = data_bytes,
                                    .log_use = PERSIST_CLOSED};
    int error = os_file_truncate(file, PERSIST_DATA_OFFSET + data_bytes);
    for (unsigned i = 0; error == 0 && i < 2; i++)
        error = header_write(file, &header);
    if (error == 0) /* so that the sector's space on the disk is allocated now */
        mark_write(file, header.identity, 0);
    return error;
}

/* Makes the file of a new heap under its name, durable, unless there is one. */
static int persist_create(const char *path, size_t data_bytes)
{
    char fresh[PERSIST_PATH_MAX + SUFFIX_MAX];
    char suffix[SUFFIX_MAX];
    uint64_t random = os_entropy();
    (void)format_text(suffix, sizeof suffix, ".%x%x.new", (unsigned)(random >> 32),
                      (unsigned)random);
    if (!persist_join(fresh, path, suffix))
        return -ENAMETOOLONG;
    int file = os_file_open(fresh, OS_FILE_NEW);
    if (file < 0)
        return file;
    int error = persist_fill_new(file, data_bytes);
    os_file_close(file);
    if (error == 0)
        error = os_file_rename(fresh, path);
    if (error != 0) {
        (void)os_file_remove(fresh);
        return error == -EEXIST ? 0 : error; /* another process has made the heap */
    }
    return os_directory_sync(path);
}

/* Refuses to make a new heap while there is a log without its heap, which the new heap would
 * overwrite.
 * Returns: 0, -EBADMSG, or another negative errno. */
static int persist_refuse_log(const char *path, const char **why)
{
    char name[PERSIST_PATH_MAX + SUFFIX_MAX];
    char suffix[SUFFIX_MAX];
    for (unsigned i = 0; i < 2; i++) {
        persist_number_suffix(suffix, i);
        if (!persist_join(name, path, suffix))
            return -ENAMETOOLONG;
        int file = os_file_open(name, OS_FILE_READ);
        int64_t size = file >= 0 ? os_file_size(file) : file == -ENOENT ? 0 : file;
        os_file_close(file);
        if (size > 0)
            *why = persist_sentence("log%u of a heap is there, and the heap's file is missing: no "
                                    "new heap is made until the log is moved away",
                                    i);
        if (size != 0)
            return size < 0 ? (int)size : -EBADMSG;
    }
    return 0;
}

/* Opens the heap's file, or makes it, and locks and settles it.
 * Returns: a file descriptor or a negative errno. */
static int persist_open_locked(const char *path, const struct cairn_persist_options *options,
                               size_t data_bytes, const char **why)
{
    bool reading = (options->flags & CAIRN_PERSIST_READ_ONLY) != 0;
    enum os_file_mode mode = reading ? OS_FILE_READ : OS_FILE_WRITE;
    int file = os_file_open(path, mode);
    if (file == -ENOENT && (options->flags & CAIRN_PERSIST_CREATE) && !reading) {
        int error = persist_refuse_log(path, why);
        if (error == 0)
            error = persist_create(path, data_bytes);
        file = error != 0 ? error : os_file_open(path, mode);
    }
    int error = file >= 0 ? os_file_lock(file, !reading) : file;
    if (error == 0 && !reading)
        error = os_file_settle(file, PERSIST_DATA_OFFSET);
    if (error != 0) {
        os_file_close(file);
        return error;
    }
    return file;
}

int files_open(const char *path, const struct cairn_persist_options *options, size_t data_bytes,
               const char **why)
{
    for (;;) {
        int file = persist_open_locked(path, options, data_bytes, why);
        if (file < 0 || !os_file_is_nameless(file))
            return file;
        os_file_close(file); /* `cairn persist compact` has replaced the file meanwhile */
    }
}

static int persist_open_log(struct cairn_persist *heap, unsigned index, enum os_file_mode mode)
{
    char name[PERSIST_PATH_MAX + SUFFIX_MAX];
    char suffix[SUFFIX_MAX];
    persist_number_suffix(suffix, index);
    if (!persist_join(name, heap->path, suffix))
        return -ENAMETOOLONG;
    int file = os_file_open(name, mode);
    if (file < 0)
        return file;
    heap->segments[index].file = file;
    return mode == OS_FILE_WRITE ? os_file_settle(file, 0) : 0;
}

/* Compares the head of a log with the header, which asks for the log.
 * Returns: NULL when they agree, or the sentence to report. */
static const char *persist_find_misfit(const struct cairn_persist *heap, unsigned index,
                                       const struct persist_log_head *head, bool sound)
{
    const struct persist_header *header = &heap->header;
    uint64_t acknowledged = mark_read(heap);
    if (sound && log_head_fits(heap, index, head))
        return NULL;
    if (!sound && os_file_size(heap->segments[index].file) == 0)
        return persist_sentence("log%u is empty, and commit %zu was acknowledged", index,
                                acknowledged);
    if (!sound)
        return persist_sentence("log%u is cut or damaged at its start, and commit %zu was "
                                "acknowledged",
                                index, acknowledged);
    if (head->identity != header->identity)
        return persist_sentence("log%u is of another heap, and commit %zu was acknowledged", index,
                                acknowledged);
    if (head->opening == header->opening)
        return persist_sentence("log%u is not the one of this opening, and commit %zu was "
                                "acknowledged",
                                index, acknowledged);
    return persist_sentence("log%u is of opening %zu, the heap's file, with commit %zu, of opening "
                            "%zu: %s is older than the other files",
                            index, head->opening, acknowledged, header->opening,
                            head->opening < header->opening ? "this log" : "the heap's file");
}

/* Checks a log for which the header does not ask: a close or an earlier opening has left it.
 * Returns: 0; -EBADMSG when it shows that the heap's file is an older one or another heap's, with
 *     the sentence in *why; or another negative errno. */
static int persist_find_later(const struct cairn_persist *heap, unsigned index,
                              const struct persist_log_head *head, const char **why)
{
    bool same = head->identity == heap->header.identity;
    if (same && head->opening <= heap->header.opening)
        return 0;
    if (same && head->begun > heap->header.checkpoint) {
        *why = persist_sentence("the heap's file, closed with commit %zu, is older than log%u, "
                                "which was begun with commit %zu",
                                heap->header.checkpoint, index, head->begun);
        return -EBADMSG;
    }
    struct log_end end;
    int error = log_walk(heap->segments[index].file, head->identity + head->session,
                         heap->page_bytes, heap->buffer, UINT64_MAX, &end, NULL, NULL);
    if (error != 0 || end.first == 0)
        return error;
    *why = persist_sentence("the heap's file, closed with commit %zu, is %s log%u, which holds "
                            "commits %zu to %zu",
                            heap->header.checkpoint, same ? "older than" : "of another heap than",
                            index, end.first, larger_of(end.first, end.last));
    return -EBADMSG;
}

static int persist_judge_log(const struct cairn_persist *heap, unsigned index, bool expected,
                             const char **why)
{
    struct persist_log_head head;
    int sound = log_head_read(heap, index, &head);
    if (sound < 0)
        return sound;
    if (!expected)
        return sound ? persist_find_later(heap, index, &head, why) : 0;
    *why = persist_find_misfit(heap, index, &head, sound);
    return *why != NULL ? -EBADMSG : 0;
}

int files_open_logs(struct cairn_persist *heap, const char **why)
{
    bool reading = (heap->flags & CAIRN_PERSIST_READ_ONLY) != 0;
    bool expected = heap->header.log_use == PERSIST_LOGGING;
    for (unsigned i = 0; i < 2; i++) {
        int error = persist_open_log(heap, i, reading ? OS_FILE_READ : OS_FILE_WRITE);
        if (error == -ENOENT && expected) {
            *why = persist_sentence("log%u is missing, and commit %zu was acknowledged", i,
                                    mark_read(heap));
            return -EBADMSG;
        }
        if (error == 0)
            error = persist_judge_log(heap, i, expected, why);
        if (error != 0 && error != -ENOENT)
            return error;
    }
    return 0;
}

int files_begin_logs(struct cairn_persist *heap)
{
    for (unsigned i = 0; i < 2; i++) {
        int error = heap->segments[i].file < 0 ? persist_open_log(heap, i, OS_FILE_CREATE) : 0;
        if (error == 0)
            error = log_head_write(heap, i);
        if (error != 0)
            return error;
        heap->segments[i].room = sizeof(struct persist_log_head);
    }
    return os_directory_sync(heap->path);
}

void files_remove_logs(const struct cairn_persist *heap)
{
    char name[PERSIST_PATH_MAX + SUFFIX_MAX];
    char suffix[SUFFIX_MAX];
    for (unsigned i = 0; i < 2; i++) {
        persist_number_suffix(suffix, i);
        if (persist_join(name, heap->path, suffix))
            (void)os_file_remove(name);
    }
}

void files_close(struct cairn_persist *heap)
{
    os_file_close(heap->segments[0].file);
    os_file_close(heap->segments[1].file);
    os_file_close(heap->file); /* last, because this unlocks the heap */
    heap->file = heap->segments[0].file = heap->segments[1].file = -1;
}

/* The segments that recovery replays. */
struct plan {
    unsigned count;    /* number of segments */
    unsigned order[2]; /* their indices */
    uint64_t length[2];
    uint64_t last; /* number of the commit that recovery reaches */
};

/* Compares the plan with everything that shows which commits were acknowledged.
 * Returns: NULL when the plan reaches them all, or the sentence to report. */
static const char *persist_find_gap(const struct cairn_persist *heap, const struct log_end *ends,
                                    const struct plan *plan)
{
    uint64_t checkpoint = heap->header.checkpoint;
    uint64_t acknowledged = mark_read(heap);
    for (unsigned i = 0; i < 2; i++) {
        if (ends[i].first > plan->last + 1)
            return persist_sentence(
                "log%u begins with commit %zu, but the heap's file, with commit %zu, and the other "
                "log lead to commit %zu only: one of them is older than the others, or was cut",
                i, ends[i].first, checkpoint, plan->last);
        if (ends[i].later > plan->last)
            return persist_sentence(
                "the log is damaged behind commit %zu, and commit %zu was acknowledged", plan->last,
                larger_of(ends[i].later, acknowledged));
    }
    for (unsigned i = 0; i < plan->count; i++)
        if (ends[plan->order[i]].pages > heap->header.data_bytes / heap->page_bytes)
            return persist_sentence("the heap's file, with commit %zu, is older than its log: it "
                                    "is shorter than the heap of commit %zu",
                                    checkpoint, plan->last);
    if (acknowledged > plan->last)
        return persist_sentence("the log ends with commit %zu, and commit %zu was acknowledged: it "
                                "was cut, or is older than the heap's file",
                                plan->last, acknowledged);
    return NULL;
}

/* The first pass of recovery: makes the plan and checks it. */
static int persist_judge(const struct cairn_persist *heap, struct plan *plan, const char **why)
{
    struct log_end ends[2];
    for (unsigned i = 0; i < 2; i++) {
        int error = log_walk(heap->segments[i].file, log_seed(&heap->header), heap->page_bytes,
                             heap->buffer, UINT64_MAX, &ends[i], NULL, NULL);
        if (error != 0)
            return error;
    }
    *plan = (struct plan){.last = heap->header.checkpoint};
    for (unsigned i = 0; i < 4; i++) { /* each segment twice, since it may follow the other one */
        const struct log_end *end = &ends[i % 2];
        if (end->first != plan->last + 1 || end->last < end->first)
            continue;
        plan->order[plan->count] = i % 2;
        plan->length[plan->count++] = end->length;
        plan->last = end->last;
    }
    *why = persist_find_gap(heap, ends, plan);
    return *why != NULL ? -EBADMSG : 0;
}

/* The second pass of recovery: visits the images of the planned commits. */
static int persist_replay(struct cairn_persist *heap, const struct plan *plan, log_visit *visit)
{
    for (unsigned i = 0; i < plan->count; i++) {
        struct log_end end;
        int error = log_walk(heap->segments[plan->order[i]].file, log_seed(&heap->header),
                             heap->page_bytes, heap->buffer, plan->length[i], &end, visit, heap);
        if (error == 0 && end.length != plan->length[i])
            error = -EIO; /* it was sound in the first pass */
        if (error != 0)
            return error;
    }
    heap->recovered = plan->last - heap->header.checkpoint;
    heap->written = heap->durable = plan->last;
    return 0;
}

static int persist_write_page(void *context, uint64_t page, const char *image, uint64_t offset)
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
    int error = persist_judge(heap, &plan, why);
    if (error == 0)
        error = persist_replay(heap, &plan, persist_write_page);
    if (error == 0)
        error = os_file_sync(heap->file);
    if (error != 0)
        return error;
    heap->header.checkpoint = plan.last;
    heap->header.log_use = PERSIST_CLOSED; /* the logs may be overwritten now */
    return header_write(heap->file, &heap->header);
}

static int persist_copy_page(void *context, uint64_t page, const char *image, uint64_t offset)
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
    int error = persist_judge(heap, &plan, why);
    return error != 0 ? error : persist_replay(heap, &plan, persist_copy_page);
}

enum {
    CAPACITY_SHARE = 4,
    UNIT_BYTES = 65536,
    BUFFER_BYTES = PERSIST_CHUNK_MAX_BYTES + 65536,
    MIN_LOG_BYTES = 1 << 16,
};
#define KNOWN_FLAGS                                                                                \
    ((unsigned)(CAIRN_PERSIST_CREATE | CAIRN_PERSIST_READ_ONLY | CAIRN_PERSIST_FIXED |             \
                CAIRN_PERSIST_WRITERS_PAUSE | CAIRN_PERSIST_CHECK))

static const size_t default_capacity = (size_t)16 << 30;
static const size_t default_size = (size_t)1 << 20;
static const size_t default_log = (size_t)64 << 20;
static const size_t largest_capacity = (size_t)1 << 39; /* half of TLSF's largest block */

/* Reserves the requested address space. Without a request it takes less if there is less, also at
 * an address that is demanded. */
static int persist_reserve(struct cairn_persist *heap, const struct cairn_persist_options *options)
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
        if (error == 0 || options->capacity_bytes != 0 || wanted <= data)
            return error;
        wanted = align_up(larger_of(wanted / 2, data), UNIT_BYTES);
    }
}

/* Maps memory for bitmaps, tables and buffers. Only the parts in use become resident. */
static int persist_take_tables(struct cairn_persist *heap)
{
    uint64_t **bitmaps[] = {&heap->dirty,
                            &heap->dead,
                            &heap->freed,
                            &heap->bare,
                            &heap->kept,
                            &heap->reserved,
                            &heap->tracker.faulted,
                            &heap->tracker.armed,
                            &heap->segments[0].logged,
                            &heap->segments[1].logged};
    size_t pages = heap->capacity_bytes / heap->page_bytes;
    size_t bitmap = align_up((pages + 63) / 64 * 8, 64);
    size_t table = align_up(pages * 8, 64);
    size_t run = CHECKPOINT_RUN_PAGES * heap->page_bytes;
    heap->own_bytes =
        align_up(countof(bitmaps) * bitmap + 2 * table + BUFFER_BYTES + run, heap->page_bytes);
    char *at = os_map(heap->own_bytes);
    heap->own_memory = at;
    if (at == NULL)
        return -ENOMEM;
    for (unsigned i = 0; i < countof(bitmaps); i++, at += bitmap)
        *bitmaps[i] = (uint64_t *)(void *)at;
    for (unsigned i = 0; i < 2; i++, at += table)
        heap->segments[i].where = (uint64_t *)(void *)at;
    heap->buffer = at;
    heap->checkpoint_buffer = at + BUFFER_BYTES;
    return 0;
}

static int persist_check_or_set_up(struct cairn_persist *heap, const char **why)
{
    if (persist_is_new(heap))
        return heap->flags & CAIRN_PERSIST_READ_ONLY ? -ENODATA : persist_set_up(heap);
    *why = persist_check_state(heap);
    if (*why == NULL && (heap->flags & CAIRN_PERSIST_CHECK))
        *why = cairn_persist_check(heap);
    return *why ? -EBADMSG : 0;
}

/* Makes empty logs of a new opening, and writes the header that asks for them (O2, O3). */
static int persist_announce(struct cairn_persist *heap)
{
    heap->header.session = os_entropy();
    heap->header.opening++;
    int error = files_begin_logs(heap);
    if (error != 0)
        return error;
    heap->header.log_use = PERSIST_LOGGING;
    heap->header.address = (uintptr_t)heap->base;
    return header_write(heap->file, &heap->header);
}

static int persist_open_for_writing(struct cairn_persist *heap,
                                    const struct cairn_persist_options *options, const char **why)
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
        error = persist_check_or_set_up(heap, why);
    if (error == 0)
        error = persist_announce(heap);
    if (error == 0)
        fork_lock_watch(&heap->lock);
    return error;
}

static int persist_open_for_reading(struct cairn_persist *heap, const char **why)
{
    heap->written = heap->durable = heap->header.checkpoint;
    int error = space_map(heap, heap->header.data_bytes);
    if (error == 0 && heap->header.log_use == PERSIST_LOGGING)
        error = recover_to_memory(heap, why);
    if (error == 0)
        error = persist_check_or_set_up(heap, why);
    if (error == 0)
        error = os_protect(heap->base, heap->mapped_bytes, OS_READ);
    if (error == 0)
        fork_lock_watch(&heap->lock);
    return error;
}

/* Finds the file's own path. The names of the logs derive from it; a symbolic link would give them
 * other names. */
static int persist_find_path(struct cairn_persist *heap, const char *path, const char **why)
{
    int length = os_file_path(heap->file, heap->path, sizeof heap->path);
    if (length == -ENOENT)
        length = os_path_absolute(path, heap->path, sizeof heap->path);
    if (length == -ELOOP)
        *why = "a heap is opened by a symbolic link only where /proc is mounted";
    return length < 0 ? length : 0;
}

static int persist_open_heap(struct cairn_persist *heap, const char *path,
                             const struct cairn_persist_options *options, const char **why)
{
    size_t size = options->size_bytes != 0 ? options->size_bytes : default_size;
    size = align_up(larger_of(smaller_of(size, largest_capacity), 2 * UNIT_BYTES), UNIT_BYTES);
    heap->file = files_open(path, options, size, why);
    if (heap->file < 0)
        return heap->file;
    int error = persist_find_path(heap, path, why);
    if (error == 0)
        error = header_read(heap->file, &heap->header, why);
    uint64_t data_bytes = heap->header.data_bytes;
    if (error == 0 && (data_bytes == 0 || data_bytes % UNIT_BYTES != 0)) {
        *why = "the heap's header makes no sense";
        error = -EBADMSG;
    }
    if (error == 0)
        error = persist_reserve(heap, options);
    if (error == 0)
        error = persist_take_tables(heap);
    if (error == 0)
        error = files_open_logs(heap, why);
    if (error != 0)
        return error;
    return heap->flags & CAIRN_PERSIST_READ_ONLY ? persist_open_for_reading(heap, why)
                                                 : persist_open_for_writing(heap, options, why);
}

/* Releases everything that an open took, whole or in part. */
static void persist_let_go(struct cairn_persist *heap)
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

/* The sentence for an error of the system that has none of its own. */
static const char *persist_sentence_for(int error)
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

static struct cairn_persist *persist_fail(const struct cairn_persist_options *options,
                                          const char *why, int error)
{
    if (options->why != NULL)
        *options->why = why != NULL ? why : persist_sentence_for(error);
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
    if ((options->flags & ~KNOWN_FLAGS) != 0 || (unsigned)options->tracking > CAIRN_PERSIST_PROTECT)
        return persist_fail(options, "this library does not know one of the options", EINVAL);
    struct cairn_persist *heap = os_map(align_up(sizeof *heap, os_page_size()));
    if (heap == NULL)
        return persist_fail(options, NULL, ENOMEM);
    size_t log = options->log_bytes != 0 ? options->log_bytes : default_log;
    heap->magic = PERSIST_HEAP_MAGIC;
    heap->page_bytes = os_page_size();
    heap->flags = options->flags;
    heap->process = os_process_id();
    heap->log_limit = PERSIST_LOG_START + larger_of(log, MIN_LOG_BYTES) / 2;
    heap->file = heap->segments[0].file = heap->segments[1].file = -1;
    heap->tracker.userfault = heap->tracker.pagemap = -1;
    const char *why = NULL;
    int error = persist_open_heap(heap, path, options, &why);
    if (error != 0) {
        persist_let_go(heap);
        return persist_fail(options, why, -error);
    }
    errno = saved;
    return heap;
}

/* Moves the whole log to the file, writes a header that asks for no log, and removes the logs.
 * Returns: 0 or a positive errno. */
static int persist_put_away(struct cairn_persist *heap)
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
        error = persist_put_away(heap);
    persist_let_go(heap);
    return error;
}
